"""A decision in several requests: side by side, a few at a time, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from plannerd.decisions.answers import DecisionResponse, Truncation, Usage, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import DecisionRequest, Field, YesNo
from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.decider import Decider
from plannerd.invocations.explanation import ExplainLevel
from plannerd.invocations.record import InvocationOptions
from plannerd.planners.moves import WarningCode
from tests.support.engine import Clock
from tests.support.models import settle

SPLIT: Final = InvocationOptions(split=True)


class PartsModel:
    """A model that takes one question at a time, and waits with each until the test lets it go."""

    provider: Final = "stub"
    repeatable: Final = True
    limits: Final = ModelLimits(questions=1)

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.running: dict[str, asyncio.Future[None]] = {}
        self.seen: list[str] = []
        self.cancelled: list[str] = []
        self.timeouts: list[float | None] = []
        self.name: Callable[[str], str] = lambda question: "parts-1"
        self.truncation: Truncation | None = None

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        (question,) = request.questions
        self.seen.append(question.name)
        self.timeouts.append(timeout)
        gate = self.running[question.name] = asyncio.get_running_loop().create_future()
        try:
            await gate
        except asyncio.CancelledError:
            self.cancelled.append(question.name)
            raise
        finally:
            del self.running[question.name]
        number = int(question.name[1:])
        return DecisionResponse(
            {question.name: YesNoAnswer(number / 1000)},
            self.name(question.name),
            Usage(number, None if number % 2 else 1),
            retries=number,
            truncation=self.truncation,
        )

    async def close(self) -> None:
        """Nothing to release."""

    async def finish(self, name: str, error: Exception | None = None) -> None:
        """Let a part be answered, or fail."""
        gate = self.running[name]
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)
        await settle()

    async def finish_all(self) -> None:
        """Let all parts be answered, whichever are running."""
        while self.running:
            await self.finish(next(iter(self.running)))


def request(count: int) -> DecisionRequest:
    return DecisionRequest((Field("ticket", "t1"),), tuple(YesNo(f"q{i}", "Is it?") for i in range(1, count + 1)))


def decider(
    model: PartsModel, options: InvocationOptions = SPLIT, *, timeout: float = 3600.0, at_once: int = 4
) -> Decider:
    models = DecisionModels({"m": model})
    return Decider(models, models.get(), options, timeout, model.clock, parts_at_once=at_once)


async def test_parts_side_by_side_a_few_at_a_time() -> None:
    """As many parts as allowed are asked at once, and the next one as soon as any is answered."""
    model = PartsModel()
    task = asyncio.create_task(decider(model, at_once=3).ask(request(6)))
    await settle()
    assert model.seen == ["q1", "q2", "q3"]
    await model.finish("q2")
    assert model.seen == ["q1", "q2", "q3", "q4"]
    await model.finish_all()
    assert len(await task) == 6
    assert len(model.seen) == 6


async def test_answers_and_records_in_the_order_of_the_questions() -> None:
    """However the parts come back, answers and records are in the order of the questions, each with its own facts."""
    model = PartsModel()
    asking = decider(model)
    task = asyncio.create_task(asking.ask(request(3)))
    await settle()
    for seconds, name in ((1.0, "q3"), (2.0, "q1"), (4.0, "q2")):
        model.clock.advance(seconds)
        await model.finish(name)
    assert await task == {"q1": YesNoAnswer(0.001), "q2": YesNoAnswer(0.002), "q3": YesNoAnswer(0.003)}
    assert list(await task) == ["q1", "q2", "q3"]
    records = asking.records
    assert [(record.part, record.parts) for record in records] == [(1, 3), (2, 3), (3, 3)]
    assert [record.seconds for record in records] == [3.0, 7.0, 1.0]
    assert [record.response.retries for record in records] == [1, 2, 3]
    assert [record.response.usage.input_tokens for record in records] == [1, 2, 3]
    assert [[question.name for question in record.request.questions] for record in records] == [["q1"], ["q2"], ["q3"]]
    assert len({record.input_digest for record in records}) == 1
    assert records[0].input_digest


async def test_each_part_has_the_whole_time() -> None:
    """The time-out is that of one request: each part has it from the moment that it is asked."""
    model = PartsModel()
    task = asyncio.create_task(decider(model, timeout=17.0, at_once=1).ask(request(3)))
    await settle()
    await model.finish_all()
    await task
    assert model.timeouts == [17.0] * 3


async def test_a_part_that_fails_fails_all() -> None:
    """When a part fails the others are cancelled, none that waits is asked, and no record is kept."""
    model = PartsModel()
    asking = decider(model, at_once=3)
    task = asyncio.create_task(asking.ask(request(5)))
    await settle()
    await model.finish("q1")
    error = PlannerdError(Reason.DECISION_MODEL_UNAVAILABLE, "down", retry_after=2.0)
    await model.finish("q3", error)
    with pytest.raises(PlannerdError) as caught:
        await task
    assert caught.value is error
    assert sorted(model.cancelled) == ["q2", "q4"]
    assert "q5" not in model.seen
    assert not model.running
    assert asking.records == []
    assert asking.warnings == []
    assert asking.model == ""


async def test_several_parts_that_fail() -> None:
    """Of parts that fail at the same time the earliest one's error is told."""
    model = PartsModel()
    task = asyncio.create_task(decider(model).ask(request(3)))
    await settle()
    first, last = PlannerdError(Reason.DECISION_QUEUE_FULL, "full"), RuntimeError("a bug")
    model.running["q3"].set_exception(last)
    model.running["q1"].set_exception(first)
    with pytest.raises(PlannerdError) as caught:
        await task
    assert caught.value is first


async def test_a_part_that_takes_too_long() -> None:
    """A part that is not answered in time fails the decision as a whole request does."""
    model = PartsModel()
    with pytest.raises(PlannerdError) as caught:
        await decider(model, timeout=0.05).ask(request(2))
    assert caught.value.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert sorted(model.cancelled) == ["q1", "q2"]


async def test_cancelled_parts() -> None:
    """A call that is cancelled, as when its deadline passes, cancels every part."""
    model = PartsModel()
    asking = decider(model)
    task = asyncio.create_task(asking.ask(request(3)))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(model.cancelled) == ["q1", "q2", "q3"]
    assert asking.records == []


async def test_a_model_that_cancels_itself() -> None:
    """A part that ends by a cancellation of its own ends the decision, as it does where nothing is split."""
    model = PartsModel()
    task = asyncio.create_task(decider(model).ask(request(2)))
    await settle()
    model.running["q1"].cancel()
    await settle()
    await model.finish("q2")
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_strict_stops_at_the_first_other_model() -> None:
    """With strict a part by another model fails the decision at once."""
    model = PartsModel()
    model.name = lambda question: "other" if question == "q2" else "parts-1"
    options = InvocationOptions(split=True, expected_model="parts-1", strict=True)
    task = asyncio.create_task(decider(model, options).ask(request(3)))
    await settle()
    await model.finish("q2")
    with pytest.raises(PlannerdError) as caught:
        await task
    assert caught.value.reason is Reason.DECISION_MODEL_UNEXPECTED
    assert caught.value.metadata == {"expected": "parts-1", "resolved": "other"}
    assert sorted(model.cancelled) == ["q1", "q3"]


async def test_names_are_unique_over_all_parts() -> None:
    """Two questions of one name are refused before anything is sent, also where they would be in different parts."""
    model = PartsModel()
    twice = DecisionRequest((Field("ticket", "t1"),), (YesNo("q1", "Is it?"), YesNo("q1", "Is it?")))
    with pytest.raises(PlannerdError) as caught:
        await decider(model).ask(twice)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert model.seen == []


async def test_warnings_of_parts() -> None:
    """Cut inputs and other models are warned of once, however many parts have them; changes by what they are."""
    model = PartsModel()
    model.truncation = Truncation(5000, 2000)
    model.name = lambda question: "b" if question == "q3" else "a"
    asking = decider(model, InvocationOptions(split=True, expected_model="c"))
    asking.model = "z"
    task = asyncio.create_task(asking.ask(request(4)))
    await settle()
    await model.finish_all()
    await task
    found = [(warning.code, warning.message) for warning in asking.warnings]
    assert [code for code, _ in found] == [
        WarningCode.INPUT_TRUNCATED,
        WarningCode.MODEL_UNEXPECTED,
        WarningCode.MODEL_CHANGED,
        WarningCode.INPUT_TRUNCATED,
        WarningCode.MODEL_UNEXPECTED,
        WarningCode.MODEL_CHANGED,
        WarningCode.MODEL_CHANGED,
    ]
    changes = [message for code, message in found if code is WarningCode.MODEL_CHANGED]
    assert "'a'" in changes[0]
    assert "'z'" in changes[0]
    assert "the time before" in changes[0]
    assert "parts of one decision" in changes[1]
    assert asking.model == "a"


async def test_without_explanations_there_is_no_digest() -> None:
    """Where nobody wants an explanation, no digest is made of the input."""
    model = PartsModel()
    asking = decider(model, InvocationOptions(split=True, explain=ExplainLevel.NONE))
    task = asyncio.create_task(asking.ask(request(2)))
    await settle()
    await model.finish_all()
    await task
    assert [record.input_digest for record in asking.records] == [b"", b""]
