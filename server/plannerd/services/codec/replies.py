"""Replies: what a step decided, as the client reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google.protobuf.duration_pb2 import Duration

from plannerd.decisions.wire import encode_answer, encode_field, encode_question, encode_truncation, encode_usage
from plannerd.invocations.calls import CallStatus, LiveCall
from plannerd.invocations.commands import InitReply, StepReply
from plannerd.invocations.engine import EngineLimits
from plannerd.invocations.explanation import DecisionRecord, ExplainLevel
from plannerd.invocations.position import Position
from plannerd.invocations.record import (
    AwaitCalls,
    CallOutput,
    Finished,
    NamedOutputs,
    PlannerValue,
    ScopeOutput,
    StartCalls,
    StepAction,
    StepResult,
    SuspendCalls,
)
from plannerd.invocations.state_format import ExecutionState
from plannerd.planners.moves import (
    AgentStatus,
    Assessment,
    GiveUp,
    GiveUpReason,
    NoOp,
    Outcome,
    Warn,
    WarningCode,
)
from plannerd.planners.planner import Need
from plannerd.planners.system import Agent, Topology
from plannerd.services.codec.configuration import InitLimits
from plannerd.wire.values import encode_value
from plannerd_protos.planner.v1 import planner_pb2, planners_pb2, step_pb2, value_pb2

# The domain's names are those of the contract, without its prefixes.
_NEEDS: Final = {need: value_pb2.Need.Value(f"NEED_{need.name}") for need in Need}
_STATUSES: Final = {status: step_pb2.CallStatus.Value(f"CALL_STATUS_{status.name}") for status in CallStatus}
_TOPOLOGIES: Final = {shape: planners_pb2.Topology.Value(f"TOPOLOGY_{shape.name}") for shape in Topology}
_GIVE_UP: Final = {reason: step_pb2.GiveUpReason.Value(f"GIVE_UP_REASON_{reason.name}") for reason in GiveUpReason}
_OUTCOMES: Final = {outcome: step_pb2.StepOutcome.Value(f"STEP_OUTCOME_{outcome.name}") for outcome in Outcome}
_AGENT_STATUSES: Final = {status: step_pb2.AgentStatus.Value(f"AGENT_STATUS_{status.name}") for status in AgentStatus}
_WARNINGS: Final = {code: step_pb2.WarningCode.Value(f"WARNING_CODE_{code.name}") for code in WarningCode}


def encode_topology(topology: Topology) -> planners_pb2.Topology.ValueType:
    """The wire form of a topology."""
    return _TOPOLOGIES[topology]


def encode_call_status(status: CallStatus) -> step_pb2.CallStatus.ValueType:
    """The wire form of how a call stands."""
    return _STATUSES[status]


def encode_give_up_reason(reason: GiveUpReason) -> step_pb2.GiveUpReason.ValueType:
    """The wire form of why a planner gave up."""
    return _GIVE_UP[reason]


def encode_duration(seconds: float) -> Duration:
    """The wire form of a duration."""
    whole = int(seconds)
    return Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def encode_init(
    reply: InitReply, limits: EngineLimits, init: InitLimits, max_request_bytes: int, retained: float
) -> planner_pb2.InitResponse:
    """The answer to Init.

    Args:
        reply: what the engine says.
        limits: the bounds of the engine.
        init: what one Init may bring.
        max_request_bytes: bytes of one request.
        retained: seconds that an untouched invocation is kept.
    """
    return planner_pb2.InitResponse(
        position=encode_position(reply.position) if reply.position else None,
        topology=encode_topology(reply.topology),
        warnings=encode_warnings(reply.warnings),
        reads={key: _NEEDS[need] for key, need in reply.reads.items()},
        beliefs=reply.beliefs,
        durable=reply.durable,
        retained_for=encode_duration(retained),
        limits=planner_pb2.Limits(
            max_request_bytes=max_request_bytes,
            max_reply_bytes=limits.max_reply_bytes,
            max_agents=init.max_agents,
            max_scope_bytes=limits.scope.max_bytes,
            max_scope_keys=limits.scope.max_keys,
        ),
        model=reply.model,
    )


def encode_step(reply: StepReply) -> bytes:
    """The answer to FirstAction, NextAction and ExecutionState: all three have the step as field 1."""
    if reply.stored:
        message = planner_pb2.NextActionResponse.FromString(reply.stored)
        if reply.state is not None:
            message.step.state.CopyFrom(_encode_state(reply.state))
        return message.SerializeToString()
    planner = reply.definition.planner
    agents = planner.system.agents
    step = step_pb2.Step(
        position=encode_position(reply.position),
        action=_encode_action(reply.action),
        calls=[_encode_call(call, agents[call.agent], planner.output_need(call.agent)) for call in reply.calls],
        state=_encode_state(reply.state) if reply.state else None,
        explanation=encode_explanation(reply, agents),
        warnings=encode_warnings(reply.warnings),
        traceparent=reply.traceparent,
    )
    return planner_pb2.NextActionResponse(step=step).SerializeToString()


def encode_position(position: Position) -> step_pb2.Position:
    """The wire form of a position."""
    return step_pb2.Position(epoch=position.epoch, revision=position.revision, branch=position.branch)


def encode_warnings(warnings: Iterable[Warn]) -> list[step_pb2.Warning]:
    """The wire form of warnings."""
    return [
        step_pb2.Warning(code=_WARNINGS[warn.code], message=warn.message, agent_id=warn.agent_id) for warn in warnings
    ]


def _encode_action(action: StepAction) -> step_pb2.Action:
    match action:
        case StartCalls(call_ids):
            return step_pb2.Action(start=step_pb2.Start(call_ids=call_ids))
        case AwaitCalls(keys, call_ids):
            return step_pb2.Action(**{"await": step_pb2.Await(keys=keys, call_ids=call_ids)})  # type: ignore[arg-type]
        case SuspendCalls(call_ids):
            return step_pb2.Action(suspend=step_pb2.Suspend(call_ids=call_ids))
        case GiveUp(reason, message):
            return step_pb2.Action(give_up=step_pb2.GiveUp(reason=_GIVE_UP[reason], message=message))
        case NoOp():
            return step_pb2.Action(no_op=step_pb2.NoOp())
        case Finished(result):
            return step_pb2.Action(done=step_pb2.Done(result=_encode_result(result)))


def _encode_result(result: StepResult | None) -> step_pb2.Result | None:
    match result:
        case None:
            return None
        case CallOutput(call_id):
            return step_pb2.Result(output_of=call_id)
        case ScopeOutput(key):
            return step_pb2.Result(scope_key=key)
        case NamedOutputs(outputs):
            named = [_encode_named(name, source) for name, source in outputs]
            return step_pb2.Result(outputs=step_pb2.NamedOutputs(outputs=named))
        case PlannerValue(value):
            return step_pb2.Result(value=encode_value(value))


def _encode_named(name: str, source: CallOutput | ScopeOutput | None) -> step_pb2.NamedOutput:
    match source:
        case None:
            return step_pb2.NamedOutput(name=name)
        case CallOutput(call_id):
            return step_pb2.NamedOutput(name=name, call_id=call_id)
        case ScopeOutput(key):
            return step_pb2.NamedOutput(name=name, scope_key=key)


def _encode_call(call: LiveCall, agent: Agent, need: Need) -> step_pb2.Call:
    return step_pb2.Call(
        id=call.id,
        agent_id=agent.id,
        status=_STATUSES[call.status],
        output_need=_NEEDS[need],
        response_id=call.response_id,
        external=call.external,
        final=call.final,
    )


def _encode_state(state: ExecutionState) -> step_pb2.ExecutionState:
    return step_pb2.ExecutionState(
        planner=state.planner,
        format_version=state.format_version,
        invocation_id=state.invocation_id,
        position=encode_position(state.position),
        data=state.data,
    )


def encode_explanation(reply: StepReply, agents: tuple[Agent, ...]) -> step_pb2.Explanation:
    """The reasons of a step, as detailed as the reply says."""
    explanation = reply.explanation
    message = step_pb2.Explanation(
        outcome=_OUTCOMES[explanation.outcome],
        summary=explanation.summary,
        duration=encode_duration(explanation.seconds),
        shortened=reply.shortened,
    )
    if reply.level is ExplainLevel.NONE:
        return message
    message.agents.extend(_encode_assessment(found, agents[found.agent]) for found in explanation.agents)
    if explanation.goal is not None:
        goal = explanation.goal
        message.goal.CopyFrom(
            step_pb2.GoalAssessment(
                probability=goal.probability, threshold=goal.threshold, result_missing=goal.result_missing
            )
        )
    full = reply.level is ExplainLevel.FULL
    if full:
        message.conditions.extend(
            step_pb2.ConditionOutcome(subject=found.subject, condition=found.condition, holds=found.holds)
            for found in explanation.conditions
        )
    message.decisions.extend(
        _encode_decision(decision, full=full, include_input=reply.include_input) for decision in explanation.decisions
    )
    return message


def _encode_assessment(found: Assessment, agent: Agent) -> step_pb2.AgentAssessment:
    return step_pb2.AgentAssessment(
        agent_id=agent.id,
        status=_AGENT_STATUSES[found.status],
        score=found.score,
        threshold=found.threshold,
        called=found.called,
        missing_keys=found.missing_keys,
    )


def _encode_decision(decision: DecisionRecord, *, full: bool, include_input: bool) -> step_pb2.DecisionRecord:
    response = decision.response
    message = step_pb2.DecisionRecord(
        model=decision.model,
        resolved_model=response.model,
        provider=decision.provider,
        input_digest=decision.input_digest,
        usage=encode_usage(response.usage),
        latency=encode_duration(decision.seconds),
        retries=response.retries,
        part=decision.part,
        parts=decision.parts,
    )
    if response.truncation is not None:
        message.truncation.CopyFrom(encode_truncation(response.truncation))
    if full:
        message.questions.extend(encode_question(question) for question in decision.request.questions)
        message.answers.extend(
            encode_answer(question.name, response.answers[question.name]) for question in decision.request.questions
        )
    if include_input:
        message.input.extend(encode_field(field) for field in decision.request.input)
    return message
