"""What a run is: planner, agents and planner agent, as the server and the runner see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from plannerd_client._agents import AnyAgent, as_agent
from plannerd_client._conditions import BeliefFunction, Beliefs
from plannerd_client._planners import Planner, fill_planner
from plannerd_client._signatures import output_type_of
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2

ExplainLevel: TypeAlias = Literal["none", "summary", "full"]

_LEVELS: Final = {
    "none": planner_pb2.EXPLAIN_LEVEL_NONE,
    "summary": planner_pb2.EXPLAIN_LEVEL_SUMMARY,
    "full": planner_pb2.EXPLAIN_LEVEL_FULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """How decisions are made.

    Args:
        model: the name of a decision model that the server is configured with. Empty: its default.
        timeout: seconds that one request to the model may take. None: as the server is configured.
        split: ask a decision that has more questions than the model takes in several requests.
        expected_model: the model, as it names itself, that the thresholds were tuned on; another gives a warning.
        strict: another model than the expected one is an error.
    """

    model: str = ""
    timeout: float | None = None
    split: bool = False
    expected_model: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ParentCall:
    """The call of another invocation that a run serves, for traces."""

    invocation_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class PlannerAgent:
    """The agent that a planner works for: its name, its arguments in order, where its result goes and of what type."""

    name: str
    arguments: tuple[str, ...]
    output_key: str
    output_type: int


@dataclass(frozen=True, slots=True)
class Definition:
    """The request that describes a run, and what stands behind the names in it."""

    request: planner_pb2.InitRequest
    planner_agent: PlannerAgent
    agents: Mapping[str, AnyAgent]
    beliefs: Mapping[str, BeliefFunction]


def _level(explain: str) -> planner_pb2.ExplainLevel.ValueType:
    level = _LEVELS.get(explain)
    if level is None:
        raise ValueError(f"explain must be one of {', '.join(_LEVELS)}, not {explain!r}")
    return level


def define(
    planner: Planner,
    agents: Iterable[AnyAgent | Callable[..., Any]],
    planner_agent: PlannerAgent,
    *,
    beliefs: Mapping[str, BeliefFunction],
    model: str | DecisionOptions = "",
    explain: ExplainLevel = "summary",
    include_input: bool = False,
    max_reply_bytes: int = 0,
    parent: ParentCall | None = None,
) -> Definition:
    """Describe a run. The request has neither an invocation id nor anything to resume from yet.

    Raises:
        TypeError, UnsupportedValue: something can't be described.
        ValueError: two agents have one id.
    """
    functions = Beliefs(beliefs)
    request = planner_pb2.InitRequest(
        explain=_level(explain), include_input=include_input, max_reply_bytes=max_reply_bytes
    )
    fill_planner(request, planner, functions)
    request.planner_agent.name = planner_agent.name
    request.planner_agent.output_key = planner_agent.output_key
    request.planner_agent.output_type = agent_pb2.OutputType.ValueType(planner_agent.output_type)
    for argument in planner_agent.arguments:
        request.planner_agent.arguments.add(name=argument)
    by_id = _by_id([as_agent(function) for function in agents])
    for agent_id, one in by_id.items():
        _fill_agent(request.agents.add(), agent_id, one, functions)
    _fill_decision(request.decision, model)
    if parent is not None:
        request.parent.invocation_id, request.parent.call_id = parent.invocation_id, parent.call_id
    return Definition(request, planner_agent, by_id, functions.functions)


def planner_agent_of(name: str, arguments: Iterable[str], output_key: str, output_type: Any) -> PlannerAgent:
    """The planner agent; `output_type` is an annotation."""
    return PlannerAgent(name, tuple(arguments), output_key, output_type_of(output_type))


def _by_id(agents: Sequence[AnyAgent]) -> dict[str, AnyAgent]:
    by_id: dict[str, AnyAgent] = {}
    for position, one in enumerate(agents):
        agent_id = one.id or f"{one.name}${position}"
        if agent_id in by_id:
            raise ValueError(f"two agents have the id {agent_id!r}")
        by_id[agent_id] = one
    return by_id


def _fill_agent(target: agent_pb2.Agent, agent_id: str, one: AnyAgent, beliefs: Beliefs) -> None:
    target.id, target.name = one.id, one.name
    target.type = one.type if one.type != one.name else ""
    if not one.available:
        target.unavailable.message = one.description
    elif one.description:
        target.text = one.description
    for parameter in one.parameters:
        has_default = not parameter.mandatory and parameter.fallback is not None
        target.arguments.add(name=parameter.key, optional=parameter.optional, has_default=has_default)
    target.output_key, target.output_type = one.output_key, one.output_type
    target.optional, target.human = one.optional, one.human
    setattr(target, "async", one.async_)  # a keyword of the language
    if one.activation is not None:
        beliefs.fill(target.activation, one.activation, f"agent:{agent_id}:activation")


def _fill_decision(target: planner_pb2.DecisionOptions, model: str | DecisionOptions) -> None:
    options = DecisionOptions(model=model) if isinstance(model, str) else model
    target.model, target.split = options.model, options.split
    target.expected_model, target.strict = options.expected_model, options.strict
    if options.timeout is not None:
        target.timeout.FromNanoseconds(round(options.timeout * 1e9))
