"""Calls that are cancelled at random, by tens of thousands, against a real server.

    python -m benchmarks cancellations [--cancel 50000] [--seed 1]

Many invocations of all planners go their way at the same time. Before a request is answered it is sent several
times and given up at a random moment: at once, before it is decided, while a decision model thinks, after the
step was committed; by the client, or by a deadline. At the end

- every invocation went exactly the way of an undisturbed one: same steps, same calls, same result;
- the server's memory did not grow after the warm-up;
- its log has at most one line for each call, and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
import yaml

from benchmarks.slow_server import SLOWEST
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc, step_pb2
from tests.support.builders import agent, bdi, cascade, desire, output, router, scheduler, scope_update
from tests.support.servers import ServerProcess, running_server

HANGS: Final = 60.0
"""Seconds after which a call that nobody cancels counts as stuck."""

AT_ONCE: Final = 16
"""Invocations at the same time."""

SAMPLES: Final = 50
"""How often the server's memory is looked at."""

CHANNELS: Final = 4

SYSTEMS: Final[Mapping[str, planner_pb2.InitRequest]] = {
    "scheduler": scheduler(
        agent("lookup", "ticket", writes="facts"),
        agent("expert", "facts", writes="advice"),
        agent("writer", "advice", writes="reply"),
        output_key="reply",
    ),
    "router": router(*(agent(name, "ticket") for name in ("billing", "shipping", "returns")), threshold=None),
    "fan-out": router(*(agent(name, "ticket") for name in ("billing", "shipping", "returns"))),
    "cascade": cascade(*(agent(name, "ticket") for name in ("small", "medium", "large"))),
    "bdi": bdi(
        agent("look", writes="seen"),
        agent("act", writes="acted"),
        desires=(desire("work", "look", "act", "look", "act", achievable="ticket", satisfied="finished"),),
    ),
}
"""One system for each way to plan."""

ANSWERS: Final = {
    "rules": {
        "lookup": 3, "expert": 3, "writer": 3, "goal": 1.0, "decision-agent": "shipping",
        "billing": 0.9, "shipping": 0.1, "returns": 0.8, "answer-accepted": 0.1,
    },
}  # fmt: skip
"""What the decision model answers, always."""

SCOPE: Final = {"ticket": "order 70125 was meant to come tuesday"}

Trace: TypeAlias = tuple[object, ...]
Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(slots=True)
class Report:
    """What happened.

    Attributes:
        sent: calls that were made.
        cancelled: those of them that their client cancelled.
        overdue: those whose deadline passed.
        invocations: that went their way to the end.
        unlike: those that went another way than an undisturbed one, by planner.
        memory: the server's resident memory in bytes, at regular intervals.
        lines: of the log, by event and code.
        noise: lines of the log that should not be there.
    """

    sent: int = 0
    cancelled: int = 0
    overdue: int = 0
    invocations: int = 0
    unlike: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    noise: list[str] = field(default_factory=list)

    @property
    def given_up(self) -> int:
        """Calls that were given up on, by whomever."""
        return self.cancelled + self.overdue

    @property
    def answered(self) -> int:
        """Calls whose answer their client saw."""
        return self.sent - self.given_up

    @property
    def unheard(self) -> int:
        """Calls that the server answered while their client was gone: their steps were committed."""
        return max(0, self.lines["OK"] - self.answered)

    @property
    def growth(self) -> float:
        """The memory of the last fifth next to that of the second fifth."""
        fifth = max(1, len(self.memory) // 5)
        return statistics.median(self.memory[-fifth:]) / statistics.median(self.memory[fifth : 2 * fifth])


class Tester:
    """Drives invocations and gives up on their calls.

    Args:
        stubs: of the server, each with a connection of its own.
        report: is filled in.
        seed: of everything that is random here.
    """

    def __init__(self, stubs: list[planner_pb2_grpc.PlannerServiceAsyncStub], report: Report, seed: int) -> None:
        self._stubs = itertools.cycle(stubs)
        self._report = report
        self._random = random.Random(seed)

    async def walk(self, kind: str, invocation_id: str, *, disturbed: bool) -> Trace:
        """One invocation from Init to End; what it went through, without ids that differ each time."""
        stub = next(self._stubs)
        init = planner_pb2.InitRequest(invocation_id=invocation_id)
        init.MergeFrom(SYSTEMS[kind])
        base = (await self._call(stub.Init, init, disturbed=disturbed)).position
        first = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=base, scope=scope_update(SCOPE))
        step = (await self._call(stub.FirstAction, first, disturbed=disturbed)).step
        trace: list[object] = [_seen(step)]
        while step.calls:
            if disturbed:
                await self._look(stub, invocation_id, step)
            # One result at a time, the last call first, so that parallel ones come back in another order.
            report = output(step.calls[-1].id, f"of {step.calls[-1].agent_id}")
            request = planner_pb2.NextActionRequest(invocation_id=invocation_id, base=step.position, results=[report])
            step = (await self._call(stub.NextAction, request, disturbed=disturbed)).step
            trace.append(_seen(step))
        await self._call(
            stub.End, planner_pb2.EndRequest(invocation_id=invocation_id, base=step.position), disturbed=disturbed
        )
        return tuple(trace)

    async def _look(
        self, stub: planner_pb2_grpc.PlannerServiceAsyncStub, invocation_id: str, step: step_pb2.Step
    ) -> None:
        """Now and then: the invocation is where its client believes it to be."""
        if self._random.random() < 0.2:
            request = planner_pb2.ExecutionStateRequest(invocation_id=invocation_id)
            there = (await self._call(stub.ExecutionState, request, disturbed=True)).step
            assert there == step, f"{invocation_id} is somewhere else"

    async def _call(self, method: Callable[..., Any], request: Request, *, disturbed: bool) -> Any:
        """Send a request, give it up some times, and then wait for the answer."""
        for _ in range(self._random.choice((0, 1, 3, 6, 10)) if disturbed else 0):
            reply = await self._give_up(method, request)
            if reply is not None:
                return reply
        self._report.sent += 1
        return await method(request, timeout=HANGS)

    async def _give_up(self, method: Callable[..., Any], request: Request) -> Any | None:
        """Send a request and give it up at a random moment; the answer, if it was there before."""
        self._report.sent += 1
        moment = self._random.choice((0.0, 0.006, 0.02, SLOWEST, 1.5 * SLOWEST)) * self._random.random()
        if self._random.random() < 0.3:
            try:
                return await method(request, timeout=max(moment, 0.0005))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                self._report.overdue += 1
                return None
        call = method(request)
        if moment:
            # An answered call is not cancelled by this; nothing is lost by waiting a little longer than needed.
            asyncio.get_running_loop().call_later(moment, call.cancel)
        else:
            call.cancel()
        try:
            return await call
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            self._report.cancelled += 1
            return None


def _seen(step: step_pb2.Step) -> object:
    """What a client sees of a step, without what differs from one invocation to the next."""

    def place(call_id: str) -> str:
        return call_id.partition(".")[2]

    calls = tuple((place(call.id), call.agent_id, call.status) for call in step.calls)
    ending = str(step.action).replace(step.position.branch, "branch")
    return step.position.epoch, step.position.revision, step.action.WhichOneof("kind"), calls, ending


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def _drive(server: ServerProcess, report: Report, calls: int, seed: int) -> None:
    async with _stubs(server.target) as stubs:
        tester = Tester(stubs, report, seed)
        undisturbed = {kind: await tester.walk(kind, f"undisturbed-{kind}", disturbed=False) for kind in SYSTEMS}
        numbers = itertools.count()

        async def invocations() -> None:
            for number in numbers:
                if report.given_up >= calls:
                    return
                kind = tuple(SYSTEMS)[number % len(SYSTEMS)]
                trace = await tester.walk(kind, f"{kind}-{number}", disturbed=True)
                report.invocations += 1
                report.unlike[kind] += trace != undisturbed[kind]
                while len(report.memory) < SAMPLES * min(1.0, report.given_up / calls):
                    report.memory.append(resident_bytes(server.process.pid))

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(invocations())


@asynccontextmanager
async def _stubs(target: str) -> AsyncIterator[list[planner_pb2_grpc.PlannerServiceAsyncStub]]:
    channels = [grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(CHANNELS)]
    try:
        yield [planner_pb2_grpc.PlannerServiceStub(channel) for channel in channels]
    finally:
        for channel in channels:
            await channel.close()


_EXPECTED: Final = ("serving", "stopping", "stopped")


def _read_log(text: str, report: Report) -> None:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            report.noise.append(line)
            continue
        match event:
            case {"event": "call", "code": "OK" | "CANCELLED" | "DEADLINE_EXCEEDED" as code}:
                report.lines[code] += 1
            case {"event": "stopped", "calls_cut": cut} if cut:
                report.noise.append(line)
            case {"event": event_name} if event_name in _EXPECTED:
                pass
            case _:
                report.noise.append(line)


def measure(calls: int, seed: int = 1) -> Report:
    """Start a server, give up on `calls` calls, and stop it.

    Args:
        calls: how many.
        seed: of everything that is random.
    """
    report = Report()
    with tempfile.TemporaryDirectory(prefix="plannerd-") as folder:
        answers = Path(folder) / "answers.yaml"
        answers.write_text(yaml.safe_dump(ANSWERS), "utf-8")
        config = {
            "decisions": {"models": {"slow": {"provider": "fixed", "file": str(answers)}}},
            # What is left of ended invocations must not look like a leak.
            "limits": {"tombstone_seconds": 1},
        }
        with running_server(config=config, module="benchmarks.slow_server") as server:
            asyncio.run(_drive(server, report, calls, seed))
            server.stop()
            _read_log(server.log(), report)
    return report


def problems(report: Report) -> Iterator[str]:
    """What is wrong, a sentence each."""
    for kind, count in report.unlike.items():
        if count:
            yield f"{count} invocations of {kind} went another way than an undisturbed one"
    if report.noise:
        yield f"the log has {len(report.noise)} lines that should not be there, the first is: {report.noise[0]}"
    if sum(report.lines.values()) > report.sent:
        yield f"the log has {sum(report.lines.values())} lines for {report.sent} calls"


def run(calls: int, seed: int) -> bool:
    """Measure, print, and say whether everything was as it should be."""
    report = measure(calls, seed)
    fifth = max(1, len(report.memory) // 5)
    print(
        f"{report.sent} calls of {report.invocations} invocations of all planners, {AT_ONCE} at a time (seed {seed}):"
    )
    print(f"  cancelled by their client     {report.cancelled:8}")
    print(f"  overdue                       {report.overdue:8}")
    print(f"  answered                      {report.answered:8}")
    print(f"  committed, but nobody heard   {report.unheard:8}   (answered by the server, given up by the client)")
    print(f"lines of the log                {sum(report.lines.values()):8}   {dict(sorted(report.lines.items()))}")
    print("resident memory of the server, medians of fifths (MB): ", end="")
    print(
        "  ".join(f"{statistics.median(report.memory[at : at + fifth]) / 1e6:.1f}" for at in range(0, SAMPLES, fifth))
    )
    print(f"last fifth / second fifth       {report.growth:8.3f}")
    found = list(problems(report))
    print(
        "\n".join(found)
        if found
        else "every invocation went exactly the way of an undisturbed one; no noise in the log"
    )
    return not found
