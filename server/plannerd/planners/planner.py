"""The interface between a planner and the invocation that it plans.

A planner object is the compiled definition: immutable, shared by every invocation that has the same one.
What changes is its state, a small immutable value that each move replaces, so that a step that fails
leaves nothing behind.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from plannerd.conditions import BeliefHolds, Cel, Condition, Facts, PresentKey
from plannerd.decisions.answers import Answer
from plannerd.decisions.questions import DecisionRequest
from plannerd.planners.moves import Move, Warn
from plannerd.planners.system import System
from plannerd.values import Value

StateT = TypeVar("StateT")

PlannerMap: TypeAlias = "dict[str, Value]"
"""A planner's own state by plain values."""

Answers: TypeAlias = Mapping[str, Answer]
Thinking: TypeAlias = Generator[DecisionRequest, Answers, Move[StateT]]
"""A planner at work: yields what it must ask, is sent the answers by question name, returns its move."""


class Need(enum.Enum):
    """What a planner needs of a key; the names are those of `planner.v1.Need`."""

    VALUE = "value"
    PRESENCE = "presence"
    NONE = "none"


class Reported(enum.Enum):
    """What became of a call, as a planner hears of it."""

    ANSWERED = "answered"
    SKIPPED = "skipped"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Report:
    """One call of an agent (by its position) that answered, was skipped, or will answer later.

    `value` is the output of an agent that answered, None where the planner needs no value of it.
    """

    agent: int
    outcome: Reported
    value: Value = None


class View(Facts, Protocol):
    """What a planner sees of an invocation."""

    @property
    def changed(self) -> frozenset[str]:
        """The watched keys that changed since the planner's last move."""

    def pending(self, key: str) -> bool:
        """Whether the value of `key` is an output that has not arrived yet."""

    def value(self, key: str) -> Value:
        """The value of `key`, None where it is absent.

        Raises:
            PlannerdError: VALUE_REQUIRED if the client keeps the value to itself.
        """

    def holds(self, condition: Condition | None, subject: str) -> bool:
        """Whether `condition` (None: always) of the agent or desire `subject` holds.

        Raises:
            PlannerdError: CONDITION_FAILED.
        """


@dataclass(frozen=True, slots=True)
class AskedAtMost:
    """How much a planner may ask in one request, to be held against a model's limits at Init."""

    questions: int = 0
    options: int = 0
    levels: int = 0


class Planner(Protocol[StateT]):
    """A compiled planner definition."""

    @property
    def system(self) -> System:
        """The agents it plans."""

    @property
    def reads(self) -> Mapping[str, Need]:
        """Every key that it reads, and what it needs of it."""

    @property
    def watched(self) -> frozenset[str]:
        """The keys whose changes it must hear of (`View.changed`)."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition that it may evaluate."""

    @property
    def refers(self) -> bool:
        """Whether its results name calls, whose ids must then be kept."""

    @property
    def asks(self) -> AskedAtMost | None:
        """The largest request it may make; None if it never asks a decision model."""

    def reads_at(self, state: StateT) -> Mapping[str, Need]:
        """What it reads in `state`: `reads`, or more, where a state lacks something that the scope may have."""

    def output_need(self, agent: int) -> Need:
        """What it needs of the output of the agent at this position."""

    def initial(self) -> StateT:
        """The state of an invocation that has not begun."""

    def begin(self, state: StateT, view: View) -> Thinking[StateT]:
        """The first move, from `initial()` or from a state that `load` made of a bare planner map."""

    def told(self, state: StateT, view: View, report: Report) -> Thinking[StateT]:
        """The move after one call was reported."""

    def proceed(self, state: StateT, view: View) -> Thinking[StateT]:
        """The move after everything that an `Await` named has arrived."""

    def expects(self, state: StateT) -> frozenset[int] | None:
        """The agents (by position) of whose calls it has yet to hear; None where a state can't tell."""

    def awaits(self, state: StateT) -> frozenset[int]:
        """The agents (by position) of whose calls it has heard that their output, which it needs, comes later."""

    def lost(self, state: StateT, agent: int) -> StateT:
        """The state after a call that had been reported as pending was skipped: no output will come."""

    def dump(self, state: StateT) -> PlannerMap:
        """The planner map: the state as far as it is told by names alone."""

    def dump_cursor(self, state: StateT) -> PlannerMap:
        """What else is needed to continue exactly."""

    def dump_outputs(self, state: StateT) -> list[Value]:
        """The outputs that it keeps for a later move. No state has them, but a store of whole records does."""

    def load_outputs(self, state: StateT, outputs: list[Value]) -> StateT:
        """`state`, which `load` made, with what `dump_outputs` gave; only where that was not empty."""

    def load(self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None) -> tuple[StateT, list[Warn]]:
        """The state from what `dump` and `dump_cursor` made; `cursor` is None for a bare planner map.

        Raises:
            PlannerdError: INVALID_EXECUTION_STATE with the field; LIVE_AGENT_MISSING if the agent that was
                being run is gone.
        """


def belief_names(planner: Planner[Any]) -> tuple[str, ...]:
    """The beliefs that a client must send with every step, each once, in the order of declaration."""
    return tuple(dict.fromkeys(found.name for found in planner.conditions if isinstance(found, BeliefHolds)))


def key_need(reads: Mapping[str, Need], system: System, agent: int) -> Need:
    """What is needed of an agent's output when it only matters as the value of its key in the scope."""
    return reads.get(system.agents[agent].output_key or "", Need.NONE)


def condition_reads(conditions: Iterable[Condition]) -> dict[str, Need]:
    """The keys that conditions read, and what they need of each."""
    reads: dict[str, Need] = {}
    for condition in conditions:
        match condition:
            case PresentKey(key):
                reads.setdefault(key, Need.PRESENCE)
            case Cel(compiled=compiled):
                reads.update(dict.fromkeys(compiled.keys, Need.VALUE))
                for key in compiled.presence_keys:
                    reads.setdefault(key, Need.PRESENCE)
            case BeliefHolds():
                pass
    return reads


def merge_reads(*parts: Mapping[str, Need]) -> dict[str, Need]:
    """What is needed of each key by any of `parts`: its value, if one of them needs that."""
    merged: dict[str, Need] = {}
    for part in parts:
        for key, need in part.items():
            if merged.get(key) is not Need.VALUE:
                merged[key] = need
    return merged
