"""Asks a model one question of each kind, to find out whether it works.

The question is nobody's: what is asked and answered here has nothing of a client in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plannerd.decisions.answers import Answer, DecisionResponse
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.errors import PlannerdError, Reason

_INPUT: Final = (Field("request", "Where is my parcel? It should have arrived on Monday."),)
_QUESTIONS: Final[tuple[Question, ...]] = (
    YesNo("yes_no", "Is this about a parcel?"),
    Choice(
        "choice",
        "Who should answer this request?",
        (
            Option("shipping", "Answers questions about parcels and deliveries."),
            Option("billing", "Answers questions about invoices and payments."),
        ),
    ),
    Scale("scale", "How urgent is this request?", ("it can wait", "it is urgent")),
)
_POINTLESS: Final = (
    Reason.DECISION_MODEL_UNAVAILABLE,
    Reason.DECISION_MODEL_CREDENTIALS,
    Reason.DECISION_MODEL_REJECTED,
)
"""After these the next question would go the same way, and whoever can't be reached would be waited for again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of one question.

    Attributes:
        kind: `yes_no`, `choice` or `scale`.
        seconds: how long the model took.
        response: what it answered, None if it failed.
        error: why it failed.
    """

    kind: str
    seconds: float
    response: DecisionResponse | None = None
    error: PlannerdError | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer."""
        return None if self.response is None else self.response.answers[self.kind]


@dataclass(frozen=True, slots=True)
class Checkup:
    """What came of asking a model.

    Attributes:
        name: the configured name.
        provider: its kind of provider.
        limits: what one request may hold.
        asked: one for each kind of question; none where the answers are those of a script.
    """

    name: str
    provider: str
    limits: ModelLimits
    asked: tuple[Asked, ...]

    @property
    def well(self) -> bool:
        """Whether every question was answered."""
        return all(one.error is None for one in self.asked)

    @property
    def reachable(self) -> bool:
        """Whether it was reached, as far as was tried."""
        return all(one.error is None or one.error.reason is not Reason.DECISION_MODEL_UNAVAILABLE for one in self.asked)

    @property
    def model(self) -> str:
        """The model as it names itself; empty if it never answered."""
        return next((one.response.model for one in self.asked if one.response), "")


async def check_up(
    models: DecisionModels, named: NamedModel, timeout: float, clock: Callable[[], float] = time.monotonic
) -> Checkup:
    """Ask a model each kind of question, one after the other.

    A model of the provider `fixed` is not asked: its answers belong to certain questions, and it is there
    if its file could be read.

    Args:
        models: the models that it is one of.
        named: the model.
        timeout: seconds for each question.
        clock: monotonic seconds.
    """
    model = named.model
    asked = []
    if model.provider != "fixed":
        for question in _QUESTIONS:
            asked.append(await _ask(models, named, question, timeout, clock))
            error = asked[-1].error
            if error is not None and error.reason in _POINTLESS:
                break
    return Checkup(named.name, model.provider, model.limits, tuple(asked))


async def _ask(
    models: DecisionModels, named: NamedModel, question: Question, timeout: float, clock: Callable[[], float]
) -> Asked:
    started = clock()
    try:
        response = await models.ask(named, DecisionRequest(_INPUT, (question,)), timeout)
    except PlannerdError as error:
        return Asked(question.name, clock() - started, error=error)
    return Asked(question.name, clock() - started, response)


async def check_all(models: DecisionModels, names: tuple[str, ...], timeout: float) -> list[Checkup]:
    """Ask several models at the same time; see `check_up`."""
    return await asyncio.gather(*(check_up(models, models.get(name), timeout) for name in names))
