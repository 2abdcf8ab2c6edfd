"""Values as protobuf messages, and back.

Hand-written, as it runs for every value of every request: kinds in the order of their frequency, paths
made only when there is something to complain about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from google.protobuf.struct_pb2 import NULL_VALUE

from plannerd.errors import PlannerdError, Reason, Violation, invalid
from plannerd.values import MAX_NESTING, PENDING, Image, Opaque, ScopeValue, Text, Value
from plannerd_protos.planner.v1 import value_pb2

MAX_TAG_BYTES = 32


class _BadValueError(Exception):
    """A value that breaks a rule; `path` grows while it travels up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""


def decode_value(message: value_pb2.Value, path: str) -> Value:
    """A value that may stand anywhere: neither opaque nor pending.

    Args:
        message: from the wire.
        path: where it stands in the request, for the error.

    Raises:
        PlannerdError: INVALID_VALUE with the path of the value in question.
    """
    try:
        return _decode(message, MAX_NESTING)
    except _BadValueError as bad:
        raise _refuse(bad, path) from None


def decode_scope_value(message: value_pb2.Value, path: str) -> ScopeValue:
    """A value at the top of the scope, which may be opaque or pending.

    Raises:
        PlannerdError: INVALID_VALUE with the path of the value in question.
    """
    kind = message.WhichOneof("kind")
    if kind == "pending":
        return PENDING
    if kind == "opaque":
        return decode_opaque(message.opaque, f"{path}.opaque")
    return decode_value(message, path)


def decode_opaque(message: value_pb2.Opaque, path: str) -> Opaque:
    """An opaque value.

    Raises:
        PlannerdError: INVALID_VALUE if its tag is too long.
    """
    if len(message.tag) > MAX_TAG_BYTES:
        raise invalid(
            f"{path}.tag",
            f"has {len(message.tag)} bytes, but may have {MAX_TAG_BYTES}: send a digest",
            reason=Reason.INVALID_VALUE,
        )
    return Opaque(message.tag)


def decode_map(message: value_pb2.MapValue, path: str) -> dict[str, Value]:
    """A map of values.

    Raises:
        PlannerdError: INVALID_VALUE with the path of the value in question.
    """
    try:
        return _decode_entries(message, MAX_NESTING)
    except _BadValueError as bad:
        raise _refuse(bad, path) from None


def _decode(message: value_pb2.Value, room: int) -> Value:
    kind = message.WhichOneof("kind")
    match kind:
        case "string_value":
            return message.string_value
        case "map_value":
            return _decode_entries(message.map_value, room)
        case "int_value":
            return message.int_value
        case "double_value":
            number = message.double_value
            if not math.isfinite(number):
                raise _BadValueError("must be finite: NaN and infinities can't be compared or sent on")
            return number
        case "bool_value":
            return message.bool_value
        case "list_value":
            return _decode_items(message.list_value, room)
        case "null_value":
            return None
        case "content":
            return _decode_content(message.content)
        case "bytes_value":
            return message.bytes_value
        case None:
            raise _BadValueError("has no kind set; send null_value for null")
        case _:
            raise _BadValueError(f"{kind} may stand only at the top of the scope")


def _decode_entries(message: value_pb2.MapValue, room: int) -> dict[str, Value]:
    if not room:
        raise _BadValueError(f"is nested more than {MAX_NESTING} deep")
    entries: dict[str, Value] = {}
    key = ""
    try:
        for key, value in message.entries.items():
            entries[key] = _decode(value, room - 1)
    except _BadValueError as bad:
        bad.path = f".{key}{bad.path}"
        raise
    if len(entries) < 2:
        return entries
    # Maps have no order on the wire. Sorted here, once, they look the same to every decision model.
    return {key: entries[key] for key in sorted(entries)}


def _decode_items(message: value_pb2.ListValue, room: int) -> list[Value]:
    if not room:
        raise _BadValueError(f"is nested more than {MAX_NESTING} deep")
    items: list[Value] = []
    try:
        for value in message.values:
            items.append(_decode(value, room - 1))
    except _BadValueError as bad:
        bad.path = f"[{len(items)}]{bad.path}"
        raise
    return items


def _decode_content(message: value_pb2.Content) -> Text | Image:
    match message.WhichOneof("kind"):
        case "text":
            return Text(message.text.text)
        case "image":
            image = message.image
            if not image.media_type.startswith("image/"):
                raise _BadValueError("media_type must start with 'image/'")
            if not image.data:
                raise _BadValueError("data must not be empty")
            return Image(image.media_type, image.data)
        case _:
            raise _BadValueError("has no kind of content set")


def _refuse(bad: _BadValueError, path: str) -> PlannerdError:
    # Paths of hostile values can be long; the start says where to look.
    where = f"{path}{bad.path}"[:300]
    return PlannerdError(Reason.INVALID_VALUE, f"{where}: {bad.problem}", violations=[Violation(where, bad.problem)])


def encode_value(value: ScopeValue) -> value_pb2.Value:
    """The wire form of a value."""
    if value is PENDING:
        return value_pb2.Value(pending=value_pb2.Pending())
    match value:
        case None:
            return value_pb2.Value(null_value=NULL_VALUE)
        case bool():
            return value_pb2.Value(bool_value=value)
        case int():
            return value_pb2.Value(int_value=value)
        case float():
            return value_pb2.Value(double_value=value)
        case str():
            return value_pb2.Value(string_value=value)
        case bytes():
            return value_pb2.Value(bytes_value=value)
        case list():
            return value_pb2.Value(list_value=value_pb2.ListValue(values=[encode_value(item) for item in value]))
        case dict():
            return value_pb2.Value(map_value=encode_map(value))
        case Text(text):
            return value_pb2.Value(content=value_pb2.Content(text=value_pb2.TextContent(text=text)))
        case Image(media_type, data):
            image = value_pb2.ImageContent(media_type=media_type, data=data)
            return value_pb2.Value(content=value_pb2.Content(image=image))
        case Opaque(tag):
            return value_pb2.Value(opaque=value_pb2.Opaque(tag=tag))


def encode_map(entries: Mapping[str, Value]) -> value_pb2.MapValue:
    """The wire form of a map."""
    return value_pb2.MapValue(entries={key: encode_value(value) for key, value in entries.items()})
