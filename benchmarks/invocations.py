"""What live invocations take: memory for each, and what a step costs among many of them.

    python -m benchmarks invocations [--live 100000] [--rounds 7]

Each figure is of a process of its own, with an engine and a memory store as a server has them, and without a
network. Invocations have five agents and have made two steps. What is counted is the growth of the process's
resident memory. Steps are measured in rounds that alternate between a process with few live invocations and one
with many, so that a machine that slows down slows both; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.cancellations import resident_bytes
from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.models import DecisionModels
from plannerd.invocations.engine import Engine
from plannerd.invocations.stores import MemoryBounds, MemoryStore
from plannerd.services.codec.replies import encode_step
from plannerd.services.context import CallContext
from plannerd.services.planner_service import PlannerService
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import agent, bdi, desire, output, router, scheduler, scope_update

FEW: Final = 100
STEPS: Final = 1_000
CALL: Final = CallContext(identity="benchmark")

_NAMES: Final = ("fetch", "sort", "draft", "check", "send")
_AGENTS: Final = tuple(agent(name, "request", writes=f"{name}ed") for name in _NAMES)
_LONG: Final = _NAMES * 40

SYSTEMS: Final = {
    "bdi": bdi(
        *_AGENTS, desires=(desire("work", *_LONG, achievable="request", satisfied="never"),), max_invocations=100_000
    ),
    "scheduler": scheduler(*_AGENTS, arguments=("request",)),
    "router": router(*_AGENTS, arguments=("request",)),
}
ANSWERS: Final = {"defaults": {"yes_no": 0.55, "scale": 2.5}}


class Process:
    """The engine of a server, in this process."""

    def __init__(self, kind: str, scope_bytes: int) -> None:
        store = MemoryStore(MemoryBounds(max_invocations=10**7, max_bytes=10**12), time.monotonic)
        models = DecisionModels({"fixed": FixedModel(ANSWERS, remember=0)})
        self._service = PlannerService(
            Engine(models, store, encode_step), version="0", max_request_bytes=4 << 20, retained_seconds=3600
        )
        self._system = SYSTEMS[kind]
        self._scope_bytes = scope_bytes
        self._steps: dict[int, planner_pb2.NextActionResponse] = {}
        self._made = 0

    async def start(self, count: int, *, remember: bool = False) -> None:
        """Start invocations; those that are remembered can be stepped later."""
        for number in range(self._made, self._made + count):
            invocation_id = f"invocation-{number:08}"
            init = planner_pb2.InitRequest(invocation_id=invocation_id)
            init.MergeFrom(self._system)
            base = (await self._service.Init(init, CALL)).position
            scope = scope_update({"request": f"{number:08}".ljust(self._scope_bytes, "r")} if self._scope_bytes else {})
            first = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=base, scope=scope)
            step = planner_pb2.NextActionResponse.FromString(await self._service.FirstAction(first, CALL))
            self._steps[number] = step
            await self.step(number)
            if not remember:
                del self._steps[number]
            await asyncio.sleep(0)  # so that the event loop can forget timers of the past, as it does in a server
        self._made += count

    async def step(self, number: int) -> None:
        """One more step of a remembered invocation."""
        step = self._steps[number].step
        if step.calls:
            request = planner_pb2.NextActionRequest(
                invocation_id=f"invocation-{number:08}", base=step.position, results=[output(step.calls[0].id, "done")]
            )
            raw = await self._service.NextAction(request, CALL)
            self._steps[number] = planner_pb2.NextActionResponse.FromString(raw)


async def _serve(kind: str, scope_bytes: int) -> None:
    """Do what the lines of standard input say, and answer each by a line."""
    process = Process(kind, scope_bytes)
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        answer: dict[str, Any] = {}
        match command:
            case "start":
                await process.start(int(count))
            case "remember":
                await process.start(int(count), remember=True)
            case "step":
                longest = 0.0
                started = time.process_time()
                for number in range(int(count)):
                    before = time.perf_counter()
                    await process.step(number % FEW)
                    longest = max(longest, time.perf_counter() - before)
                answer = {"seconds": (time.process_time() - started) / int(count), "longest": longest}
            case "collect":
                before = time.perf_counter()
                gc.collect()
                answer = {"seconds": time.perf_counter() - before, "objects": len(gc.get_objects())}
        sys.stdout.write(json.dumps(answer | {"memory": resident_bytes(os.getpid())}) + "\n")
        sys.stdout.flush()


class Child:
    """Another process with an engine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, command: str, count: int = 0) -> dict[str, Any]:
        """Have it do something; its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} {count}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def _child(kind: str, scope_bytes: int) -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.invocations", kind, str(scope_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(60)


def bytes_each(kind: str, scope_bytes: int, live: int) -> tuple[float, dict[str, Any]]:
    """Resident bytes for each invocation, and what a full garbage collection among them takes."""
    with _child(kind, scope_bytes) as child:
        child.tell("start", 200)
        before = child.tell("collect")["memory"]
        child.tell("start", live)
        after = child.tell("collect")
    return (after["memory"] - before) / live, after


def step_ratio(live: int, rounds: int) -> tuple[list[float], list[float], float, float]:
    """CPU seconds of a step among FEW invocations and among `live`, by rounds; the longest step of each."""
    with _child("bdi", 1024) as few, _child("bdi", 1024) as many:
        children = (few, many)
        for child in children:
            child.tell("remember", FEW)
        many.tell("start", live - FEW)
        longest = [0.0, 0.0]
        seconds: tuple[list[float], list[float]] = ([], [])
        for round_number in range(rounds + 1):
            for place, child in enumerate(children):
                answer = child.tell("step", STEPS)
                if round_number:
                    seconds[place].append(answer["seconds"])
                    longest[place] = max(longest[place], answer["longest"])
    return seconds[0], seconds[1], longest[0], longest[1]


def run(live: int, rounds: int) -> None:
    """Measure and print."""
    print(f"{live} live invocations of five agents after two steps: resident memory for each")
    for kind, scope_bytes in (("bdi", 0), ("bdi", 1024), ("scheduler", 1024), ("router", 1024)):
        each, found = bytes_each(kind, scope_bytes, live)
        scope = f"{scope_bytes} bytes of scope" if scope_bytes else "no scope"
        print(
            f"  {kind:10} {scope:20} {each / 1024:6.2f} KB    a full collection: {found['seconds'] * 1e3:6.1f} ms, "
            f"{found['objects'] / live:.1f} objects each"
        )
    few, many, longest_few, longest_many = step_ratio(live, rounds)
    ratio = statistics.median(many) / statistics.median(few)
    ratios = sorted(b / a for a, b in zip(few, many, strict=True))
    print(f"one step among {live} invocations next to one among {FEW}:")
    print(f"  CPU time: {ratio:.2f}   (rounds from {ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"  the longest of {rounds * STEPS}: {longest_many * 1e3:.1f} ms next to {longest_few * 1e3:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("scope_bytes", type=int)
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.kind, arguments.scope_bytes))
