"""The planners of this server, and how a configuration becomes one."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from plannerd.planners.bdi import BdiOptions, BeliefDesireIntention
from plannerd.planners.cascade import CascadeOptions, ConfidenceCascade
from plannerd.planners.planner import Planner
from plannerd.planners.router import DecisionRouter, RouterOptions
from plannerd.planners.scheduler import DecisionScheduler, SchedulerOptions
from plannerd.planners.system import Agent, PlannerAgent, System, Topology, check_system
from plannerd.values import Value, digest

PlannerOptions: TypeAlias = BdiOptions | CascadeOptions | RouterOptions | SchedulerOptions
"""The options of any planner, as a client sets them."""


@dataclass(frozen=True, slots=True)
class PlannerInfo:
    """A planner of this server: its name, the shape of its systems, and the type of its options."""

    kind: str
    topology: Topology
    options: type[Any]
    compile: Callable[[Any, System], Planner[Any]]


PLANNERS: tuple[PlannerInfo, ...] = (
    PlannerInfo(BeliefDesireIntention.kind, BeliefDesireIntention.topology, BdiOptions, BeliefDesireIntention),
    PlannerInfo(ConfidenceCascade.kind, ConfidenceCascade.topology, CascadeOptions, ConfidenceCascade),
    PlannerInfo(DecisionRouter.kind, DecisionRouter.topology, RouterOptions, DecisionRouter),
    PlannerInfo(DecisionScheduler.kind, DecisionScheduler.topology, SchedulerOptions, DecisionScheduler),
)
"""In the order of their names."""


def compile_planner(
    options: PlannerOptions, planner_agent: PlannerAgent, agents: Sequence[Agent]
) -> tuple[Planner[Any], str]:
    """Check a configuration and make everything of it that never changes.

    Returns:
        The planner, and a digest of the configuration's meaning: defaults that were spelt out, and options
        that later versions add and that are not used, do not change it.

    Raises:
        PlannerdError: INVALID_CONFIGURATION.
    """
    system = check_system(planner_agent, agents)
    info = next(info for info in PLANNERS if isinstance(options, info.options))
    planner = info.compile(options, system)
    meaning = [info.kind, _meaning(options), _meaning(planner_agent), [_meaning(agent) for agent in system.agents]]
    return planner, digest(meaning, size=12).hex()


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
    if isinstance(item, tuple):
        return [_meaning(part) for part in item]
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise TypeError(f"a configuration holds a {type(item).__name__}")
