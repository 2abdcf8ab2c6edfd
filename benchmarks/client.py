"""What the stream is worth to the Python clients: whole runs over it, next to the same runs by unary calls.

    python -m benchmarks client [--rounds 7] [--calls 400]

A run has agents that do nothing, one after the other, and no decision model. Rounds of both ways are interleaved;
what is reported are ratios of medians: time, CPU of the client's process and of the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable

from benchmarks.step import benchmark_server, cpu_seconds
from plannerd_client import AsyncClient, Bdi, Client, Desire, GaveUp, agent

AGENTS = 5

Costs = tuple[float, float, float]


def nothing(request: str) -> str:
    """An agent that costs as little as an agent can."""
    return request


def run(rounds: int, calls: int) -> None:
    """Measure and print a table."""
    agents = [agent(name=f"agent-{number}", output_key=f"key-{number}")(nothing) for number in range(AGENTS)]
    turns = [agents[number % AGENTS] for number in range(calls)]
    desire = Desire(name="d", agents=turns, achievable="request", satisfied="never")
    planner = Bdi([desire], max_invocations=calls + 1)

    async def asynchronous(address: str, stream: bool) -> None:
        async with AsyncClient(address, stream=stream) as client:
            with contextlib.suppress(GaveUp):  # the intention has no agent left
                await client.run(planner, agents, {"request": "x"})

    def synchronous(address: str, stream: bool) -> None:
        with Client(address, stream=stream) as client, contextlib.suppress(GaveUp):
            client.run(planner, agents, {"request": "x"})

    kinds: dict[str, Callable[[str, bool], None]] = {
        "AsyncClient": lambda address, stream: asyncio.run(asynchronous(address, stream)),
        "Client": synchronous,
    }
    print(f"Runs of {calls} steps: over one stream / by unary calls; medians of {rounds} rounds.")
    with benchmark_server() as (pid, address, _):
        for kind, once in kinds.items():
            measured: dict[bool, list[Costs]] = {True: [], False: []}
            for number in range(rounds + 1):
                for stream, found in measured.items():
                    costs = _costs(pid, lambda: once(address, stream))  # noqa: B023 - called at once
                    if number:  # the first round warms up
                        found.append(costs)
            for place, what in enumerate(("time", "CPU of the client", "CPU of the server")):
                over, by = (statistics.median(costs[place] for costs in measured[way]) for way in (True, False))
                print(f"  {kind:<12} {what:<18} {over / by:.2f}")


def _costs(pid: int, once: Callable[[], None]) -> Costs:
    started = time.perf_counter(), time.process_time(), cpu_seconds(pid)
    once()
    return time.perf_counter() - started[0], time.process_time() - started[1], cpu_seconds(pid) - started[2]
