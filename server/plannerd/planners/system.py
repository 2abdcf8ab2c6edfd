"""A system of agents, as its client describes it, checked once at Init."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from plannerd.conditions import BeliefHolds, Condition, PresentKey
from plannerd.errors import PlannerdError, Reason, Violation
from plannerd.values import is_blank

MAX_NAME_CHARS: Final = 256
"""The longest name, id, type or key of an agent: each of them travels in every answer."""


class OutputType(enum.Enum):
    """The declared type of an output, as far as a planner cares."""

    ANY = "any"
    MAP = "map"
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"
    NONE = "none"


class Topology(enum.Enum):
    """The shape of a system of agents, for display."""

    SEQUENCE = "sequence"
    ROUTER = "router"
    STAR = "star"
    PARALLEL = "parallel"
    LOOP = "loop"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an agent, read from the scope key `name`."""

    name: str
    optional: bool = False
    has_default: bool = False

    @property
    def framework(self) -> bool:
        """Whether it belongs to the client's framework, and is none of the planner's business."""
        return self.name.startswith("@")

    @property
    def mandatory(self) -> bool:
        """Whether the agent can't run without it."""
        return not (self.optional or self.has_default or self.framework)


@dataclass(frozen=True, slots=True)
class Agent:
    """A subagent. `description` is None where its name stands in; `unavailable` where it can't be read."""

    name: str
    id: str = ""
    type: str = ""
    description: str | None = None
    unavailable: bool = False
    arguments: tuple[Argument, ...] = ()
    output_key: str | None = None
    output_type: OutputType = OutputType.ANY
    is_async: bool = False
    optional: bool = False
    human: bool = False
    activation: Condition | None = None

    @property
    def described(self) -> str:
        """The description, or the name where there is none."""
        return self.name if self.description is None else self.description


@dataclass(frozen=True, slots=True)
class PlannerAgent:
    """The agent whose method the caller invoked; the planner works for it."""

    name: str = ""
    arguments: tuple[Argument, ...] = ()
    output_key: str | None = None
    output_type: OutputType = OutputType.ANY

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its arguments without the framework's, in order."""
        return tuple(argument.name for argument in self.arguments if not argument.framework)


@dataclass(frozen=True, slots=True)
class System:
    """The planner agent and its subagents, ids and types filled in. Made by `check_system`."""

    planner_agent: PlannerAgent
    agents: tuple[Agent, ...]
    references: tuple[str, ...] = ()
    by_reference: Mapping[str, int] = field(default_factory=dict, compare=False)

    def writers(self, key: str) -> tuple[Agent, ...]:
        """The agents that write `key`, in the order of declaration."""
        return tuple(agent for agent in self.agents if agent.output_key == key)

    @property
    def output_keys(self) -> tuple[str, ...]:
        """Every output key once, by its first declared writer."""
        return tuple(dict.fromkeys(agent.output_key for agent in self.agents if agent.output_key))

    @property
    def result_key_written(self) -> bool:
        """Whether some subagent writes the planner agent's output key."""
        key = self.planner_agent.output_key
        return key is not None and any(agent.output_key == key for agent in self.agents)

    def reference(self, position: int) -> str:
        """What an agent is called in states and questions: its name, or its id if it shares the name."""
        return self.references[position]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The activation conditions of all agents."""
        return tuple(agent.activation for agent in self.agents if agent.activation is not None)


class Problems:
    """Collects what is wrong with a configuration, so that a client sees all of it at once."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    def add(self, path: str, problem: str) -> None:
        """Note that the field at `path` has `problem`."""
        self.violations.append(Violation(path, problem))

    def raise_if_any(self) -> None:
        """Raise INVALID_CONFIGURATION with everything that was noted."""
        if self.violations:
            first = self.violations[0]
            more = f" (and {len(self.violations) - 1} more)" if len(self.violations) > 1 else ""
            raise PlannerdError(
                Reason.INVALID_CONFIGURATION,
                f"{first.field}: {first.problem}{more}",
                violations=self.violations,
            )


def _check_arguments(arguments: Sequence[Argument], path: str, problems: Problems) -> None:
    seen: set[str] = set()
    for position, argument in enumerate(arguments):
        where = f"{path}[{position}].name"
        if is_blank(argument.name):
            problems.add(where, "must not be blank: it is the scope key that the argument is read from")
        elif len(argument.name) > MAX_NAME_CHARS:
            problems.add(where, f"has {len(argument.name)} characters, but may have {MAX_NAME_CHARS}")
        elif argument.name in seen:
            problems.add(where, f"'{argument.name}' is declared twice; declare each argument once")
        seen.add(argument.name)


def _check_output_key(key: str | None, path: str, problems: Problems) -> None:
    if key is not None and is_blank(key):
        problems.add(path, "must not be blank; leave it empty for an output that is not kept in the scope")
    elif key is not None and len(key) > MAX_NAME_CHARS:
        problems.add(path, f"has {len(key)} characters, but may have {MAX_NAME_CHARS}")


def check_condition(condition: Condition, path: str, problems: Problems) -> None:
    """Note what is wrong with a condition declared at `path`."""
    match condition:
        case PresentKey(key) if is_blank(key):
            problems.add(f"{path}.present_key", "must not be blank: it names a scope key")
        case BeliefHolds(name) if is_blank(name):
            problems.add(f"{path}.belief", "must not be blank: it names a belief that the client evaluates")
        case _:
            pass


def check_system(planner_agent: PlannerAgent, agents: Sequence[Agent], problems: Problems) -> System:
    """Fill in ids and types, and note what no planner could work with.

    Args:
        planner_agent: the agent that the planner works for.
        agents: the subagents in the order of declaration, ids and types empty where they default.
        problems: where problems are noted.
    """
    if not agents:
        problems.add("agents", "must name at least one subagent")
    _check_arguments(planner_agent.arguments, "planner_agent.arguments", problems)
    _check_output_key(planner_agent.output_key, "planner_agent.output_key", problems)
    named = tuple(
        replace(
            agent,
            id=agent.id or f"{agent.name}${position}",
            type=agent.type or agent.name,
            # A blank description says nothing, so the name stands in for it.
            description=None if agent.description is None or is_blank(agent.description) else agent.description,
        )
        for position, agent in enumerate(agents)
    )
    names = {agent.name for agent in named}
    index: dict[str, int] = {}
    for position, agent in enumerate(named):
        path = f"agents[{position}]"
        if is_blank(agent.name):
            problems.add(f"{path}.name", "must not be blank")
        for name, text in (("name", agent.name), ("id", agent.id), ("type", agent.type)):
            if len(text) > MAX_NAME_CHARS:
                problems.add(f"{path}.{name}", f"has {len(text)} characters, but may have {MAX_NAME_CHARS}")
        if agent.id in index:
            problems.add(f"{path}.id", f"'{agent.id}' is the id of agents[{index[agent.id]}] too; ids must be unique")
        elif agent.id in names and (agent.id != agent.name or sum(o.name == agent.id for o in named) > 1):
            problems.add(f"{path}.id", f"'{agent.id}' is the name of another agent; ids and names must not collide")
        index.setdefault(agent.id, position)
        _check_arguments(agent.arguments, f"{path}.arguments", problems)
        _check_output_key(agent.output_key, f"{path}.output_key", problems)
        if agent.activation is not None:
            check_condition(agent.activation, f"{path}.activation", problems)
        if agent.output_key is None and (agent.is_async or agent.human):
            kind = "asynchronous" if agent.is_async else "human-in-the-loop"
            problems.add(
                f"{path}.output_key",
                f"'{agent.name}' is {kind}: its output comes later and is read from the scope, so it needs one",
            )
    counts = Counter(agent.name for agent in named)
    references = tuple(agent.id if counts[agent.name] > 1 else agent.name for agent in named)
    return System(planner_agent, named, references, {name: position for position, name in enumerate(references)})


def check_typed(system: System, planner: str, problems: Problems) -> None:
    """Note a planner agent without arguments: a decision would have nothing to decide on."""
    if not system.planner_agent.inputs:
        problems.add(
            "planner_agent.arguments",
            f"the {planner} needs a planner agent with at least one argument whose name does not start with '@': "
            "the arguments are what the decision model decides on",
        )
