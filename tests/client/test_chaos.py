"""Whatever gets lost, runs end as if nothing had: the real engine, with faults between it and the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

import plannerd.errors
from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.models import DecisionModels
from plannerd.invocations.engine import Engine
from plannerd.invocations.stores import MemoryBounds, MemoryStore
from plannerd.services.codec.replies import encode_step
from plannerd.services.context import CallContext
from plannerd.services.failures import CODES
from plannerd.services.planner_service import PlannerService
from plannerd_client import (
    AgentContext,
    Bdi,
    Desire,
    PlannerdError,
    RetryPolicy,
    Router,
    RunResult,
    RunStatus,
    Scheduler,
    Snapshot,
    agent,
    human,
)
from plannerd_protos.planner.v1 import planner_pb2
from tests.client.world import World, unreachable

NO_FAULT, REQUEST_LOST, REPLY_LOST, SERVER_LOST, OTHER_REPLICA = "none", "request", "reply", "server", "replica"
PATIENT = RetryPolicy(attempts=1000, total=1e9, jitter=0.0)


class Engines:
    """Two replicas without a store, reached over a line that loses things, and replaced by empty ones now and then."""

    def __init__(self, faults: list[str]) -> None:
        self._faults = list(faults)
        self._service, self._other = self._new(), self._new()

    @staticmethod
    def _new() -> PlannerService:
        model = FixedModel({"defaults": {"yes_no": 0.9, "scale": 3}})
        engine = Engine(DecisionModels({"fixed": model}), MemoryStore(MemoryBounds(), lambda: 0.0), encode_step)
        return PlannerService(engine, version="test", max_request_bytes=1 << 20, retained_seconds=60.0)

    def answer(self, method: str, request: Message) -> Message:
        fault = self._faults.pop(0) if self._faults else NO_FAULT
        if fault == SERVER_LOST:
            self._service = self._new()
        if fault == OTHER_REPLICA:
            self._service, self._other = self._other, self._service
        if fault == REQUEST_LOST:
            raise unreachable()
        reply = asyncio.run(self._answer(method, request))
        if fault == REPLY_LOST:
            raise unreachable()
        return reply

    async def _answer(self, method: str, request: Message) -> Message:
        try:
            reply: Any = await getattr(self._service, method)(request, CallContext())
        except plannerd.errors.PlannerdError as error:
            kind = PlannerdError.by_reason[error.reason.value]
            raise kind(error.message, code=grpc.StatusCode[CODES[error.reason].name]) from None
        return planner_pb2.NextActionResponse.FromString(reply) if isinstance(reply, bytes) else reply


class CrashedError(Exception):
    """The client's process died."""


class System:
    """A planner with agents of every kind, all of which note when they run."""

    def __init__(self, planner: Any, expected: Any) -> None:
        self.runs: Counter[str] = Counter()
        self.calls: set[tuple[str, str]] = set()
        self.expected = expected
        self.agents = [
            self._agent("one", lambda request: f"1{request}", ["request"]),
            self._agent("later", lambda request: f"L{request}", ["request"], async_=True),
            human("ask", output_key="ask", arguments=["request"]),
            self._agent("last", lambda one, later: f"{one}{later}", ["one", "later"]),
        ]
        self.planner = planner(self.agents)

    def _agent(self, name: str, function: Callable[..., str], reads: list[str], **options: Any) -> Any:
        def work(context: AgentContext) -> str:
            self.runs[name] += 1
            self.calls.add((name, context.call_id))
            return function(*(context.scope[key] for key in reads))

        made = agent(name=name, output_key=name, **options)(work)
        made.parameters = agent(name=name)(function).parameters
        made.bind = lambda values, context: lambda: made.function(context)  # type: ignore[method-assign]
        return made

    def run(self, world: World, **options: Any) -> RunResult:
        return world.run(
            self.agents, planner=self.planner, retry=PATIENT, output_key="last", output_type=dict, **options
        )


def scheduler() -> System:
    return System(lambda agents: Scheduler(goal="g", goal_threshold=0.95, activation_threshold=0.1), "1xLx")


def bdi() -> System:
    return System(lambda agents: Bdi([Desire(name="d", agents=agents, achievable="request", satisfied="last")]), "1xLx")


def router() -> System:
    def planner(agents: list[Any]) -> Router:
        agents.pop()
        return Router(activation_threshold=0.5)

    return System(planner, {"one": "1x", "later": "Lx", "ask": "yes"})


systems = st.sampled_from([scheduler, bdi, router])
losses = st.lists(st.sampled_from([NO_FAULT, REQUEST_LOST, REPLY_LOST, SERVER_LOST]), max_size=30)
# The first step is spared: a reply to it that is lost while the invocation moves leaves a fork behind.
moves = st.lists(st.sampled_from([NO_FAULT, REPLY_LOST, OTHER_REPLICA]), max_size=30).map(
    lambda drawn: [NO_FAULT, NO_FAULT, *drawn]
)


def finish(system: System, world: World, result: RunResult) -> RunResult:
    """Answer the human, from the bytes of a snapshot."""
    assert result.status is RunStatus.SUSPENDED
    assert result.snapshot is not None
    snapshot = Snapshot.loads(result.snapshot.dumps())
    return system.run(world, resume=snapshot, answers={snapshot.suspensions[0].response_id: "yes"})


@settings(max_examples=150, deadline=None)
@given(systems, losses | moves, st.booleans())
def test_no_fault_makes_an_agent_run_twice(make: Callable[[], System], drawn: list[str], batch: bool) -> None:
    """However many requests, replies and servers are lost: the result is right, and every agent ran once."""
    system = make()
    world = World(Engines(drawn), batch=batch)  # type: ignore[arg-type]
    result = finish(system, world, system.run(world, arguments={"request": "x"}))
    assert result.result == system.expected
    assert set(system.runs.values()) == {1}


@settings(max_examples=150, deadline=None)
@given(systems, losses, st.lists(st.integers(1, 12), max_size=3))
def test_a_crash_costs_only_what_was_running(make: Callable[[], System], drawn: list[str], crashes: list[int]) -> None:
    """A client that dies and goes on from what it persisted ends with the same result; calls keep their ids.

    Outputs that were persisted are not made again: with one crash no agent runs more than twice.
    """
    system = make()
    engines = Engines(drawn)
    persisted: list[bytes] = []
    fuses = list(crashes)

    def persist(snapshot: Snapshot) -> None:
        persisted.append(snapshot.dumps())
        if fuses:
            fuses[0] -= 1
            if fuses[0] == 0:
                fuses.pop(0)
                raise CrashedError

    def run(**options: Any) -> RunResult:
        # A crash takes the world with it; faults go on where they were.
        return system.run(World(engines), on_snapshot=persist, **options)  # type: ignore[arg-type]

    options: dict[str, Any] = {"arguments": {"request": "x"}}
    result: RunResult | None = None
    while result is None or result.status is not RunStatus.COMPLETED:
        with contextlib.suppress(CrashedError):
            result = run(**options)
        resume = Snapshot.loads(persisted[-1])
        options = {"resume": resume, "answers": {one.response_id: "yes" for one in resume.suspensions}}
    assert result.result == system.expected
    assert all(count <= 1 + len(crashes) for count in system.runs.values())
