"""Why a step did what it did, as it is returned, logged and traced."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import DecisionRequest
from plannerd.planners.moves import Assessment, GoalAssessment, Outcome


class ExplainLevel(enum.Enum):
    """How detailed explanations are."""

    NONE = 1
    SUMMARY = 2
    FULL = 3


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One request to a decision model: what was asked, of whom, what came back.

    Attributes:
        model: the configured name.
        provider: its kind of provider.
        request: questions and input.
        response: answers, the model as it names itself, usage.
        input_digest: equal inputs, equal digests.
        seconds: how long the model took.
        part: which part of a decision that was split it is, from 1; 0: it was not split.
        parts: how many there are; 0: it was not split.
    """

    model: str
    provider: str
    request: DecisionRequest
    response: DecisionResponse
    input_digest: bytes
    seconds: float
    part: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class ConditionOutcome:
    """A condition of an agent or desire, and what it came to."""

    subject: str
    condition: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for one step; `seconds` is how long it took."""

    outcome: Outcome
    summary: str
    agents: tuple[Assessment, ...] = ()
    goal: GoalAssessment | None = None
    conditions: tuple[ConditionOutcome, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    seconds: float = 0.0
