"""What a planner answers: an action, the reasons for it, and its next state."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from plannerd.values import Value

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Start:
    """Run these agents (positions in the declaration), all at the same time.

    `final` says that no other call will follow, whatever they answer.
    """

    agents: tuple[int, ...]
    final: bool = False


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until none of these keys is pending any more."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Finished. `result` None: what the scope holds under the planner agent's output key."""

    result: Result | None = None


class GiveUpReason(enum.Enum):
    """Why a planner gave up."""

    NO_CANDIDATE = "no candidate"
    BELOW_THRESHOLD = "below threshold"
    MAX_INVOCATIONS = "maximum of invocations"
    NO_ACTIVE_AGENT = "no active agent"
    INTENTION_EXHAUSTED = "intention exhausted"
    OTHER = "other"
    AGENT_FAILED = "agent failed"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Finished without a result that counts."""

    reason: GiveUpReason
    message: str


@dataclass(frozen=True, slots=True)
class NoOp:
    """Nothing new."""


@dataclass(frozen=True, slots=True)
class ResultValue:
    """A value that the planner made."""

    value: Value


@dataclass(frozen=True, slots=True)
class OutputOf:
    """The output of an agent's latest call, by the agent's position."""

    agent: int


@dataclass(frozen=True, slots=True)
class OutputsOf:
    """A map from name to the output of an agent's latest call, in this order."""

    agents: tuple[tuple[str, int], ...]


Result: TypeAlias = ResultValue | OutputOf | OutputsOf
Action: TypeAlias = Start | Await | Done | GiveUp | NoOp


class Outcome(enum.Enum):
    """The outcome of a step in a word; the names are those of `planner.v1.StepOutcome`."""

    CALLED = "called"
    GOAL_REACHED = "goal_reached"
    NO_CANDIDATE = "no_candidate"
    BELOW_THRESHOLD = "below_threshold"
    MAX_INVOCATIONS = "max_invocations"
    ACCEPTED = "accepted"
    UNGRADED = "ungraded"
    ALL_SKIPPED = "all_skipped"
    NONE_ACTIVATED = "none_activated"
    COLLECTED = "collected"
    NO_DESIRE = "no_desire"
    INTENTION_EXHAUSTED = "intention_exhausted"
    AWAITING = "awaiting"
    SUSPENDED = "suspended"
    RECORDED = "recorded"
    ATTACHED = "attached"
    RESUMED = "resumed"
    FAILED = "failed"
    OTHER = "other"


class AgentStatus(enum.Enum):
    """Whether an agent could run; the names are those of `planner.v1.AgentStatus`."""

    CANDIDATE = "candidate"
    MISSING_KEY = "missing_key"
    INACTIVE = "inactive"
    UNCHANGED = "unchanged"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a planner found about one agent (by its position)."""

    agent: int
    status: AgentStatus
    score: float | None = None
    threshold: float | None = None
    called: bool = False
    missing_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GoalAssessment:
    """What was found about the goal; no probability where it was not asked."""

    threshold: float
    probability: float | None = None
    result_missing: bool = False


class WarningCode(enum.Enum):
    """What a warning is about; the names are those of `planner.v1.WarningCode`."""

    MAX_INVOCATIONS = "max_invocations"
    DESCRIPTION_UNAVAILABLE = "description_unavailable"
    AGENT_DROPPED = "agent_dropped"
    CONFIG_CHANGED = "config_changed"
    INPUT_TRUNCATED = "input_truncated"
    MODEL_UNEXPECTED = "model_unexpected"
    CHOICE_NOT_MOST_PROBABLE = "choice_not_most_probable"
    MODEL_CHANGED = "model_changed"
    MEAN_CONTRADICTS_PROBABILITIES = "mean_contradicts_probabilities"


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that went not quite right, in a sentence without content of the scope."""

    code: WarningCode
    message: str
    agent_id: str = ""


@dataclass(frozen=True, slots=True)
class Move(Generic[StateT]):
    """A planner's answer.

    Attributes:
        state: the planner's state from here on.
        action: what happens next.
        outcome: the outcome in a word.
        summary: the outcome in a sentence, without content of the scope.
        agents: what was found about each agent that was looked at.
        goal: what was found about the goal.
        warnings: what went not quite right.
    """

    state: StateT
    action: Action
    outcome: Outcome
    summary: str
    agents: tuple[Assessment, ...] = ()
    goal: GoalAssessment | None = None
    warnings: tuple[Warn, ...] = ()
