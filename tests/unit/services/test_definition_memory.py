"""Compiled configurations are kept for the next Init, within a bound."""

from __future__ import annotations

import tracemalloc

from tests.support.builders import agent, scheduler
from tests.support.engine import Server


async def test_many_large_configurations_do_not_add_up() -> None:
    """However many different large configurations come and go, what is kept of them stays within its bound."""
    server = Server(definition_bytes=8 << 20)
    tracemalloc.start()
    try:
        for number in range(40):
            request = scheduler(agent("a", "ticket"), goal=f"{number}".ljust(1 << 20, "g"))
            client = server.client(request, f"i{number}")
            await client.init()
            await client.end()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 24 << 20
