"""What an unrelated call has to wait while the embedded model decides as fast as it can.

    python -m benchmarks.beside [--rounds 7] [--seconds 3]

A server decides all the time, eight requests at once, in its own process; a client calls `ListPlanners`, one call at a
time. Three kinds of servers take turns: `idle` decides nothing, `thread` decides as plannerd does, in a thread beside
the event loop, `inline` on the event loop itself. What counts are the ratios within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import grpc

from benchmarks.sparrow import scales, text_of
from plannerd.app import build
from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import DecisionRequest, Field
from plannerd.decisions.sparrow import SparrowModel
from plannerd.settings import load
from plannerd.telemetry.logging import configure
from plannerd.transport.server import Server
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc

KINDS = ("idle", "thread", "inline")
LOADS = ((5, 200), (20, 10_000))
AT_ONCE = 8


class Inline(SparrowModel):
    """The same model, deciding on the event loop."""

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Answer at once, then let others have their turn."""
        response = self.answer(request)
        await asyncio.sleep(0)
        return response


async def serve(kind: str, candidates: int, size: int) -> None:
    """Serve until standard input is closed, and decide meanwhile; prints the port, then decisions a second."""
    settings = load(overrides={"server": {"port": 0}})
    configure("error", settings.log.format, error_messages=False)
    app = build(settings)
    model = Inline() if kind == "inline" else SparrowModel()
    questions = scales(candidates)
    texts = [text_of(size) for _ in range(500)]
    decided = 0

    async def decide() -> None:
        nonlocal decided
        while True:
            decided += 1
            await model.decide(DecisionRequest((Field("request", texts[decided % len(texts)]),), questions))

    async with Server(settings.server, app.services) as server:
        deciding = [asyncio.create_task(decide()) for _ in range(0 if kind == "idle" else AT_ONCE)]
        started = time.perf_counter()
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(f"{decided / (time.perf_counter() - started):.0f}", flush=True)
        for task in deciding:
            task.cancel()
        await asyncio.gather(*deciding, return_exceptions=True)
    await model.close()
    await app.close()


@dataclass(frozen=True, slots=True)
class Round:
    """One round with one server: milliseconds of the other call, and decisions a second."""

    median: float
    p99: float
    rate: int


def measure(kind: str, candidates: int, size: int, seconds: float) -> Round:
    """One round."""
    command = [sys.executable, "-m", "benchmarks.beside", "--serve", kind, str(candidates), str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        took = []
        with grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}") as channel:
            call = planner_pb2_grpc.PlannerServiceStub(channel).ListPlanners
            request = planner_pb2.ListPlannersRequest()
            for _ in range(50):
                call(request)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                started = time.perf_counter()
                call(request)
                took.append((time.perf_counter() - started) * 1000)
                time.sleep(0.002)
        process.stdin.close()
        rate = int(process.stdout.readline())
    finally:
        if not process.stdin.closed:
            process.stdin.close()
        process.wait(30)
    took.sort()
    return Round(took[len(took) // 2], took[int(len(took) * 0.99)], rate)


def run(rounds: int, seconds: float) -> None:
    """Measure and print a table."""
    print(f"ListPlanners while {AT_ONCE} requests at once are decided; medians of {rounds} interleaved rounds\n")
    print("candidates   bytes   decided    median ms   p99 ms    p99 / p99 of idle   decisions/s")
    for candidates, size in LOADS:
        found: dict[str, list[Round]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                found[kind].append(measure(kind, candidates, size, seconds))
        for kind in KINDS:
            ratios = [one.p99 / idle.p99 for one, idle in zip(found[kind], found["idle"], strict=True)]
            ratio = statistics.median(ratios)
            median, p99, rate = (
                statistics.median(getattr(one, name) for one in found[kind]) for name in ("median", "p99", "rate")
            )
            print(
                f"{candidates:>10} {size:>7,}   {kind:<8} {median:>11.2f} {p99:>8.2f} {ratio:>15.1f} {rate:>17,.0f}",
                flush=True,
            )


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round (default 3)")
    parser.add_argument("--serve", nargs=3, metavar=("KIND", "CANDIDATES", "BYTES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is None:
        run(arguments.rounds, arguments.seconds)
    else:
        kind, candidates, size = arguments.serve
        asyncio.run(serve(kind, int(candidates), int(size)))


if __name__ == "__main__":
    main()
