"""What is left of the call that a decision is made for."""

from __future__ import annotations

import asyncio

import pytest

from plannerd.decisions.answers import DecisionResponse, YesNoAnswer
from plannerd.decisions.deadline import call_deadline, seconds_left
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import DecisionRequest, Field, YesNo


@pytest.mark.parametrize(
    ("remaining", "timeout", "left"),
    [
        (None, None, None),
        (None, 30.0, 30.0),
        (5.0, None, 5.0),
        (5.0, 30.0, 5.0),
        (50.0, 30.0, 30.0),
        (-1.0, 30.0, 0.0),
    ],
)
def test_the_lesser_counts(remaining: float | None, timeout: float | None, left: float | None) -> None:
    """Of the time of the call and the time of the request the lesser counts, and it is never negative."""
    with call_deadline(lambda: remaining):
        assert seconds_left(timeout) == left
    assert seconds_left(timeout) == timeout


class Told:
    """A model that remembers how much time it was given."""

    provider = "told"
    repeatable = True
    limits = ModelLimits()

    def __init__(self) -> None:
        self.given: list[float | None] = []

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        self.given.append(timeout)
        return DecisionResponse({"goal": YesNoAnswer(1)}, "told")

    async def close(self) -> None:
        pass


async def test_models_are_told() -> None:
    """A model is told what the call has left, if that is less than what a request may take; each call its own."""
    model = Told()
    models = DecisionModels({"m": model})
    request = DecisionRequest((Field("request", "x"),), (YesNo("goal", "?"),))

    async def call(remaining: float) -> None:
        with call_deadline(lambda: remaining):
            await asyncio.sleep(0)
            await models.ask(models.get(), request, 30)

    await asyncio.gather(call(7), call(70), call(5))
    assert model.given == [7, 30, 5]
