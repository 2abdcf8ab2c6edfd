"""What a step costs with a shared store, next to the memory store.

    python -m benchmarks store [--rounds 7] [--calls 400]

Two servers, one with a real Redis on this machine, make the same steps (BDI: no model counts) for 16 invocations
at a time, unary, in interleaved rounds. Reported are ratios of medians: CPU time of the server's process a step,
and steps a second as the client saw them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

import grpc.aio

from benchmarks.step import SCOPE_BYTES, a_report, a_system, cpu_seconds
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.redis import running_redis
from tests.support.servers import ServerProcess, running_server

IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Round:
    """CPU seconds of the server a step, and steps a second."""

    cpu: float
    rate: float


async def _round(server: ServerProcess, name: str, steps: int) -> Round:
    async with grpc.aio.insecure_channel(server.target) as channel:
        planner = planner_pb2_grpc.PlannerServiceStub(channel)

        async def begun(number: int) -> tuple[str, planner_pb2.NextActionResponse]:
            invocation_id = f"{name}-{number}"
            started = await planner.Init(a_system(invocation_id, steps))
            first = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=started.position)
            first.scope.set["request"].string_value = "r" * SCOPE_BYTES
            return invocation_id, planner_pb2.NextActionResponse(step=(await planner.FirstAction(first)).step)

        async def run(invocation_id: str, reply: planner_pb2.NextActionResponse) -> None:
            for _ in range(steps):
                reply = await planner.NextAction(a_report(reply, invocation_id))

        ready = await asyncio.gather(*(begun(number) for number in range(IN_FLIGHT)))
        cpu, started = cpu_seconds(server.process.pid), time.perf_counter()
        await asyncio.gather(*(run(*invocation) for invocation in ready))
        total = steps * IN_FLIGHT
        measured = Round((cpu_seconds(server.process.pid) - cpu) / total, total / (time.perf_counter() - started))
        for invocation_id, _ in ready:
            await planner.End(planner_pb2.EndRequest(invocation_id=invocation_id))
    return measured


async def _measure(memory: ServerProcess, shared: ServerProcess, rounds: int, steps: int) -> None:
    found: dict[str, list[Round]] = {"memory": [], "shared": []}
    for number in range(rounds + 1):
        for kind, server in (("memory", memory), ("shared", shared)):
            measured = await _round(server, f"{kind}-{number}", steps)
            if number:  # the first round warms up
                found[kind].append(measured)
    for what, attribute in (("CPU time of the server a step", "cpu"), ("steps a second", "rate")):
        ratios = [
            getattr(one, attribute) / getattr(other, attribute)
            for one, other in zip(found["shared"], found["memory"], strict=True)
        ]
        print(
            f"{what:<30} shared / memory = {statistics.median(ratios):.2f}   "
            f"(rounds from {min(ratios):.2f} to {max(ratios):.2f})"
        )


def run(rounds: int, calls: int) -> None:
    """Measure and print a table."""
    steps = max(10, calls // IN_FLIGHT)
    quiet = {"log": {"level": "warning"}}
    with (
        running_redis() as redis,
        running_server(config=quiet) as memory,
        running_server(config={**quiet, "store": {"url": f"redis://127.0.0.1:{redis.port}"}}) as shared,
    ):
        print(f"Steps of {IN_FLIGHT} invocations at a time (BDI), {rounds} rounds of {steps * IN_FLIGHT} each.\n")
        asyncio.run(_measure(memory, shared, rounds, steps))
