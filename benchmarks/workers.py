"""What `--workers` is worth: steps a second of two workers, next to one process on all cores and one on a single core.

    python -m benchmarks workers [--rounds 7] [--calls 400]

Load comes from processes of their own on the same machine, which share its cores with the servers: on a small
machine they are a good part of the work, so the ratios here are lower bounds of what separate machines would show.
Rounds of all kinds are interleaved. Each client makes steps of a BDI planner over connections of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from benchmarks.step import a_report, a_system
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc

CLIENTS = 2
THREADS = 6
KINDS = {"two workers": ("2", None), "one process": ("1", None), "one process on one core": ("1", {0})}


@contextmanager
def server(workers: str, pinned: set[int] | None) -> Iterator[str]:
    """A server without a log; its address."""

    def pin() -> None:
        if pinned is not None:
            os.sched_setaffinity(0, pinned)

    process = subprocess.Popen(
        [sys.executable, "-m", "plannerd", "serve", "--port", "0", "--workers", workers, "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=pin,  # noqa: PLW1509 - this process has no other threads yet
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)


def steps(target: str, name: str, calls: int) -> None:
    """Make steps of one invocation over a connection of its own."""
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        planner = planner_pb2_grpc.PlannerServiceStub(channel)
        started = planner.Init(a_system(name, calls))
        first = planner_pb2.FirstActionRequest(invocation_id=name, base=started.position)
        first.scope.set["request"].string_value = "r"
        reply = planner_pb2.NextActionResponse(step=planner.FirstAction(first).step)
        for _ in range(calls):
            reply = planner.NextAction(a_report(reply, name))
        planner.End(planner_pb2.EndRequest(invocation_id=name))


def load(target: str, name: str, calls: int) -> None:
    """One client process: several connections at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda number: steps(target, f"{name}-{number}", calls), range(THREADS)))


def measure(kind: str, calls: int) -> float:
    """Steps a second with one kind of server."""
    with server(*KINDS[kind]) as target:
        load(target, "warm", 20)
        started = time.perf_counter()
        clients = [
            subprocess.Popen([sys.executable, "-m", "benchmarks.workers", target, f"c{number}", str(calls)])
            for number in range(CLIENTS)
        ]
        for client in clients:
            if client.wait() != 0:
                raise RuntimeError("a client failed")
        return CLIENTS * THREADS * calls / (time.perf_counter() - started)


def run(rounds: int, calls: int) -> None:
    """Measure and print a table."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, rates in found.items():
            rates.append(measure(kind, calls))
    print(f"Steps of {CLIENTS * THREADS} clients at once, {os.cpu_count()} cores for all; {rounds} interleaved rounds.")
    for other in ("one process", "one process on one core"):
        ratios = sorted(a / b for a, b in zip(found["two workers"], found[other], strict=True))
        print(
            f"  two workers / {other:<24} {statistics.median(ratios):.2f}   "
            f"(rounds from {ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2], int(sys.argv[3]))
