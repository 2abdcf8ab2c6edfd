"""What a step says of its decisions, over real connections."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf.json_format import MessageToDict

from plannerd.decisions.answers import Answer, DecisionResponse, Refusal, ScaleAnswer, Truncation, Usage, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import DecisionRequest, YesNo
from plannerd.services.decision_service import DecisionModelService
from plannerd.transport.catalogue import catalogue
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc, step_pb2
from tests.support.builders import agent, cascade, output, router, scheduler, scope_update
from tests.support.engine import Server
from tests.support.errors import seen
from tests.support.servers import ServerProcess
from tests.support.services import serving

SYSTEM: Final = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "ticket", writes="advice"))
LONG: Final = "the printer in the hall is on fire again and nobody knows why " * 200
FULL: Final = planner_pb2.EXPLAIN_LEVEL_FULL
HANGS: Final = 30.0


class TalkativeModel:
    """A model that says all there is to say: usage, retries, confidence, another name each time it is told one."""

    provider: Final = "stub"
    repeatable: Final = True

    def __init__(self, questions: int | None = None) -> None:
        self.limits = ModelLimits(questions=questions)
        self.asked: list[DecisionRequest] = []
        self.name = "sage-1"
        self.truncation: Truncation | None = None

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        self.asked.append(request)
        return DecisionResponse(
            {
                question.name: YesNoAnswer(0.25, confidence=-3.5)
                if isinstance(question, YesNo)
                else ScaleAnswer(2.25, (0.0, 0.0, 0.75, 0.25), confidence=0.125)
                for question in request.questions
            },
            self.name,
            Usage(input_tokens=1200, output_tokens=7),
            retries=2,
            truncation=self.truncation,
        )

    async def close(self) -> None:
        """Nothing to release."""


class Caller:
    """A client that goes through one invocation over a channel."""

    def __init__(self, stub: planner_pb2_grpc.PlannerServiceAsyncStub, invocation_id: str = "i1") -> None:
        self.stub = stub
        self.invocation_id = invocation_id
        self.step = step_pb2.Step()

    async def begin(
        self, request: planner_pb2.InitRequest, ticket: str = "t1", state: step_pb2.ExecutionState | None = None
    ) -> step_pb2.Step:
        """Init, perhaps from a state, and FirstAction."""
        init = planner_pb2.InitRequest(invocation_id=self.invocation_id, state=state)
        init.MergeFrom(request)
        position = (await self.stub.Init(init, timeout=HANGS)).position
        first = planner_pb2.FirstActionRequest(
            invocation_id=self.invocation_id, base=position, scope=scope_update({"ticket": ticket})
        )
        self.step = (await self.stub.FirstAction(first, timeout=HANGS)).step
        return self.step

    async def answer(self, value: str = "x") -> step_pb2.Step:
        """Report every live call as answered."""
        results = [output(call.id, value) for call in self.step.calls]
        request = planner_pb2.NextActionRequest(
            invocation_id=self.invocation_id, base=self.step.position, results=results
        )
        self.step = (await self.stub.NextAction(request, timeout=HANGS)).step
        return self.step


@asynccontextmanager
async def served(model: Any) -> AsyncIterator[Caller]:
    """A real server in this process with this decision model."""
    server = Server(model)
    decisions = DecisionModelService(DecisionModels({"test": model}), 30.0)
    async with serving(*catalogue(server.service, decisions)) as running:
        yield Caller(running.planner)


@asynccontextmanager
async def embedded(plannerd: ServerProcess) -> AsyncIterator[Caller]:
    """The server that other tests use, too, with its embedded model."""
    async with grpc.aio.insecure_channel(plannerd.target) as channel:
        yield Caller(planner_pb2_grpc.PlannerServiceStub(channel), str(uuid.uuid4()))


def with_options(request: planner_pb2.InitRequest, **options: Any) -> planner_pb2.InitRequest:
    """`request` with a full explanation and options of its decisions."""
    made = planner_pb2.InitRequest(explain=FULL, decision=planner_pb2.DecisionOptions(**options))
    made.MergeFrom(request)
    return made


def codes(step: step_pb2.Step) -> list[str]:
    return [step_pb2.WarningCode.Name(warning.code).removeprefix("WARNING_CODE_") for warning in step.warnings]


async def test_a_record_says_everything() -> None:
    """The record of a decision has model, name, provider, questions, answers, usage, latency and retries."""
    async with served(TalkativeModel()) as caller:
        step = await caller.begin(with_options(SYSTEM))
    (record,) = step.explanation.decisions
    assert (record.model, record.resolved_model, record.provider) == ("test", "sage-1", "stub")
    assert [question.name for question in record.questions] == ["lookup", "expert", "goal"]
    assert [answer.question for answer in record.answers] == ["lookup", "expert", "goal"]
    assert MessageToDict(record.answers[0])["scale"] == {
        "mean": 2.25,
        "probabilities": [0.0, 0.0, 0.75, 0.25],
        "confidence": 0.125,
    }
    assert MessageToDict(record.answers[2])["yesNo"] == {"probability": 0.25, "confidence": -3.5}
    assert (record.usage.input_tokens, record.usage.output_tokens, record.retries) == (1200, 7, 2)
    assert record.input_digest
    assert not record.HasField("truncation")
    assert (record.part, record.parts) == (0, 0)


async def test_a_record_says_how_long_it_took(plannerd: ServerProcess) -> None:
    """The latency of a decision is more than nothing and no more than that of its step."""
    async with embedded(plannerd) as caller:
        step = await caller.begin(with_options(SYSTEM))
    (record,) = step.explanation.decisions
    assert 0 < record.latency.ToNanoseconds() <= step.explanation.duration.ToNanoseconds()


async def test_what_is_left_out_of_a_summary() -> None:
    """A summary has neither questions nor answers, and everything else."""
    async with served(TalkativeModel()) as caller:
        step = await caller.begin(SYSTEM)
    (record,) = step.explanation.decisions
    assert not record.questions
    assert not record.answers
    assert not record.input
    assert (record.resolved_model, record.usage.input_tokens, record.retries) == ("sage-1", 1200, 2)


async def test_parts_have_records_of_their_own() -> None:
    """Each part of a decision is a record with its place; what they used adds up."""
    async with served(TalkativeModel(questions=2)) as caller:
        step = await caller.begin(with_options(SYSTEM, split=True))
    records = step.explanation.decisions
    assert [[question.name for question in record.questions] for record in records] == [["lookup", "expert"], ["goal"]]
    assert [(record.part, record.parts) for record in records] == [(1, 2), (2, 2)]
    assert [record.usage.input_tokens for record in records] == [1200, 1200]
    assert len({record.input_digest for record in records}) == 1


async def test_a_refusal_is_recorded() -> None:
    """An answer that the model declined is in the record with its word for why."""

    class Declining(TalkativeModel):
        async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
            self.asked.append(request)
            answers: dict[str, Answer] = {
                "lookup": Refusal("not my job"),
                "expert": ScaleAnswer(0.0),
                "goal": YesNoAnswer(0.9),
            }
            return DecisionResponse(answers, "sage-1")

    async with served(Declining()) as caller:
        step = await caller.begin(with_options(SYSTEM))
    (record,) = step.explanation.decisions
    assert record.answers[0].refusal.message == "not my job"
    assert not record.usage.HasField("input_tokens")


# ---- the model that the thresholds belong to


async def test_another_model_than_expected() -> None:
    """Another model than the expected one is a warning that names both; with strict the step fails by its reason."""
    async with served(TalkativeModel()) as caller:
        step = await caller.begin(with_options(SYSTEM, expected_model="sage-0"))
        (warning,) = step.warnings
    assert codes(step) == ["MODEL_UNEXPECTED"]
    assert "'sage-0'" in warning.message
    assert "'sage-1'" in warning.message
    async with served(TalkativeModel()) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.begin(with_options(SYSTEM, expected_model="sage-0", strict=True))
    error = seen(caught.value)
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DECISION_MODEL_UNEXPECTED")
    assert (error.metadata["expected"], error.metadata["resolved"]) == ("sage-0", "sage-1")


@pytest.mark.parametrize("restored", [False, True], ids=["here", "restored"])
async def test_a_model_that_changes(restored: bool) -> None:
    """A model that names itself otherwise than before is a warning that names both, once, also after a restore."""
    model = TalkativeModel()
    async with served(model) as caller:
        step = await caller.begin(with_options(SYSTEM))
        assert codes(step) == []
        model.name = "sage-2"
        if not restored:
            step = await caller.answer()
    if restored:
        async with served(model) as other:
            assert codes(await other.begin(with_options(SYSTEM), state=step.state)) == []
            step = await other.answer()
    (warning,) = step.warnings
    assert codes(step) == ["MODEL_CHANGED"]
    assert "'sage-1'" in warning.message
    assert "'sage-2'" in warning.message
    assert [record.resolved_model for record in step.explanation.decisions] == ["sage-2"]


# ---- cut inputs


@pytest.mark.parametrize(
    "system",
    [SYSTEM, router(agent("lookup", "ticket"), agent("expert", "ticket"))],
    ids=["scheduler", "router"],
)
async def test_a_cut_input_is_said(system: planner_pb2.InitRequest, plannerd: ServerProcess) -> None:
    """What the embedded model did not read is said in the record, with sizes, and once as a warning."""
    async with embedded(plannerd) as caller:
        step = await caller.begin(with_options(system), ticket=LONG)
    (record,) = step.explanation.decisions
    cut = record.truncation
    (warning,) = step.warnings
    assert codes(step) == ["INPUT_TRUNCATED"]
    assert cut.original_chars >= len(LONG)
    assert 0 < cut.used_chars < cut.original_chars
    assert str(cut.original_chars) in warning.message
    assert str(cut.used_chars) in warning.message
    assert LONG[:20] not in warning.message


async def test_a_cut_input_of_a_grade_is_said(plannerd: ServerProcess) -> None:
    """The cascade says it, too, in the step that graded."""
    async with embedded(plannerd) as caller:
        await caller.begin(with_options(cascade(agent("small", "ticket"), agent("large", "ticket"))))
        step = await caller.answer(LONG)
    assert codes(step) == ["INPUT_TRUNCATED"]
    assert step.explanation.decisions[0].truncation.used_chars > 0


async def test_an_input_that_fits_is_not_warned_of(plannerd: ServerProcess) -> None:
    """Nothing is said where nothing was cut."""
    async with embedded(plannerd) as caller:
        step = await caller.begin(with_options(SYSTEM))
    assert codes(step) == []
    assert not step.explanation.decisions[0].HasField("truncation")
