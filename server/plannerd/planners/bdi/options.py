"""The options of the BDI planner, their defaults and checks.

Source: the documentation of LangChain4j's BDIPlanner; docs/planners/bdi.md says what goes beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plannerd.conditions import Condition
from plannerd.planners.system import Problems, System, check_condition
from plannerd.values import is_blank

DEFAULT_MAX_INVOCATIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Desire:
    """A goal: pursued while achievable and not satisfied, by agents of these types in order."""

    name: str
    priority: int
    achievable: Condition | None
    satisfied: Condition | None
    agent_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BdiOptions:
    """The options as a client sets them.

    Attributes:
        desires: at least one, names unique.
        max_invocations: how many agents run at most, at least 1. Default 50.
    """

    desires: tuple[Desire, ...] = ()
    max_invocations: int | None = None


@dataclass(frozen=True, slots=True)
class Intention:
    """A checked desire, with its agents by position."""

    name: str
    priority: int
    achievable: Condition
    satisfied: Condition
    agents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options with defaults filled in, known to be sound."""

    intentions: tuple[Intention, ...]
    max_invocations: int


def check_options(options: BdiOptions, system: System, problems: Problems) -> CheckedOptions:
    """The options with defaults filled in; what can't work is noted in `problems`."""
    maximum = DEFAULT_MAX_INVOCATIONS if options.max_invocations is None else options.max_invocations
    if maximum < 1:
        problems.add("bdi.max_invocations", f"must be at least 1, but is {maximum}")
    if not options.desires:
        problems.add("bdi.desires", "must name at least one desire")
    types: dict[str, int] = {}
    for position, agent in enumerate(system.agents):
        if agent.type in types:
            problems.add(f"agents[{position}].type", f"'{agent.type}' is the type of agents[{types[agent.type]}] too")
        types.setdefault(agent.type, position)
    seen: set[str] = set()
    intentions = []
    for position, desire in enumerate(options.desires):
        path = f"bdi.desires[{position}]"
        if is_blank(desire.name):
            problems.add(f"{path}.name", "must not be blank")
        elif desire.name in seen:
            problems.add(f"{path}.name", f"'{desire.name}' is the name of another desire too")
        seen.add(desire.name)
        if not desire.agent_types:
            problems.add(f"{path}.agent_types", "must name at least one agent")
        for index, kind in enumerate(desire.agent_types):
            if kind not in types:
                problems.add(f"{path}.agent_types[{index}]", f"no agent has the type '{kind}'")
        for name, condition in (("achievable", desire.achievable), ("satisfied", desire.satisfied)):
            if condition is None:
                problems.add(f"{path}.{name}", "is required")
            else:
                check_condition(condition, f"{path}.{name}", problems)
        if desire.achievable is not None and desire.satisfied is not None:
            agents = tuple(types.get(kind, 0) for kind in desire.agent_types)
            intentions.append(Intention(desire.name, desire.priority, desire.achievable, desire.satisfied, agents))
    return CheckedOptions(tuple(intentions), maximum)
