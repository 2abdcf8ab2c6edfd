"""The kinds of condition, and how one is evaluated.

A condition has no side effects and may be asked several times in a step. One that can't be evaluated
raises; it never counts as true or false (docs/conditions.md).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from plannerd.conditions.cel import CompiledCel, Work
from plannerd.errors import PlannerdError, Reason
from plannerd.values import ScopeValue


@dataclass(frozen=True, slots=True)
class PresentKey:
    """True when `key` is in the scope; a pending output is."""

    key: str


@dataclass(frozen=True, slots=True)
class Cel:
    """A CEL expression over `scope`, compiled when the configuration was read."""

    expression: str
    compiled: CompiledCel = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BeliefHolds:
    """True when the client found the belief `name` to hold, just before the step."""

    name: str


Condition: TypeAlias = PresentKey | Cel | BeliefHolds


class Belief(enum.Enum):
    """What the client found when it evaluated a belief."""

    TRUE = "true"
    FALSE = "false"
    FAILED = "failed"


Beliefs: TypeAlias = Mapping[str, Belief]


class Facts(Protocol):
    """What conditions are evaluated on."""

    @property
    def beliefs(self) -> Beliefs:
        """Every belief that the planner declared."""

    @property
    def work(self) -> Work:
        """What all CEL conditions of one look at the scope may cost together."""

    def present(self, key: str) -> bool:
        """Whether `key` is in the scope."""

    def known(self, key: str) -> ScopeValue:
        """What is known of `key`: its value, that it is opaque or pending, or None where it is absent."""


def describe(condition: Condition) -> str:
    """The condition as a human reads it, without any content of the scope."""
    match condition:
        case PresentKey(key):
            return f"present: {key}"
        case BeliefHolds(name):
            return f"belief: {name}"
        case Cel(expression=expression):
            return f"cel: {expression}"


def evaluate(condition: Condition, facts: Facts, subject: str) -> bool:
    """Whether `condition` holds.

    Args:
        condition: what to evaluate.
        facts: the scope's keys and the client's beliefs.
        subject: the agent or desire that it belongs to, for the error.

    Raises:
        PlannerdError: CONDITION_FAILED with `subject` and `condition` in its metadata.
    """
    match condition:
        case PresentKey(key):
            return facts.present(key)
        case BeliefHolds(name):
            belief = facts.beliefs[name]
            if belief is Belief.FAILED:
                raise PlannerdError(
                    Reason.CONDITION_FAILED,
                    f"The belief '{name}', a condition of '{subject}', could not be evaluated by the client. "
                    "Mend its evaluation and send the step again.",
                    metadata={"subject": subject, "condition": describe(condition)},
                )
            return belief is Belief.TRUE
        case Cel(compiled=compiled):
            return compiled.evaluate(facts.known, subject, facts.work)
