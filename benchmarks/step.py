"""What one planning step costs, by a unary call and over the stream Run, next to an empty unary call.

    python -m benchmarks step [--rounds 7] [--calls 400]

All are served by the same process and carry the same bytes in both directions. Rounds of them are interleaved, so
that a machine that slows down slows all; what is reported are ratios of medians. The server's own cost is read
from the operating system as CPU time of its process, so that the client does not count there.
"""

from __future__ import annotations

import os
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planner_pb2_grpc, planners_pb2, value_pb2

SCOPE_BYTES = 1024
AGENTS = 5


@dataclass(frozen=True, slots=True)
class Round:
    """One round: seconds a call as the client saw it (median), and CPU seconds of the server a call."""

    wall: float
    cpu: float


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def benchmark_server() -> Iterator[tuple[int, str, str]]:
    """The process id of a server, and the addresses of plannerd and of the bare echo in it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        ports = process.stdout.readline().split()
        yield process.pid, f"127.0.0.1:{int(ports[0])}", f"127.0.0.1:{int(ports[1])}"
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(30)


def a_system(invocation_id: str, steps: int) -> planner_pb2.InitRequest:
    """A BDI system of five agents whose intention goes on for `steps` steps, without any decision model."""
    agents = [
        agent_pb2.Agent(
            name=f"agent-{position}",
            arguments=[agent_pb2.Argument(name="request")],
            output_key=f"output-{position}",
        )
        for position in range(AGENTS)
    ]
    desire = planners_pb2.Desire(
        name="answer",
        achievable=agent_pb2.Condition(present_key="request"),
        satisfied=agent_pb2.Condition(present_key="never"),
        agent_types=[f"agent-{position % AGENTS}" for position in range(steps + 1)],
    )
    config = planners_pb2.BdiConfig(desires=[desire], max_invocations=steps + 1)
    return planner_pb2.InitRequest(invocation_id=invocation_id, bdi=config, agents=agents)


def a_report(step: planner_pb2.NextActionResponse, invocation_id: str) -> planner_pb2.NextActionRequest:
    """The report of the running call, with a kilobyte of the scope changed."""
    changed = value_pb2.ScopeUpdate(set={"request": value_pb2.Value(string_value="r" * SCOPE_BYTES)})
    output = planner_pb2.Output(withheld=planner_pb2.Withheld())
    result = planner_pb2.AgentResult(call_id=step.step.calls[0].id, output=output)
    return planner_pb2.NextActionRequest(
        invocation_id=invocation_id, base=step.step.position, scope=changed, results=[result]
    )


def timed(pid: int, calls: int, call: Callable[[], None]) -> Round:
    """One round of `calls` calls, one at a time."""
    walls = []
    before = cpu_seconds(pid)
    for _ in range(calls):
        started = time.perf_counter()
        call()
        walls.append(time.perf_counter() - started)
    return Round(statistics.median(walls), (cpu_seconds(pid) - before) / calls)


class OverRun:
    """A stream Run to which requests are given one by one."""

    def __init__(self, planner: planner_pb2_grpc.PlannerServiceStub) -> None:
        self._requests: queue.SimpleQueue[planner_pb2.RunRequest | None] = queue.SimpleQueue()
        self._responses = planner.Run(iter(self._requests.get, None))

    def ask(self, request: planner_pb2.RunRequest) -> planner_pb2.RunResponse:
        """The answer to one request."""
        self._requests.put(request)
        return next(self._responses)

    def close(self) -> None:
        """Send no more, and see the end."""
        self._requests.put(None)
        list(self._responses)


def run(rounds: int, calls: int) -> None:
    """Measure and print a table."""
    unary: list[Round] = []
    streamed: list[Round] = []
    empty: list[Round] = []
    sizes = (0, 0)
    with (
        benchmark_server() as (pid, address, floor_address),
        grpc.insecure_channel(address) as channel,
        grpc.insecure_channel(floor_address) as floor_channel,
    ):
        planner = planner_pb2_grpc.PlannerServiceStub(channel)
        echo = cast("Callable[[bytes], bytes]", floor_channel.unary_unary("/benchmark.Floor/Echo"))
        for round_number in range(rounds + 1):
            invocation_id = f"round-{round_number}"
            started = planner.Init(a_system(invocation_id, 2 * calls))
            first = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=started.position)
            first.scope.set["request"].string_value = "r" * SCOPE_BYTES
            reply = planner_pb2.NextActionResponse(step=planner.FirstAction(first).step)
            stream = OverRun(planner)

            def one_step(invocation_id: str = invocation_id) -> None:
                nonlocal reply
                reply = planner.NextAction(a_report(reply, invocation_id))

            def one_over_run(invocation_id: str = invocation_id, stream: OverRun = stream) -> None:
                nonlocal reply
                request = planner_pb2.RunRequest(id=1, next_action=a_report(reply, invocation_id))
                reply = stream.ask(request).next_action

            by_unary = timed(pid, calls, one_step)
            over_run = timed(pid, calls, one_over_run)
            stream.close()
            sizes = (a_report(reply, invocation_id).ByteSize(), reply.ByteSize())
            payload = (sizes[1].to_bytes(4, "big") + bytes(sizes[1])).ljust(sizes[0], b"\0")

            def one_echo(payload: bytes = payload) -> None:
                echo(payload)

            floor = timed(pid, calls, one_echo)
            if round_number:  # the first round warms up
                unary.append(by_unary)
                streamed.append(over_run)
                empty.append(floor)
            planner.End(planner_pb2.EndRequest(invocation_id=invocation_id))
    print(f"One NextAction (BDI, {AGENTS} agents, {sizes[0]} bytes up, {sizes[1]} down, one call in flight) next to an")
    print(f"empty unary call of the same process; medians of {rounds} rounds of {calls} calls each.\n")
    for name, first_kind, second_kind in (
        ("unary step / empty call", unary, empty),
        ("step over Run / empty call", streamed, empty),
        ("step over Run / unary step", streamed, unary),
    ):
        _row(name, "latency seen by the client", [r.wall for r in first_kind], [r.wall for r in second_kind])
        _row(name, "CPU time of the server", [r.cpu for r in first_kind], [r.cpu for r in second_kind])


def _row(name: str, what: str, some: list[float], others: list[float]) -> None:
    ratio = statistics.median(some) / statistics.median(others)
    ratios = sorted(a / b for a, b in zip(some, others, strict=True) if b)
    print(f"{name:<27} {what:<27} {ratio:.2f}   (rounds from {ratios[0]:.2f} to {ratios[-1]:.2f})")
