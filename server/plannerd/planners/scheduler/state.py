"""The state of a decision scheduler, and its form as plain values.

The planner map refers to agents by name, so that it does not depend on the order of declaration; only
agents that share a name are referred to by id, which contains their position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plannerd.errors import PlannerdError, Reason
from plannerd.planners.asking import unavailable_agents, unavailable_warnings
from plannerd.planners.fields import Fields
from plannerd.planners.moves import Warn, WarningCode
from plannerd.planners.planner import PlannerMap
from plannerd.planners.system import System
from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """Where a scheduler stands. Agents are given by their positions.

    Attributes:
        invocations: how many agents were called so far.
        blocked: the agents that ran and of whose arguments none has changed since they were called.
        current: the agent being run, None between calls.
        unavailable: the agents left out because their description could not be read.
        recent: output keys by their latest write, the newest last; ranks the input when it must be cut.
    """

    invocations: int = 0
    blocked: frozenset[int] = frozenset()
    current: int | None = None
    unavailable: frozenset[int] = frozenset()
    recent: tuple[str, ...] = ()


def dump_map(state: SchedulerState, system: System) -> PlannerMap:
    """The planner map: invocations, who cannot run again yet, who is being run."""
    return {
        "invocations": state.invocations,
        "cannotRunAgain": list(_references(state.blocked, system)),
        "beingInvoked": None if state.current is None else system.reference(state.current),
    }


def dump_cursor(state: SchedulerState, system: System) -> PlannerMap:
    """What the planner map leaves out."""
    return {
        "unavailable": list(_references(state.unavailable, system)),
        "recent": list(state.recent),
    }


def load(
    planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None, system: System
) -> tuple[SchedulerState, list[Warn]]:
    """The state from its plain form, with a warning for each agent that is no longer declared.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE, or LIVE_AGENT_MISSING if the agent being run is gone.
    """
    by_reference = system.by_reference
    warnings: list[Warn] = []

    def known(names: tuple[str, ...]) -> frozenset[int]:
        for name in names:
            if name not in by_reference:
                warnings.append(
                    Warn(
                        WarningCode.AGENT_DROPPED,
                        f"The resumed state names the agent '{name}', which is no longer declared; it is forgotten.",
                        name,
                    )
                )
        return frozenset(by_reference[name] for name in names if name in by_reference)

    fields = Fields(planner_map, "planner")
    invocations = fields.integer("invocations")
    blocked = known(fields.texts("cannotRunAgain"))
    current = fields.optional_text("beingInvoked")
    fields.done()
    if current is not None and current not in by_reference:
        raise PlannerdError(
            Reason.LIVE_AGENT_MISSING,
            f"The state to resume is running the agent '{current}', which is not declared. Declare it again.",
            metadata={"agent": current},
        )
    unavailable: frozenset[int] = frozenset()
    recent: tuple[str, ...] = ()
    if cursor is not None:
        extra = Fields(cursor, "cursor")
        unavailable = known(extra.texts("unavailable"))
        recent = tuple(key for key in extra.texts("recent") if key in system.output_keys)
        extra.done()
    # What can't be read now is left out from here on, as it would have been at the start.
    fresh = unavailable_agents(system) - unavailable
    warnings.extend(unavailable_warnings(system, fresh))
    unavailable |= fresh
    state = SchedulerState(
        invocations, blocked, None if current is None else by_reference[current], unavailable, recent
    )
    return state, warnings


def _references(agents: frozenset[int], system: System) -> list[str]:
    return sorted(system.reference(position) for position in agents)
