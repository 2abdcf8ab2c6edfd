"""What most planners have in common, as a base class with the simplest answer to each question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from plannerd.conditions import Condition
from plannerd.planners.planner import AskedAtMost, Need, PlannerMap, condition_reads, key_need
from plannerd.planners.system import System
from plannerd.values import Value

StateT = TypeVar("StateT")


class PlannerBase(Generic[StateT]):
    """A planner that reads what its conditions read, asks nothing, and watches nothing.

    What is left to write: `initial`, `begin`, `told`, `proceed`, `dump` and `load` (see `Planner`).

    Args:
        options: checked, with defaults filled in.
        system: the agents, checked.
        conditions: every condition that the planner may evaluate, beside the agents' activations.
    """

    refers = False
    asks: AskedAtMost | None = None
    watched: frozenset[str] = frozenset()

    def __init__(self, options: object, system: System, conditions: tuple[Condition, ...] = ()) -> None:
        self.options = options
        self.system = system
        self.conditions: tuple[Condition, ...] = (*conditions, *system.conditions)
        self.reads: Mapping[str, Need] = condition_reads(self.conditions)

    def reads_at(self, state: StateT) -> Mapping[str, Need]:
        """The same in every state."""
        return self.reads

    def output_need(self, agent: int) -> Need:
        """What the agent's output key is read for."""
        return key_need(self.reads, self.system, agent)

    def expects(self, state: StateT) -> frozenset[int] | None:
        """The state can't tell."""
        return None

    def awaits(self, state: StateT) -> frozenset[int]:
        """Nothing beyond what an `Await` names."""
        return frozenset()

    def lost(self, state: StateT, agent: int) -> StateT:
        """It makes no difference."""
        return state

    def dump_outputs(self, state: StateT) -> list[Value]:
        """None."""
        return []

    def load_outputs(self, state: StateT, outputs: list[Value]) -> StateT:
        """None."""
        return state

    def dump_cursor(self, state: StateT) -> PlannerMap:
        """The planner map says it all."""
        return {}
