"""What telemetry costs: a step without it, and with 1 % and all invocations sampled.

    python -m benchmarks telemetry [--rounds 7] [--calls 400]

Three servers make the same steps (BDI: no model counts), unary and over streams, in interleaved rounds. Two of them
export traces and metrics over gRPC to a real receiver in this process. Reported are ratios of medians of the CPU time
of a server's process a step, which has that of the threads that export in it; 1 / ratio is what is left of its
throughput.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc.aio

from benchmarks.step import SCOPE_BYTES, a_report, a_system, cpu_seconds
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.otlp import Received, receiving
from tests.support.servers import ServerProcess, running_server

IN_FLIGHT = 16
FLUSH_SECONDS = 1.5  # until what was queued is exported, so that it counts


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to run: how much is sampled, None for no telemetry at all."""

    name: str
    sampled: str | None


KINDS = (Kind("off", None), Kind("1 %", "0.01"), Kind("100 %", "1.0"))


def variables(kind: Kind, collector: Received) -> dict[str, str]:
    """The environment of a server of this kind."""
    if kind.sampled is None:
        return {}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": kind.sampled,
        "OTEL_BSP_SCHEDULE_DELAY": "1000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100000",
    }


async def unary(stub: planner_pb2_grpc.PlannerServiceAsyncStub, name: str, steps: int) -> None:
    """An invocation by unary calls."""
    started = await stub.Init(a_system(name, steps))
    first = planner_pb2.FirstActionRequest(invocation_id=name, base=started.position)
    first.scope.set["request"].string_value = "r" * SCOPE_BYTES
    reply = planner_pb2.NextActionResponse(step=(await stub.FirstAction(first)).step)
    for _ in range(steps):
        reply = await stub.NextAction(a_report(reply, name))
    await stub.End(planner_pb2.EndRequest(invocation_id=name))


async def stream(stub: planner_pb2_grpc.PlannerServiceAsyncStub, name: str, steps: int) -> None:
    """The same over a stream."""
    answers: asyncio.Queue[planner_pb2.RunResponse] = asyncio.Queue()

    async def requests() -> AsyncIterator[planner_pb2.RunRequest]:
        yield planner_pb2.RunRequest(init=a_system(name, steps))
        first = planner_pb2.FirstActionRequest(invocation_id=name, base=(await answers.get()).init.position)
        first.scope.set["request"].string_value = "r" * SCOPE_BYTES
        yield planner_pb2.RunRequest(first_action=first)
        reply = planner_pb2.NextActionResponse(step=(await answers.get()).first_action.step)
        for _ in range(steps):
            yield planner_pb2.RunRequest(next_action=a_report(reply, name))
            reply = (await answers.get()).next_action
        yield planner_pb2.RunRequest(end=planner_pb2.EndRequest(invocation_id=name))

    async for answer in stub.Run(requests()):
        answers.put_nowait(answer)


async def _round(server: ServerProcess, name: str, steps: int, *, streams: bool) -> float:
    """CPU seconds of the server for a step."""
    one = stream if streams else unary
    cpu = cpu_seconds(server.process.pid)
    async with grpc.aio.insecure_channel(server.target) as channel:
        stub: planner_pb2_grpc.PlannerServiceAsyncStub = planner_pb2_grpc.PlannerServiceStub(channel)
        await asyncio.gather(*(one(stub, f"{name}-{number}", steps) for number in range(IN_FLIGHT)))
    time.sleep(FLUSH_SECONDS)  # noqa: ASYNC251 (nothing else is to run)
    return (cpu_seconds(server.process.pid) - cpu) / (steps * IN_FLIGHT)


def run(rounds: int, calls: int) -> None:
    """Measure and print a table."""
    steps = max(10, calls // IN_FLIGHT)
    config = {"log": {"level": "warning"}}
    with receiving() as collector:
        servers: dict[str, ServerProcess] = {}
        with (
            running_server(config=config) as servers["off"],
            running_server(config=config, environment=variables(KINDS[1], collector)) as servers["1 %"],
            running_server(config=config, environment=variables(KINDS[2], collector)) as servers["100 %"],
        ):
            print(f"CPU time of a server for a step (BDI), {IN_FLIGHT} invocations at a time, {rounds} rounds of")
            print(f"{steps * IN_FLIGHT} steps; with telemetry / without.\n")
            for streams in (False, True):
                found: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
                for number in range(rounds + 1):
                    for kind in KINDS:
                        name = f"{streams}-{kind.sampled}-{number}"
                        measured = asyncio.run(_round(servers[kind.name], name, steps, streams=streams))
                        if number:  # the first round warms up
                            found[kind.name].append(measured)
                for kind in KINDS[1:]:
                    ratios = [one / base for one, base in zip(found[kind.name], found["off"], strict=True)]
                    ratio = statistics.median(ratios)
                    print(
                        f"{'stream' if streams else 'unary':<8} {kind.name:>6} sampled: {ratio:.2f}   throughput "
                        f"{1 / ratio:.2f} x off   (rounds from {min(ratios):.2f} to {max(ratios):.2f})"
                    )
