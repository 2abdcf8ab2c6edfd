"""The messages of the stream Run around those of the unary methods, whose answers stay the bytes that they are.

A protobuf field is its tag, its length and its bytes. So a stored answer becomes a RunResponse by putting the id,
a tag and a length in front of it. Decoding it, to encode it again, would cost as much as the rest of a short
step, and could give other bytes.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.duration_pb2 import Duration

from plannerd.errors import invalid
from plannerd.services.failures import Failure, bounded
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2, step_pb2

ENVELOPE_BYTES: Final = 256
"""How much larger than the request inside a RunRequest may be; a RunResponse adds less."""

_LENGTH_DELIMITED: Final = 2
_ID_TAG: Final = bytes([planner_pb2.RunResponse.DESCRIPTOR.fields_by_name["id"].number << 3])
_TAGS: Final = {
    field.name: bytes([field.number << 3 | _LENGTH_DELIMITED])
    for field in planner_pb2.RunResponse.DESCRIPTOR.oneofs_by_name["response"].fields
}
_STEP_TAG: Final = planner_pb2.NextActionResponse.DESCRIPTOR.fields_by_name["step"].number << 3 | _LENGTH_DELIMITED
_ACTION_TAG: Final = step_pb2.Step.DESCRIPTOR.fields_by_name["action"].number << 3 | _LENGTH_DELIMITED
_SUSPEND_TAG: Final = step_pb2.Action.DESCRIPTOR.fields_by_name["suspend"].number << 3 | _LENGTH_DELIMITED

_LONGEST_SECONDS: Final = 10.0**9


def encode_response(request_id: int, kind: str, reply: bytes) -> bytes:
    """The RunResponse with `reply`, the encoded answer, as its field `kind`."""
    front = _TAGS[kind] + _varint(len(reply))
    # As protobuf does it: a field that has its default is left out, and negative numbers take ten bytes.
    if request_id:
        front = _ID_TAG + _varint(request_id & 0xFFFF_FFFF_FFFF_FFFF) + front
    return front + reply


def encode_error(request_id: int, failure: Failure) -> bytes:
    """The RunResponse that tells of a failed request what the status of a unary call would."""
    failure = bounded(failure)
    error = planner_pb2.RunError(
        code=failure.code.value[0],
        reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{failure.reason.name}"),
        message=failure.text,
        metadata=failure.metadata,
        field_violations=[
            planner_pb2.FieldViolation(field=violation.field, description=violation.problem)
            for violation in failure.violations
        ],
    )
    if failure.retry_after is not None:
        error.retry_after.FromMilliseconds(max(0, round(failure.retry_after * 1000)))
    return planner_pb2.RunResponse(id=request_id, error=error).SerializeToString()


def decode_timeout(timeout: Duration) -> float:
    """The seconds that a request may take.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    seconds = timeout.seconds + timeout.nanos / 1e9
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise invalid("timeout", "must not be negative, and not longer than 1000000000 s")
    return seconds


def suspends(reply: bytes) -> bool:
    """Whether an encoded answer to FirstAction or NextAction says to suspend.

    Reads the first few bytes alone: the step is the first field of its answer, and the action comes second in it.
    """
    tag, start, _ = _field(reply, 0)
    if tag != _STEP_TAG:
        return False
    tag, start, length = _field(reply, start)
    if tag != _ACTION_TAG:  # it was the position
        tag, start, length = _field(reply, start + length)
    return tag == _ACTION_TAG and length > 0 and reply[start] == _SUSPEND_TAG


def _field(raw: bytes, place: int) -> tuple[int, int, int]:
    """The tag of a field that starts at `place` and has a length, where its bytes start, and how many there are."""
    if place + 1 >= len(raw):
        return 0, place, 0
    tag, byte = raw[place], raw[place + 1]
    place += 2
    length, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = raw[place]
        length |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return tag, place, length


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
