"""The planners of this server, and how a configuration becomes one."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from plannerd.errors import PlannerdError, Reason
from plannerd.planners import bdi, cascade, router, scheduler
from plannerd.planners.planner import Planner
from plannerd.planners.plugin import PlannerPlugin
from plannerd.planners.system import Agent, PlannerAgent, Problems, System, Topology, check_system
from plannerd.values import Value, digest

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """The options of a planner that an operator added: its name, and its configuration as plain values."""

    name: str
    configuration: dict[str, Value]


PlannerOptions: TypeAlias = (
    bdi.BdiOptions | cascade.CascadeOptions | router.RouterOptions | scheduler.SchedulerOptions | PluginOptions
)
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
"""The planners that are part of the contract, in the order of their names."""


class Registry:
    """The planners of a server: those of the contract, and plug-ins.

    Args:
        plugins: what the operator added.

    Raises:
        ValueError: two planners of one name, or a name that can't be one.
    """

    def __init__(self, plugins: Iterable[PlannerPlugin[Any]] = ()) -> None:
        self.builtin = PLANNERS
        self.plugins: dict[str, PlannerPlugin[Any]] = {}
        taken = {info.kind for info in self.builtin}
        for plugin in plugins:
            if plugin.name in taken:
                raise ValueError(f"there are two planners named '{plugin.name}'")
            if not NAME.fullmatch(plugin.name):
                raise ValueError(f"'{plugin.name}' can't be the name of a planner: it must match {NAME.pattern}")
            taken.add(plugin.name)
            self.plugins[plugin.name] = plugin

    def compile(
        self, options: PlannerOptions, planner_agent: PlannerAgent, agents: Sequence[Agent]
    ) -> tuple[Planner[Any], str, str]:
        """Check a configuration and make everything of it that never changes.

        Returns:
            The planner, its name, and a digest of the configuration's meaning, which is the same whether
            defaults were spelt out or not.

        Raises:
            PlannerdError: INVALID_CONFIGURATION with every problem found, or PLANNER_NOT_FOUND.
        """
        problems = Problems()
        system = check_system(planner_agent, agents, problems)
        if isinstance(options, PluginOptions):
            plugin = self._plugin(options.name)
            parsed = plugin.parse(options.configuration, system, problems)
            problems.raise_if_any()
            if parsed is None:
                raise RuntimeError("a plug-in's options are wrong without a problem")
            planner: Planner[Any] = plugin.planner(parsed, system)
            kind = plugin.name
            meaning: Value = plugin.meaning(parsed)
        else:
            info = next(info for info in self.builtin if isinstance(options, info.options))
            checked = info.check(options, system, problems)
            problems.raise_if_any()
            planner = info.planner(checked, system)
            kind = info.kind
            meaning = _meaning(checked)
        parts = [kind, meaning, _meaning(planner_agent), [_meaning(agent) for agent in system.agents]]
        return planner, kind, digest(parts, size=12).hex()

    def topology(self, kind: str) -> Topology:
        """The shape of the systems of the planner of that name, for ListPlanners and for Init alike."""
        plugin = self.plugins.get(kind)
        if plugin is not None:
            return plugin.topology
        return next(info.topology for info in self.builtin if info.kind == kind)

    def _plugin(self, name: str) -> PlannerPlugin[Any]:
        if name not in self.plugins:
            raise PlannerdError(
                Reason.PLANNER_NOT_FOUND,
                f"There is no planner '{name}'; ListPlanners names those that exist.",
                metadata={"planner": name},
            )
        return self.plugins[name]


def _meaning(item: Any) -> Value:
    """The plain form of a configuration object, without the fields that have their defaults."""
    if dataclasses.is_dataclass(item):
        plain: dict[str, Value] = {"": type(item).__name__}
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            if field.compare and value != field.default:
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
