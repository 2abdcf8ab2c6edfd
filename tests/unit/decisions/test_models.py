"""Named models, and the one way to ask them."""

from __future__ import annotations

import asyncio

import pytest

from plannerd.decisions.answers import MAX_MODEL_CHARS, ChoiceAnswer, DecisionResponse, YesNoAnswer
from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.model import DecisionModel, ModelLimits
from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.decisions.questions import DecisionRequest, Field, YesNo
from plannerd.errors import PlannerdError, Reason

QUESTION = YesNo("goal", "Has the goal been reached?")
REQUEST = DecisionRequest((Field("request", "hello"),), (QUESTION,))


class Stub:
    """A model that does what a test wants."""

    provider = "stub"
    repeatable = False
    limits = ModelLimits(questions=1)

    def __init__(self, error: Exception | None = None, delay: float = 0, name: str = "stub-1") -> None:
        self.error = error
        self.name = name
        self.delay = delay
        self.asked: list[float | None] = []
        self.cancelled = False
        self.closed = False

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        self.asked.append(timeout)
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return DecisionResponse({question.name: YesNoAnswer(1 + 5e-7) for question in request.questions}, self.name)

    async def close(self) -> None:
        self.closed = True


def ask(model: DecisionModel, request: DecisionRequest = REQUEST, timeout: float | None = None) -> DecisionResponse:
    models = DecisionModels({"m": model})
    return asyncio.run(models.ask(models.get(), request, timeout))


def failure(model: DecisionModel, request: DecisionRequest = REQUEST, timeout: float | None = None) -> PlannerdError:
    with pytest.raises(PlannerdError) as caught:
        ask(model, request, timeout)
    return caught.value


def test_get_by_name() -> None:
    """A model is found by its name, and the default without one."""
    a, b = Stub(), Stub()
    models = DecisionModels({"a": a, "b": b}, default="b")
    assert models.names == ("a", "b")
    assert models.default == "b"
    assert models.get("a") == NamedModel("a", a)
    assert models.get() == models.get(None) == NamedModel("b", b)


def test_only_model_is_the_default() -> None:
    """A model that is alone is the default; of several none is, unless it is said which."""
    assert DecisionModels({"a": Stub()}).default == "a"
    assert DecisionModels({"a": Stub(), "b": Stub()}).default is None


@pytest.mark.parametrize("name", ["c", "", None])
def test_unknown_name(name: str | None) -> None:
    """An unknown name is an error that lists the configured ones."""
    with pytest.raises(PlannerdError) as caught:
        DecisionModels({"a": Stub(), "b": Stub()}).get(name)
    assert caught.value.reason is Reason.DECISION_MODEL_NOT_FOUND
    assert "'a', 'b'" in caught.value.message
    assert caught.value.metadata["configured"] == "a,b"


def test_no_models() -> None:
    """A server may have no models; asking for one is then an error that says so."""
    with pytest.raises(PlannerdError, match="configured: none"):
        DecisionModels({}).get()


def test_unknown_default() -> None:
    """A default that is not configured is refused at once."""
    with pytest.raises(ValueError, match="'c'"):
        DecisionModels({"a": Stub()}, default="c")


def test_answers_are_checked() -> None:
    """What a model answered comes back checked and clamped, with the rest of the response as it was."""
    response = ask(Stub(), timeout=30)
    assert response.answers == {"goal": YesNoAnswer(1)}
    assert response.model == "stub-1"


def test_invalid_answers_never_arrive() -> None:
    """An invalid answer is an error, asked once."""
    model = FixedModel({"rules": {"goal": {"probability": 1.5}}})
    assert failure(model).reason is Reason.DECISION_INVALID_ANSWER
    assert len(model.asked) == 1


def test_requests_are_checked_first() -> None:
    """A request that is invalid, or over a limit of the model, never reaches it."""
    model = Stub()
    assert failure(model, DecisionRequest((), (QUESTION,))).reason is Reason.EMPTY_DECISION_INPUT
    two = DecisionRequest(REQUEST.input, (QUESTION, YesNo("more", "?")))
    limit = failure(model, two)
    assert limit.reason is Reason.DECISION_MODEL_LIMIT
    assert limit.metadata["model"] == "m"
    assert model.asked == []


def test_timeout() -> None:
    """A model that takes longer than the time-out is unavailable, and its call is cancelled."""
    model = Stub(delay=3600)
    error = failure(model, timeout=0.01)
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert error.retry_after is None
    assert error.metadata == {"model": "m", "timeout_seconds": "0.01", "retries_spent": "true"}
    assert model.asked == [0.01]
    assert model.cancelled


@pytest.mark.parametrize("error", [TimeoutError("own"), RuntimeError("library"), PlannerdError(Reason.DRAINING, "d")])
def test_errors_of_a_model(error: Exception) -> None:
    """What a model raises goes through as it is, its own time-outs included."""
    with pytest.raises(type(error)) as caught:
        ask(Stub(error), timeout=30)
    assert caught.value is error


def test_cancelled_by_the_caller() -> None:
    """A caller that cancels gets its cancellation, not an error of the model."""
    model = Stub(delay=3600)

    async def scenario() -> None:
        models = DecisionModels({"m": model})
        task = asyncio.create_task(models.ask(models.get(), REQUEST, 3600))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert model.cancelled


def test_close() -> None:
    """Closing closes every model."""
    models = [Stub(), Stub()]
    asyncio.run(DecisionModels({"a": models[0], "b": models[1]}).close())
    assert all(model.closed for model in models)


def test_refusals_are_answers() -> None:
    """A refusal is an answer here; who needs that answer decides what it means."""
    model = FixedModel({"rules": {"goal": {"refuse": "no"}}})
    assert not isinstance(ask(model).answers["goal"], YesNoAnswer | ChoiceAnswer)


def test_the_name_of_a_model_can_be_kept() -> None:
    """A name that a model gives itself is cut to what an execution state takes, and is Unicode."""
    assert ask(Stub(name="sage\ud800" + "x" * 1000)).model == "sage?" + "x" * (MAX_MODEL_CHARS - 5)
