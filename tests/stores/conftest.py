"""The shared store is tested on every server that it may be on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TypeAlias

import pytest

from tests.support.redis import REDIS, VALKEY, RedisProcess, running_redis

Servers: TypeAlias = Callable[[str], RedisProcess]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Servers by their program, one of each for all of these tests; they use prefixes of their own."""
    with ExitStack() as running:
        yield cache(lambda binary: running.enter_context(running_redis(binary=binary)))


@pytest.fixture(scope="session", params=[REDIS, VALKEY])
def binary(request: pytest.FixtureRequest) -> str:
    """The program of the server."""
    return str(request.param)


@pytest.fixture
def redis(binary: str, servers: Servers) -> RedisProcess:
    """The server; tests must not stop it."""
    return servers(binary)
