"""Step requests: what clients report, and the digest that tells a repeat from another request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plannerd.conditions import Belief, Beliefs
from plannerd.errors import invalid
from plannerd.invocations.calls import (
    Answered,
    CallOutcome,
    CallResult,
    Failed,
    Skipped,
    Suspended,
    WillAnswer,
    Withheld,
)
from plannerd.invocations.commands import EndCommand, FirstActionCommand, NextActionCommand
from plannerd.invocations.position import Position
from plannerd.invocations.record import EndOutcome
from plannerd.invocations.scope import ScopeChange
from plannerd.services.codec.configuration import check_invocation_id, decode_position
from plannerd.services.codec.scope import decode_scope
from plannerd.values import Opaque, ScopeValue, Value, digest
from plannerd.wire.values import DEFAULT_LIMITS, ValueLimits, ValueReader, decode_opaque
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2

MAX_RESPONSE_ID_CHARS: Final = 256
MAX_FAILURE_TYPE_CHARS: Final = 200
MAX_END_MESSAGE_CHARS: Final = 1000  # what is longer is cut: nothing depends on it

_END_OUTCOMES: Final[Mapping[int, EndOutcome]] = {
    planner_pb2.EndOutcome.Value(f"END_OUTCOME_{outcome.name}"): outcome for outcome in EndOutcome
}
_BELIEFS: Final[Mapping[int, Belief]] = {
    agent_pb2.BELIEF_TRUE: Belief.TRUE,
    agent_pb2.BELIEF_FALSE: Belief.FALSE,
    agent_pb2.BELIEF_FAILED: Belief.FAILED,
}


def decode_first_action(
    request: planner_pb2.FirstActionRequest, limits: ValueLimits = DEFAULT_LIMITS
) -> tuple[FirstActionCommand, bytes]:
    """What a FirstAction asks for, and a digest of its meaning.

    Raises:
        PlannerdError: INVALID_REQUEST, INVALID_VALUE or LIMIT_EXCEEDED.
    """
    command = FirstActionCommand(
        check_invocation_id(request.invocation_id),
        _decode_base(request),
        decode_scope(request.scope, ValueReader(limits), snapshot=True),
        _decode_beliefs(request.beliefs),
    )
    return command, _digest("first", command.scope, command.beliefs, [])


def decode_next_action(
    request: planner_pb2.NextActionRequest, limits: ValueLimits = DEFAULT_LIMITS
) -> tuple[NextActionCommand, bytes]:
    """What a NextAction asks for, and a digest of its meaning.

    Raises:
        PlannerdError: INVALID_REQUEST, INVALID_VALUE or LIMIT_EXCEEDED.
    """
    reader = ValueReader(limits)
    reader.count(len(request.results))
    results = tuple(
        _decode_result(result, f"results[{position}]", reader) for position, result in enumerate(request.results)
    )
    command = NextActionCommand(
        check_invocation_id(request.invocation_id),
        _decode_base(request),
        decode_scope(request.scope, reader, snapshot=False),
        _decode_beliefs(request.beliefs),
        results,
    )
    meaning: list[ScopeValue] = [part for result in results for part in _meaning(result)]
    return command, _digest("next", command.scope, command.beliefs, meaning)


def decode_end(request: planner_pb2.EndRequest) -> EndCommand:
    """What an End asks for.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    return EndCommand(
        check_invocation_id(request.invocation_id),
        decode_position(request.base) if request.HasField("base") else None,
        _decode_end_outcome(request.outcome),
        request.message[:MAX_END_MESSAGE_CHARS],
    )


def _decode_end_outcome(outcome: int) -> EndOutcome:
    if outcome not in _END_OUTCOMES:
        raise invalid("outcome", f"{outcome} is no outcome")
    return _END_OUTCOMES[outcome]


def _decode_base(request: planner_pb2.FirstActionRequest | planner_pb2.NextActionRequest) -> Position:
    if not request.HasField("base"):
        raise invalid("base", "is required: the position of the last answer")
    return decode_position(request.base)


def _decode_beliefs(message: Mapping[str, int]) -> Beliefs:
    beliefs: dict[str, Belief] = {}
    for name, value in message.items():
        if value not in _BELIEFS:
            raise invalid(f"beliefs[{name}]", "must be BELIEF_TRUE, BELIEF_FALSE or BELIEF_FAILED")
        beliefs[name] = _BELIEFS[value]
    return beliefs


def _decode_result(message: planner_pb2.AgentResult, path: str, reader: ValueReader) -> CallResult:
    kind = message.WhichOneof("outcome")
    if message.recovered and kind != "output":
        raise invalid(f"{path}.recovered", "goes with an output only")
    outcome: CallOutcome
    match kind:
        case "output":
            outcome = _decode_output(message, f"{path}.output", reader)
        case "skipped":
            outcome = Skipped()
        case "pending":
            outcome = WillAnswer(message.pending.external)
        case "suspended":
            response_id = message.suspended.response_id
            if not 1 <= len(response_id) <= MAX_RESPONSE_ID_CHARS:
                raise invalid(f"{path}.suspended.response_id", f"must have 1 to {MAX_RESPONSE_ID_CHARS} characters")
            outcome = Suspended(response_id)
        case "failed":
            outcome = Failed(message.failed.type[:MAX_FAILURE_TYPE_CHARS], message.failed.message)
        case _:
            raise invalid(path, "one of output, skipped, pending, suspended and failed must be set")
    return CallResult(message.call_id, outcome)


def _decode_output(message: planner_pb2.AgentResult, path: str, reader: ValueReader) -> Answered:
    output = message.output
    value: Value | Opaque | Withheld
    match output.WhichOneof("form"):
        case "value":
            value = reader.value(output.value, f"{path}.value")
        case "opaque":
            value = decode_opaque(output.opaque, f"{path}.opaque")
        case "withheld":
            value = Withheld()
        case _:
            raise invalid(path, "one of value, opaque and withheld must be set; an agent without result sends null")
    return Answered(value, output.ByteSize(), message.recovered)


def _meaning(result: CallResult) -> list[ScopeValue]:  # flat, as an opaque output may stand only at the top
    match result.outcome:
        case Answered(output=output, recovered=recovered):
            if isinstance(output, Withheld):
                return [result.call_id, "withheld", recovered]
            return [result.call_id, "output", output, recovered]
        case Skipped():
            return [result.call_id, "skipped"]
        case WillAnswer(external):
            return [result.call_id, "pending", external]
        case Suspended(response_id):
            return [result.call_id, "suspended", response_id]
        case Failed(kind, text):
            return [result.call_id, "failed", kind, text]


def _digest(kind: str, scope: ScopeChange, beliefs: Beliefs, results: list[ScopeValue]) -> bytes:
    flat: list[ScopeValue] = [kind, len(scope.set)]
    for key in sorted(scope.set):
        flat += [key, scope.set[key]]
    flat += [len(scope.removed), *sorted(scope.removed), len(beliefs)]
    for name in sorted(beliefs):
        flat += [name, beliefs[name].value]
    return digest(*flat, *results)
