"""The planners and their configurations, one to one with the messages of the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plannerd_client._agents import AnyAgent, as_agent
from plannerd_client._conditions import Beliefs, ConditionLike
from plannerd_client._values import encode, plain
from plannerd_protos.planner.v1 import planner_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Decision scheduler: at each step a decision model says which agent would be most useful, and when to stop.

    Args:
        goal: the goal, for instance "The reply answers every question of the customer's ticket".
        goal_threshold: the least probability that the goal is reached for the planner to stop, between 0 and 1.
        activation_threshold: the least score, from 0 to 1, for the most useful agent to run, between 0 and 1.
        max_invocations: how many agents run at most. None: the server's default, 10.
        goal_question_template: the question about the goal; may use `{{goal}}`. None: the default.
        usefulness_question_template: the question about one agent; must use `{{name}}` or `{{description}}`, may use
            `{{goal}}`. None: the default.
        usefulness_levels: its levels, lowest first, at least 2. Empty: USELESS, MARGINAL, USEFUL, ESSENTIAL.
        excluded_output_keys: output keys of agents that the decision model must not see.
    """

    goal: str
    goal_threshold: float
    activation_threshold: float
    max_invocations: int | None = None
    goal_question_template: str | None = None
    usefulness_question_template: str | None = None
    usefulness_levels: Sequence[str] = ()
    excluded_output_keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Decision router: a decision model chooses which agents handle a request.

    Args:
        activation_threshold: None: the one agent that suits best runs, and its output is the result. Between 0 and
            1: all agents that reach it run at the same time, and the result is a dict from name to output.
        choice_question: the question of the first kind. None: the default.
        relevance_question_template: the question about one agent of the second kind; must use `{{name}}` or
            `{{description}}`. None: the default.
    """

    activation_threshold: float | None = None
    choice_question: str | None = None
    relevance_question_template: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """Confidence cascade: agents are tried in order until a decision model accepts an answer.

    Args:
        acceptance_threshold: the least probability of "yes" for an answer to be accepted, between 0 and 1.
        acceptance_criterion: when an answer should be accepted. None: left to the model.
        grading_question: the question about an answer. None: the default.
    """

    acceptance_threshold: float
    acceptance_criterion: str | None = None
    grading_question: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Desire:
    """One goal of a `Bdi` planner.

    Args:
        name: unique among the desires.
        agents: what fulfils it, in order: agents or their types. A type may occur twice.
        achievable: when it can be pursued.
        satisfied: when it is fulfilled.
        priority: higher goes first; among equals the first declared.
    """

    name: str
    agents: Sequence[AnyAgent | Callable[..., Any] | str]
    achievable: ConditionLike
    satisfied: ConditionLike
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Bdi:
    """Beliefs, desires, intentions: the achievable desire of the highest priority is pursued.

    Args:
        desires: the desires, at least one.
        max_invocations: how many agents run at most; one more gives up. None: the server's default, 50.
    """

    desires: Sequence[Desire]
    max_invocations: int | None = None


@dataclass(frozen=True, slots=True)
class Plugin:
    """A planner that the server's operator added.

    Args:
        name: as in `list_planners`.
        configuration: its configuration; any map that travels.
    """

    name: str
    configuration: Mapping[str, Any] = field(default_factory=dict)


Planner: TypeAlias = Scheduler | Router | Cascade | Bdi | Plugin


def fill_planner(request: planner_pb2.InitRequest, planner: Planner, beliefs: Beliefs) -> None:
    """Write `planner` into `request`; its functions become `beliefs`.

    Raises:
        UnsupportedValue: the configuration of a plug-in has something that can't travel.
        TypeError: `planner` is none.
    """
    match planner:
        case Scheduler():
            scheduler = request.scheduler
            _set(scheduler, planner, "goal goal_threshold activation_threshold max_invocations goal_question_template")
            _set(scheduler, planner, "usefulness_question_template")
            scheduler.usefulness_levels.extend(planner.usefulness_levels)
            scheduler.excluded_output_keys.extend(planner.excluded_output_keys)
        case Router():
            _set(request.router, planner, "activation_threshold choice_question relevance_question_template")
        case Cascade():
            _set(request.cascade, planner, "acceptance_threshold acceptance_criterion grading_question")
        case Bdi():
            _set(request.bdi, planner, "max_invocations")
            for desire in planner.desires:
                target = request.bdi.desires.add(name=desire.name, priority=desire.priority)
                beliefs.fill(target.achievable, desire.achievable, f"desire:{desire.name}:achievable")
                beliefs.fill(target.satisfied, desire.satisfied, f"desire:{desire.name}:satisfied")
                target.agent_types.extend(
                    item if isinstance(item, str) else as_agent(item).type for item in desire.agents
                )
        case Plugin():
            request.plugin.name = planner.name
            configuration = encode(plain(dict(planner.configuration), "configuration"))
            request.plugin.configuration.CopyFrom(configuration.map_value)
        case _:
            raise TypeError(f"{planner!r} is no planner: use Scheduler, Router, Cascade, Bdi or Plugin")


def _set(target: Any, planner: object, names: str) -> None:
    """Copy the attributes of `planner` that are not None; the message is there even when all are."""
    target.SetInParent()
    for name in names.split():
        value = getattr(planner, name)
        if value is not None:
            try:
                setattr(target, name, value)
            except TypeError as error:
                raise TypeError(f"{type(planner).__name__}.{name}: {error}") from None
            except ValueError as error:
                raise ValueError(f"{type(planner).__name__}.{name}: {error}") from None
