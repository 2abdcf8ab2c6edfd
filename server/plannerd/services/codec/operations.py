"""What operators ask for and are shown."""

from __future__ import annotations

import math
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from plannerd.errors import invalid
from plannerd.invocations.calls import LiveCall
from plannerd.invocations.history import Note
from plannerd.invocations.operations import Query, Shown
from plannerd.invocations.record import Ending, EndOutcome, Record
from plannerd.invocations.stores import Key
from plannerd.invocations.summary import InvocationStatus, Summary
from plannerd.planners.moves import GiveUp
from plannerd.services.codec.configuration import check_invocation_id
from plannerd.services.codec.replies import (
    encode_call_status,
    encode_explanation,
    encode_give_up_reason,
    encode_position,
    encode_warnings,
)
from plannerd_protos.planner.v1 import operator_pb2, planner_pb2

DEFAULT_PAGE: Final = 50
MAX_PAGE: Final = 500
MAX_REASON_CHARS: Final = 500
_LONGEST_SECONDS: Final = 10.0**9

_STATUSES: Final = {
    status: operator_pb2.InvocationStatus.Value(f"INVOCATION_STATUS_{status.name}") for status in InvocationStatus
}
_STATUS_NAMES: Final = {int(number): status for status, number in _STATUSES.items()}
_OUTCOMES: Final = {outcome: planner_pb2.EndOutcome.Value(f"END_OUTCOME_{outcome.name}") for outcome in EndOutcome}


def decode_query(request: operator_pb2.ListInvocationsRequest) -> tuple[Query, int]:
    """What to list, and how many.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    wanted = request.filter
    unknown = [number for number in wanted.statuses if number not in _STATUS_NAMES]
    if unknown:
        raise invalid("filter.statuses", f"{unknown[0]} is no status")
    if not 0 <= request.page_size <= MAX_PAGE:
        raise invalid("page_size", f"must be from 0 to {MAX_PAGE}")
    query = Query(
        planner=wanted.planner,
        statuses=frozenset(_STATUS_NAMES[number] for number in wanted.statuses),
        identity=wanted.identity if wanted.HasField("identity") else None,
        model=wanted.model,
        prefix=wanted.invocation_id_prefix,
        min_age=_seconds("filter.min_age", wanted.min_age),
        min_idle=_seconds("filter.min_idle", wanted.min_idle),
    )
    return query, request.page_size or DEFAULT_PAGE


def decode_key(request: operator_pb2.GetInvocationRequest | operator_pb2.EndInvocationRequest) -> Key:
    """Which invocation is meant.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    return request.identity, check_invocation_id(request.invocation_id)


def decode_reason(request: operator_pb2.EndInvocationRequest) -> str:
    """Why an invocation is ended.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    reason = request.reason.strip()
    if not reason or len(reason) > MAX_REASON_CHARS or not reason.isprintable():
        raise invalid("reason", f"must be one line of 1 to {MAX_REASON_CHARS} characters: the client is told")
    return reason


def encode_status(status: InvocationStatus) -> operator_pb2.InvocationStatus.ValueType:
    """The wire form of a status."""
    return _STATUSES[status]


def encode_summary(summary: Summary) -> operator_pb2.InvocationSummary:
    """An invocation in a line."""
    return operator_pb2.InvocationSummary(
        identity=summary.identity,
        invocation_id=summary.invocation_id,
        planner=summary.planner,
        status=_STATUSES[summary.status],
        position=encode_position(summary.position),
        model=summary.model,
        began_at=_timestamp(summary.began),
        changed_at=_timestamp(summary.changed),
        live_calls=summary.calls,
        ending=_encode_ending(summary.ending) if summary.ending is not None else None,
    )


def encode_shown(shown: Shown, *, content: bool) -> operator_pb2.GetInvocationResponse:
    """An invocation; with `content`, also what questions and inputs its client asked to see."""
    response = operator_pb2.GetInvocationResponse(
        summary=encode_summary(shown.summary), steps=[_encode_note(note) for note in shown.notes]
    )
    record = shown.record
    if record is not None:
        agents = record.definition.planner.system.agents
        response.calls.extend(_encode_call(call, agents[call.agent].id) for call in record.calls)
        response.traceparent = record.traceparent
        if isinstance(record.action, GiveUp):
            response.give_up_reason = encode_give_up_reason(record.action.reason)
        if not any(step.position == response.summary.position for step in response.steps):
            response.steps.extend(_last_step(record, content))
    return response


def _last_step(record: Record, content: bool) -> list[operator_pb2.ExplainedStep]:
    """The last step as its client was told of it, where it was made by another replica."""
    if record.reply is None:
        return []
    step = planner_pb2.NextActionResponse.FromString(record.reply.encoded).step
    if not content:
        step.explanation.ClearField("conditions")
        for decision in step.explanation.decisions:
            decision.ClearField("questions")
            decision.ClearField("answers")
            decision.ClearField("input")
    return [
        operator_pb2.ExplainedStep(
            position=step.position,
            made_at=_timestamp(record.changed),
            explanation=step.explanation,
            warnings=step.warnings,
        )
    ]


def _encode_note(note: Note) -> operator_pb2.ExplainedStep:
    reply = note.reply
    return operator_pb2.ExplainedStep(
        position=encode_position(reply.position),
        made_at=_timestamp(note.made),
        explanation=encode_explanation(reply, reply.definition.planner.system.agents),
        warnings=encode_warnings(reply.warnings),
    )


def _encode_call(call: LiveCall, agent_id: str) -> operator_pb2.LiveCall:
    return operator_pb2.LiveCall(id=call.id, agent_id=agent_id, status=encode_call_status(call.status))


def _encode_ending(ending: Ending) -> operator_pb2.Ending:
    return operator_pb2.Ending(
        outcome=_OUTCOMES[ending.outcome],
        message=ending.message,
        by_operator=ending.by_operator,
        operator=ending.operator,
    )


def _timestamp(seconds: float) -> Timestamp | None:
    if not seconds:
        return None
    fraction, whole = math.modf(seconds)
    return Timestamp(seconds=int(whole), nanos=int(fraction * 1e9))


def _seconds(path: str, duration: Duration) -> float:
    seconds = duration.seconds + duration.nanos / 1e9
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise invalid(path, "must not be negative, and not longer than 1000000000 s")
    return seconds
