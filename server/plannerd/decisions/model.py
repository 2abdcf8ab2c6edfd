"""What every decision model can do: the interface that providers implement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import DecisionRequest


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What one request to a model may hold; None means that the model sets no limit.

    Attributes:
        questions: questions in one request.
        options: options of a choice question.
        levels: levels of a scale question.
        images: whether the input may contain images.
    """

    questions: int | None = None
    options: int | None = None
    levels: int | None = None
    images: bool = False


class DecisionModel(Protocol):
    """Something that answers questions about an input."""

    @property
    def provider(self) -> str:
        """The kind of provider: `sparrow`, `fixed`, `systemone`, `grpc`, `langchain`."""

    @property
    def limits(self) -> ModelLimits:
        """What one request may hold."""

    @property
    def repeatable(self) -> bool:
        """Whether asking it the same again costs nothing and gives the same answer."""

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        """Answer every question of `request`, which has been checked, within `timeout` seconds (None: no limit).

        `DecisionModels.ask` cancels the call when they are over; they are given so that a provider can spread
        its attempts over them.

        Raises:
            PlannerdError: DECISION_MODEL_UNAVAILABLE, DECISION_INVALID_ANSWER, DECISION_MODEL_CREDENTIALS,
                DECISION_MODEL_REJECTED, DECISION_MODEL_LIMIT or DECISION_QUEUE_FULL.
                Cancelling the call leaves nothing behind.
        """

    async def close(self) -> None:
        """Release what the model holds; the model is not used afterwards."""
