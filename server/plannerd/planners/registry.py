"""The planners of this server, and how a configuration becomes one."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from plannerd.planners import bdi, cascade, router, scheduler
from plannerd.planners.planner import Planner
from plannerd.planners.system import Agent, PlannerAgent, Problems, System, Topology, check_system
from plannerd.values import Value, digest

PlannerOptions: TypeAlias = bdi.BdiOptions | cascade.CascadeOptions | router.RouterOptions | scheduler.SchedulerOptions
"""The options of any planner, as a client sets them."""


@dataclass(frozen=True, slots=True)
class PlannerInfo:
    """A planner of this server.

    Attributes:
        options: the type of its options, as a client sets them.
        check: fills in defaults and notes what can't work.
        planner: made of checked options and the system.
    """

    options: type[Any]
    check: Callable[[Any, System, Problems], Any]
    planner: Any

    @property
    def kind(self) -> str:
        """Its name."""
        return str(self.planner.kind)

    @property
    def topology(self) -> Topology:
        """The shape of its systems."""
        topology: Topology = self.planner.topology
        return topology


PLANNERS: tuple[PlannerInfo, ...] = (
    PlannerInfo(bdi.BdiOptions, bdi.check_options, bdi.BeliefDesireIntention),
    PlannerInfo(cascade.CascadeOptions, cascade.check_options, cascade.ConfidenceCascade),
    PlannerInfo(router.RouterOptions, router.check_options, router.DecisionRouter),
    PlannerInfo(scheduler.SchedulerOptions, scheduler.check_options, scheduler.DecisionScheduler),
)
"""In the order of their names."""


def compile_planner(
    options: PlannerOptions, planner_agent: PlannerAgent, agents: Sequence[Agent]
) -> tuple[Planner[Any], str]:
    """Check a configuration and make everything of it that never changes.

    Returns:
        The planner, and a digest of the configuration's meaning, which is the same whether defaults were
        spelt out or not.

    Raises:
        PlannerdError: INVALID_CONFIGURATION with every problem found.
    """
    info = next(info for info in PLANNERS if isinstance(options, info.options))
    problems = Problems()
    system = check_system(planner_agent, agents, problems)
    checked = info.check(options, system, problems)
    problems.raise_if_any()
    meaning = [info.kind, _meaning(checked), _meaning(planner_agent), [_meaning(agent) for agent in system.agents]]
    return info.planner(checked, system), digest(meaning, size=12).hex()


def _meaning(item: Any) -> Value:
    """The plain form of a configuration object, without the fields that have their defaults."""
    if dataclasses.is_dataclass(item):
        plain: dict[str, Value] = {"": type(item).__name__}
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            if value != field.default:
                plain[field.name] = _meaning(value)
        return plain
    if isinstance(item, enum.Enum):
        return str(item.name)
    if isinstance(item, frozenset):
        return [_meaning(part) for part in sorted(item)]
    if isinstance(item, tuple):
        return [_meaning(part) for part in item]
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise TypeError(f"a configuration holds a {type(item).__name__}")
