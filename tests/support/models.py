"""Decision models for tests: answers by a function, and one that waits until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from plannerd.decisions.answers import Answer, ChoiceAnswer, DecisionResponse, ScaleAnswer, YesNoAnswer
from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Question, Scale


def answering(*steps: Mapping[str, Any], **always: Any) -> FixedModel:
    """A model that gives `steps` in turn, then `always`, and zero to every other question."""
    return FixedModel({"steps": list(steps), "rules": always, "defaults": {"yes_no": 0.0, "scale": 0.0}})


async def settle() -> None:
    """Let every task go on until it waits for something that only the test can bring about."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that takes its time."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


class FunctionModel:
    """A model whose answers are computed from the number of the request and the name of the question.

    The number that `function` gives, from 0 to 1, is the probability of yes, the place on the scale, or the
    place among the options.
    """

    provider: Final = "fixed"
    repeatable: Final = False
    limits: Final = ModelLimits(images=True)

    def __init__(self, function: Callable[[int, str], float]) -> None:
        self._function = function
        self.asked: list[DecisionRequest] = []

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        """Answer at once."""
        self.asked.append(request)
        number = len(self.asked)
        answers = {question.name: self._answer(number, question) for question in request.questions}
        return DecisionResponse(answers, "function")

    async def close(self) -> None:
        """Nothing to release."""

    def _answer(self, number: int, question: Question) -> Answer:
        found = self._function(number, question.name)
        match question:
            case Scale(levels=levels):
                return ScaleAnswer(found * (len(levels) - 1))
            case Choice(options=options):
                return ChoiceAnswer(options[min(int(found * len(options)), len(options) - 1)].name)
            case _:
                return YesNoAnswer(found)


class GatedModel:
    """Answers like another model, but only once it is let go; tells when a request has come in."""

    provider: Final = "fixed"
    repeatable: Final = False

    def __init__(self, inner: FixedModel) -> None:
        self._inner = inner
        self.limits = inner.limits
        self.entered = asyncio.Event()
        self.gate = asyncio.Event()
        self.waiting = 0

    @property
    def asked(self) -> list[DecisionRequest]:
        """The requests that were let go."""
        return self._inner.asked

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        """Wait, then answer."""
        self.entered.set()
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return await self._inner.decide(request, timeout)

    async def close(self) -> None:
        """Nothing to release."""
