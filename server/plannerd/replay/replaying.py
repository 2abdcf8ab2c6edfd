"""The replay: each recorded request is made again, and its answer held against the recorded one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from plannerd.decisions.models import DecisionModels
from plannerd.errors import PlannerdError
from plannerd.invocations.definitions import Definitions
from plannerd.invocations.engine import Engine, EngineLimits
from plannerd.invocations.scope import ScopeLimits
from plannerd.invocations.stores import MemoryBounds, MemoryStore
from plannerd.planners.registry import Registry
from plannerd.replay.differences import (
    action_of,
    by_name,
    init_differences,
    outcome_of,
    questions_differ,
    step_differences,
)
from plannerd.replay.model import RecordedModel
from plannerd.replay.recording import Exchange, Recording
from plannerd.services.codec.configuration import InitLimits
from plannerd.services.codec.replies import encode_step
from plannerd.services.context import CallContext
from plannerd.services.planner_service import PlannerService
from plannerd_protos.planner.v1 import planner_pb2, step_pb2

_MANY = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of one recorded request.

    Attributes:
        line: where it stands in the recording.
        method: which request it is.
        summary: what the step does now: its action and outcome.
        differences: in words; none means the same.
        last: nothing after it can be replayed.
    """

    line: int
    method: str
    summary: str
    differences: tuple[str, ...] = ()
    last: bool = False


async def replay(recording: Recording, planners: Registry) -> AsyncIterator[Replayed]:
    """Make each request of a recording again; the answers of the model are those of the recording.

    Stops after a step that calls other agents than the recorded one: what was recorded then belongs to others.

    Args:
        recording: what to replay.
        planners: those that there are.
    """
    invocation: _Invocation | None = None
    for exchange in recording:
        if exchange.method == "Init":
            # Each Init has a replica of its own: it must be enough to go on, and what follows it is known.
            invocation = _Invocation(exchange, planners)
        if invocation is None:
            yield Replayed(exchange.line, exchange.method, "", ("comes before any Init; record runs as a whole",), True)
            return
        replayed = await invocation.make(exchange)
        yield replayed
        if replayed.last:
            return


class _Invocation:
    """A replica with nothing in it, whose branches and model are those of the recording."""

    def __init__(self, init: Exchange, planners: Registry) -> None:
        self._model = RecordedModel()
        branch: str = init.reply.position.branch
        engine = Engine(
            DecisionModels({init.reply.model or "recorded": self._model}),
            MemoryStore(MemoryBounds(), time.monotonic),
            encode_step,
            EngineLimits(max_reply_bytes=_MANY, scope=ScopeLimits(_MANY, _MANY)),
            definitions=Definitions(planners),
            new_branch=lambda: branch,
        )
        self._service = PlannerService(
            engine,
            InitLimits(_MANY, _MANY, _MANY),
            version="replay",
            max_request_bytes=_MANY,
            retained_seconds=_MANY,
        )

    async def make(self, exchange: Exchange) -> Replayed:
        """Make one request."""
        try:
            if exchange.method == "Init":
                return await self._init(exchange)
            return await self._step(exchange)
        except PlannerdError as error:
            return Replayed(exchange.line, exchange.method, "", self._refused(error), True)

    async def _init(self, exchange: Exchange) -> Replayed:
        request = planner_pb2.InitRequest()
        request.CopyFrom(exchange.request)
        request.decision.model = ""  # the recording is the only model
        request.decision.split = False  # and it takes any number of questions
        request.max_reply_bytes = 0
        request.explain = planner_pb2.EXPLAIN_LEVEL_FULL
        reply = await self._service.Init(request, CallContext())
        differences = tuple(init_differences(exchange.reply, reply))
        return Replayed(exchange.line, "Init", f"{request.WhichOneof('planner')}", differences)

    async def _step(self, exchange: Exchange) -> Replayed:
        was: step_pb2.Step = exchange.reply.step
        problem = _unusable(was)
        if problem:
            return Replayed(exchange.line, exchange.method, "", (problem,), True)
        self._model.load(was.explanation.decisions)
        make: Any = self._service.FirstAction if exchange.method == "FirstAction" else self._service.NextAction
        now = planner_pb2.NextActionResponse.FromString(await make(exchange.request, CallContext())).step
        differences = tuple(step_differences(was, now))
        other = action_of(was) != action_of(now)
        return Replayed(exchange.line, exchange.method, f"{outcome_of(now)}: {action_of(now)}", differences, other)

    def _refused(self, error: PlannerdError) -> tuple[str, ...]:
        if self._model.missing:
            was, now = by_name(self._model.recorded), by_name(self._model.missing)
            asked = {name: question for name, question in was.items() if name in now}
            return ("asks what was not recorded, so there is no answer", *questions_differ(asked, now))
        return (f"is refused with {error.reason.value}: {error.message}",)


def _unusable(step: step_pb2.Step) -> str:
    """Why a recorded step can't be replayed; empty if it can."""
    explanation = step.explanation
    if explanation.shortened:
        return "its explanation was shortened to fit the client's limit, so the answers are missing"
    if any(not record.answers for record in explanation.decisions):
        return "the recording has no answers of the model: record with explain='full'"
    return ""
