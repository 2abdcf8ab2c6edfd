"""What a planner sees of an invocation at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plannerd.conditions import Beliefs, Condition, describe, evaluate
from plannerd.conditions.cel import WORK, Work
from plannerd.invocations.explanation import ConditionOutcome
from plannerd.invocations.scope import Scope
from plannerd.values import ScopeValue, Value

_CONDITIONS_WORK: Final = 5 * WORK
"""What all CEL conditions of one move may cost together: some 50 ms at the worst."""


class InvocationView:
    """The scope, the client's beliefs, and the watched keys that changed since the planner's last move."""

    def __init__(self, scope: Scope, beliefs: Beliefs, changed: frozenset[str], pending: Callable[[str], bool]) -> None:
        self.beliefs = beliefs
        self.changed = changed
        self.work = Work(_CONDITIONS_WORK)
        self.evaluated: list[ConditionOutcome] = []
        self._scope = scope
        self._pending = pending

    def present(self, key: str) -> bool:
        """Whether `key` is in the scope."""
        return self._scope.present(key)

    def known(self, key: str) -> ScopeValue:
        """What is known of `key`: its value, that it is opaque or pending, or None where it is absent."""
        return self._scope.values.get(key)

    def pending(self, key: str) -> bool:
        """Whether `key` waits for an output."""
        return self._pending(key)

    def value(self, key: str) -> Value:
        """The value of `key`, None where it is absent."""
        return self._scope.read(key)

    def holds(self, condition: Condition | None, subject: str) -> bool:
        """Whether `condition` holds; every outcome is kept for the explanation."""
        if condition is None:
            return True
        outcome = evaluate(condition, self, subject)
        self.evaluated.append(ConditionOutcome(subject, describe(condition), outcome))
        return outcome
