"""Conditions on the scope: when an agent may run, when a desire is achievable or satisfied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from plannerd_protos.planner.v1 import agent_pb2

BeliefFunction: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Looks at the scope, changes nothing, and says whether something holds. May be asked often; must be fast."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; made by `present`, `cel` and `belief`."""

    kind: Literal["present_key", "cel", "belief"]
    value: str


ConditionLike: TypeAlias = Condition | str | BeliefFunction
"""A `Condition`; a scope key, short for `present(key)`; or a function of the scope, evaluated in this process."""


def present(key: str) -> Condition:
    """Holds when `key` is in the scope: not None, not blank. An output that is on its way is present."""
    return Condition("present_key", key)


def cel(expression: str) -> Condition:
    """Holds when a CEL expression over `scope` does, for instance `has(scope.draft) && scope.score > 3`.

    It is evaluated by the server, at most 2,048 characters long, and may use constant keys only.
    """
    return Condition("cel", expression)


def belief(name: str) -> Condition:
    """Holds when the function called `name` among the `beliefs` of the run does."""
    return Condition("belief", name)


class Beliefs:
    """The functions that a run evaluates before each step, by name.

    Functions that stand in the place of a condition get a name from that place, so that it is the same in every
    process that builds the same configuration.

    Args:
        named: the functions that `belief(name)` refers to.
    """

    def __init__(self, named: Mapping[str, BeliefFunction]) -> None:
        self.functions = dict(named)

    def fill(self, target: agent_pb2.Condition, condition: ConditionLike, place: str) -> None:
        """Write `condition` to `target`, registering it under `place` if it is a function."""
        if isinstance(condition, str):
            condition = present(condition)
        elif not isinstance(condition, Condition):
            self.functions[place] = condition
            condition = belief(place)
        setattr(target, condition.kind, condition.value)
