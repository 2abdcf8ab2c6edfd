"""Init requests: planner, agents, options, and the state to continue from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from google.protobuf.duration_pb2 import Duration

from plannerd.conditions import BeliefHolds, Cel, Condition, PresentKey
from plannerd.conditions.cel import compile_cel
from plannerd.errors import check_limit, invalid
from plannerd.invocations.commands import Configuration, InitCommand
from plannerd.invocations.explanation import ExplainLevel
from plannerd.invocations.position import Position
from plannerd.invocations.record import InvocationOptions
from plannerd.invocations.state_format import ExecutionState
from plannerd.planners.bdi import BdiOptions, Desire
from plannerd.planners.cascade import CascadeOptions
from plannerd.planners.registry import PlannerOptions, PluginOptions
from plannerd.planners.router import RouterOptions
from plannerd.planners.scheduler import SchedulerOptions
from plannerd.planners.system import Agent, Argument, OutputType, PlannerAgent
from plannerd.telemetry.context import parse
from plannerd.wire.values import DEFAULT_LIMITS, ValueLimits, ValueReader
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2, step_pb2

MAX_ID_CHARS: Final = 128

# What a compiled definition takes for each byte of its description, measured: texts stay in questions, and the
# tree of a CEL expression is much larger than its text.
_BYTES_PER_BYTE: Final = 6
_BYTES_PER_CEL_CHARACTER: Final = 300

_OUTPUT_TYPES: Final[Mapping[int, OutputType]] = {
    agent_pb2.OUTPUT_TYPE_UNSPECIFIED: OutputType.ANY,
    agent_pb2.OUTPUT_TYPE_ANY: OutputType.ANY,
    agent_pb2.OUTPUT_TYPE_MAP: OutputType.MAP,
    agent_pb2.OUTPUT_TYPE_TEXT: OutputType.TEXT,
    agent_pb2.OUTPUT_TYPE_NUMBER: OutputType.NUMBER,
    agent_pb2.OUTPUT_TYPE_BOOLEAN: OutputType.BOOLEAN,
    agent_pb2.OUTPUT_TYPE_LIST: OutputType.LIST,
    agent_pb2.OUTPUT_TYPE_OBJECT: OutputType.OBJECT,
    agent_pb2.OUTPUT_TYPE_NONE: OutputType.NONE,
}
_EXPLAIN: Final = {
    planner_pb2.EXPLAIN_LEVEL_UNSPECIFIED: ExplainLevel.SUMMARY,
    planner_pb2.EXPLAIN_LEVEL_NONE: ExplainLevel.NONE,
    planner_pb2.EXPLAIN_LEVEL_SUMMARY: ExplainLevel.SUMMARY,
    planner_pb2.EXPLAIN_LEVEL_FULL: ExplainLevel.FULL,
}


@dataclass(frozen=True, slots=True)
class InitLimits:
    """What one Init may bring.

    Attributes:
        max_agents: subagents.
        max_parts: arguments, desires, agents of desires, levels and excluded keys together.
        max_cel_characters: of all CEL conditions together; compiling them holds the event loop.
        max_state_bytes: of the state to resume from; checking it holds the event loop.
        values: how deep values are nested, and how many there are in one request.
    """

    max_agents: int = 200
    max_parts: int = 10_000
    max_cel_characters: int = 16_384
    max_state_bytes: int = 256 << 10
    values: ValueLimits = DEFAULT_LIMITS


def check_invocation_id(invocation_id: str) -> str:
    """The id, if it may be one.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    if not 1 <= len(invocation_id) <= MAX_ID_CHARS:
        raise invalid("invocation_id", f"must have 1 to {MAX_ID_CHARS} characters, but has {len(invocation_id)}")
    if not invocation_id.isprintable() or invocation_id != invocation_id.strip():
        raise invalid("invocation_id", "must have printable characters only, and no spaces at either end")
    return invocation_id


def decode_position(message: step_pb2.Position) -> Position:
    """A position, as it is."""
    return Position(message.epoch, message.revision, message.branch)


def decode_init(request: planner_pb2.InitRequest, traceparent: str, limits: InitLimits) -> InitCommand:
    """What an Init asks for.

    Args:
        request: from the wire.
        traceparent: the caller's trace context; what is none is passed over.
        limits: what one Init may bring.

    Raises:
        PlannerdError: INVALID_REQUEST, INVALID_VALUE, INVALID_CONDITION, LIMIT_EXCEEDED or NOT_IMPLEMENTED.
    """
    _check_limits(request, limits)
    reader = ValueReader(limits.values)
    if request.take_over and request.WhichOneof("resume") is None:
        raise invalid("take_over", "needs a state or planner_map to resume from")
    state = None
    planner_map = None
    if request.HasField("state"):
        state = ExecutionState(
            request.state.planner,
            request.state.format_version,
            request.state.invocation_id,
            decode_position(request.state.position),
            request.state.data,
        )
    elif request.HasField("planner_map"):
        planner_map = reader.map(request.planner_map, "planner_map")
    return InitCommand(
        invocation_id=check_invocation_id(request.invocation_id),
        configuration=_decode_configuration(request, _source(request), reader),
        options=_decode_options(request),
        state=state,
        planner_map=planner_map,
        take_over=request.take_over,
        validate_only=request.validate_only,
        traceparent=traceparent if parse(traceparent) is not None else "",
    )


def read_configuration(source: bytes) -> Configuration:
    """The configuration that was read from these bytes before, perhaps by another process.

    Raises:
        PlannerdError: as `decode_init`; only where another version of the server has other rules.
    """
    as_it_was = ValueReader(ValueLimits(values=len(source)))
    return _decode_configuration(planner_pb2.InitRequest.FromString(source), source, as_it_was)


def _decode_configuration(request: planner_pb2.InitRequest, source: bytes, reader: ValueReader) -> Configuration:
    return Configuration(
        planner=_decode_planner(request, reader),
        planner_agent=_decode_planner_agent(request.planner_agent),
        agents=tuple(_decode_agent(agent, f"agents[{position}]") for position, agent in enumerate(request.agents)),
        source=source,
        key=hashlib.blake2b(source, digest_size=16).digest(),
        size=_BYTES_PER_BYTE * len(source) + _BYTES_PER_CEL_CHARACTER * _cel_characters(request),
    )


def _check_limits(request: planner_pb2.InitRequest, limits: InitLimits) -> None:
    """Refuse what is too much before anything is made of it, so that it does not cost much either."""
    desires = request.bdi.desires
    parts = sum(len(agent.arguments) for agent in request.agents) + len(request.planner_agent.arguments)
    parts += len(desires) + sum(len(desire.agent_types) for desire in desires)
    parts += len(request.scheduler.usefulness_levels) + len(request.scheduler.excluded_output_keys)
    check_limit("max_agents", "The agents", len(request.agents), limits.max_agents)
    check_limit(
        "max_parts", "The arguments, desires, agents of desires, levels and excluded keys", parts, limits.max_parts
    )
    check_limit(
        "max_cel_characters",
        "The characters of all CEL conditions",
        _cel_characters(request),
        limits.max_cel_characters,
    )
    check_limit("max_state_bytes", "The bytes of the state", len(request.state.data), limits.max_state_bytes)


def _source(request: planner_pb2.InitRequest) -> bytes:
    """The part of an Init that makes its definition, always in the same bytes."""
    configuration = planner_pb2.InitRequest(planner_agent=request.planner_agent, agents=request.agents)
    kind = request.WhichOneof("planner")
    if kind is not None:
        getattr(configuration, kind).CopyFrom(getattr(request, kind))
    return configuration.SerializeToString(deterministic=True)


def _cel_characters(request: planner_pb2.InitRequest) -> int:
    activations = sum(len(agent.activation.cel) for agent in request.agents)
    return activations + sum(len(desire.achievable.cel) + len(desire.satisfied.cel) for desire in request.bdi.desires)


def _decode_planner(request: planner_pb2.InitRequest, reader: ValueReader) -> PlannerOptions:
    match request.WhichOneof("planner"):
        case "scheduler":
            return _decode_scheduler(request.scheduler)
        case "router":
            return _decode_router(request.router)
        case "cascade":
            return _decode_cascade(request.cascade)
        case "bdi":
            return _decode_bdi(request.bdi)
        case "plugin":
            configuration = reader.map(request.plugin.configuration, "plugin.configuration")
            return PluginOptions(request.plugin.name, configuration)
        case _:
            raise invalid("planner", "one of scheduler, router, cascade, bdi and plugin must be set")


def _decode_scheduler(message: planners_pb2.SchedulerConfig) -> SchedulerOptions:
    return SchedulerOptions(
        goal=message.goal,
        goal_threshold=message.goal_threshold if message.HasField("goal_threshold") else None,
        activation_threshold=message.activation_threshold if message.HasField("activation_threshold") else None,
        max_invocations=message.max_invocations if message.HasField("max_invocations") else None,
        goal_question=message.goal_question_template if message.HasField("goal_question_template") else None,
        usefulness_question=(
            message.usefulness_question_template if message.HasField("usefulness_question_template") else None
        ),
        usefulness_levels=tuple(message.usefulness_levels),
        excluded_output_keys=tuple(message.excluded_output_keys),
    )


def _decode_router(message: planners_pb2.RouterConfig) -> RouterOptions:
    return RouterOptions(
        activation_threshold=message.activation_threshold if message.HasField("activation_threshold") else None,
        choice_question=message.choice_question if message.HasField("choice_question") else None,
        relevance_question=(
            message.relevance_question_template if message.HasField("relevance_question_template") else None
        ),
    )


def _decode_cascade(message: planners_pb2.CascadeConfig) -> CascadeOptions:
    return CascadeOptions(
        acceptance_threshold=message.acceptance_threshold if message.HasField("acceptance_threshold") else None,
        acceptance_criterion=message.acceptance_criterion if message.HasField("acceptance_criterion") else None,
        grading_question=message.grading_question if message.HasField("grading_question") else None,
    )


def _decode_bdi(message: planners_pb2.BdiConfig) -> BdiOptions:
    def condition(desire: planners_pb2.Desire, name: Literal["achievable", "satisfied"], path: str) -> Condition | None:
        return _decode_condition(getattr(desire, name), f"{path}.{name}") if desire.HasField(name) else None

    return BdiOptions(
        desires=tuple(
            Desire(
                name=desire.name,
                priority=desire.priority,
                achievable=condition(desire, "achievable", f"bdi.desires[{position}]"),
                satisfied=condition(desire, "satisfied", f"bdi.desires[{position}]"),
                agent_types=tuple(desire.agent_types),
            )
            for position, desire in enumerate(message.desires)
        ),
        max_invocations=message.max_invocations if message.HasField("max_invocations") else None,
    )


def _decode_planner_agent(message: agent_pb2.PlannerAgent) -> PlannerAgent:
    return PlannerAgent(
        name=message.name,
        arguments=_decode_arguments(message),
        output_key=message.output_key or None,
        output_type=_decode_output_type(message.output_type, "planner_agent.output_type"),
    )


def _decode_output_type(output_type: int, path: str) -> OutputType:
    if output_type not in _OUTPUT_TYPES:
        raise invalid(path, f"{output_type} is no type of output")
    return _OUTPUT_TYPES[output_type]


def _decode_arguments(message: agent_pb2.PlannerAgent | agent_pb2.Agent) -> tuple[Argument, ...]:
    return tuple(Argument(item.name, item.optional, item.has_default) for item in message.arguments)


def _decode_agent(message: agent_pb2.Agent, path: str) -> Agent:
    described = message.WhichOneof("description")
    return Agent(
        name=message.name,
        id=message.id,
        type=message.type,
        description=message.text if described == "text" else None,
        unavailable=described == "unavailable",
        arguments=_decode_arguments(message),
        output_key=message.output_key or None,
        output_type=_decode_output_type(message.output_type, f"{path}.output_type"),
        is_async=getattr(message, "async"),
        optional=message.optional,
        human=message.human,
        activation=(
            _decode_condition(message.activation, f"{path}.activation") if message.HasField("activation") else None
        ),
    )


def _decode_condition(message: agent_pb2.Condition, path: str) -> Condition:
    match message.WhichOneof("kind"):
        case "present_key":
            return PresentKey(message.present_key)
        case "belief":
            return BeliefHolds(message.belief)
        case "cel":
            return Cel(message.cel, compile_cel(message.cel, f"{path}.cel"))
        case _:
            raise invalid(path, "one of present_key, cel and belief must be set")


def _decode_options(request: planner_pb2.InitRequest) -> InvocationOptions:
    decision = request.decision
    if decision.strict and not decision.expected_model:
        raise invalid("decision.strict", "needs decision.expected_model")
    if request.max_reply_bytes < 0:
        raise invalid("max_reply_bytes", "must not be negative")
    if request.explain not in _EXPLAIN:
        raise invalid("explain", f"{request.explain} is no level of explanation")
    return InvocationOptions(
        model=decision.model,
        timeout=_decode_timeout(decision.timeout, "decision.timeout") if decision.HasField("timeout") else None,
        split=decision.split,
        expected_model=decision.expected_model,
        strict=decision.strict,
        explain=_EXPLAIN[request.explain],
        include_input=request.include_input,
        max_reply_bytes=request.max_reply_bytes,
        omit_state=request.omit_state,
    )


def _decode_timeout(message: Duration, path: str) -> float:
    seconds = message.seconds + message.nanos / 1e9
    if not 0 <= message.nanos < 1_000_000_000:
        raise invalid(path, f"has {message.nanos} nanoseconds, which must be less than a second")
    if not 0 < seconds <= 24 * 3600:
        raise invalid(path, f"must be more than 0 and at most a day, but is {seconds:g} s")
    return seconds
