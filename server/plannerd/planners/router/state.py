"""The state of a decision router, and its form as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plannerd.errors import PlannerdError, Reason
from plannerd.planners.fields import Fields
from plannerd.planners.moves import Warn, WarningCode
from plannerd.planners.planner import PlannerMap
from plannerd.planners.system import System
from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class RouterState:
    """Where a router stands. Agents are given by their positions.

    Attributes:
        activated: the agents that were chosen, in order; None before the decision.
        answered: those that have an output.
        pending: those whose output was on its way when they were reported.
        skipped: those that their client skipped.
    """

    activated: tuple[int, ...] | None = None
    answered: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    skipped: frozenset[int] = frozenset()

    @property
    def settled(self) -> bool:
        """Whether every activated agent was reported."""
        return set(self.activated or ()) <= self.answered | self.pending | self.skipped


def dump_map(state: RouterState, system: System) -> PlannerMap:
    """The planner map: empty before the decision, then who was activated, has an output, was pending."""
    if state.activated is None:
        return {}
    return {
        "activated": [system.agents[position].name for position in state.activated],
        "completed": _names(state.answered, system),
        "pending": _names(state.pending, system),
    }


def dump_cursor(state: RouterState, system: System) -> PlannerMap:
    """What the planner map leaves out."""
    return {"skipped": _names(state.skipped, system)}


def load(
    planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None, system: System
) -> tuple[RouterState, list[Warn]]:
    """The state from its plain form.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE, or LIVE_AGENT_MISSING if an agent that was activated and has
            no output yet is gone.
    """
    fields = Fields(planner_map, "planner")
    positions = {agent.name: position for position, agent in enumerate(system.agents)}
    skipped: tuple[str, ...] = ()
    if cursor is not None:
        extra = Fields(cursor, "cursor")
        skipped = extra.texts("skipped")
        extra.done()
    if not fields.has("activated"):
        fields.done()
        return RouterState(), []
    activated, completed, pending = fields.texts("activated"), fields.texts("completed"), fields.texts("pending")
    fields.done()
    for name in ("completed", "pending"):
        unknown = [other for other in fields.texts(name) if other not in activated]
        if unknown:
            raise fields.error(name, f"names '{unknown[0]}', which was not activated")
    warnings: list[Warn] = []
    for name in activated:
        if name in positions:
            continue
        if name not in completed and name not in skipped:
            raise PlannerdError(
                Reason.LIVE_AGENT_MISSING,
                f"The state to resume has activated the agent '{name}', which is not declared. Declare it again.",
                metadata={"agent": name},
            )
        message = f"The resumed state names the agent '{name}', which is no longer declared; it is forgotten."
        warnings.append(Warn(WarningCode.AGENT_DROPPED, message, name))

    def known(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(positions[name] for name in names if name in positions)

    state = RouterState(
        known(activated), frozenset(known(completed)), frozenset(known(pending)), frozenset(known(skipped))
    )
    return state, warnings


def _names(agents: frozenset[int], system: System) -> list[Value]:
    return [system.agents[position].name for position in sorted(agents)]
