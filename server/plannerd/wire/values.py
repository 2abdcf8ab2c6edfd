"""Values as protobuf messages, and back.

Hand-written, as it runs for every value of every request: kinds in the order of their frequency, paths
made only when there is something to complain about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.struct_pb2 import NULL_VALUE

from plannerd.errors import PlannerdError, Reason, Violation, check_limit, invalid
from plannerd.values import MAX_NESTING, PENDING, Image, Opaque, ScopeValue, Text, Value
from plannerd_protos.planner.v1 import value_pb2

MAX_TAG_BYTES = 32


class _BadValueError(Exception):
    """A value that breaks a rule; `path` grows while it travels up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""


@dataclass(frozen=True, slots=True)
class ValueLimits:
    """Bounds of the values in one request.

    Attributes:
        nesting: how deep lists and maps may stand inside each other; never more than MAX_NESTING.
        values: how many there may be, with every item of lists and maps.
    """

    nesting: int = MAX_NESTING
    values: int = 100_000


DEFAULT_LIMITS: Final = ValueLimits()


class ValueReader:
    """Reads the values of one request.

    Every method raises INVALID_VALUE with the path of the value in question, or LIMIT_EXCEEDED.

    Args:
        limits: of the request.
    """

    def __init__(self, limits: ValueLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._read = 0

    def value(self, message: value_pb2.Value, path: str) -> Value:
        """A value that may stand anywhere: neither opaque nor pending.

        Args:
            message: from the wire.
            path: where it stands in the request, for the error.
        """
        self.count(1)
        try:
            return self._decode(message, self._limits.nesting)
        except _BadValueError as bad:
            raise _refuse(bad, path) from None

    def scope_value(self, message: value_pb2.Value, path: str) -> ScopeValue:
        """A value at the top of the scope, which may be opaque or pending."""
        kind = message.WhichOneof("kind")
        if kind == "pending":
            self.count(1)
            return PENDING
        if kind == "opaque":
            self.count(1)
            return decode_opaque(message.opaque, f"{path}.opaque")
        return self.value(message, path)

    def map(self, message: value_pb2.MapValue, path: str) -> dict[str, Value]:
        """A map of values."""
        try:
            return self._entries(message, self._limits.nesting)
        except _BadValueError as bad:
            raise _refuse(bad, path) from None

    def count(self, more: int) -> None:
        """Count what takes as long as a value, before it is read, so that too much costs nothing."""
        self._read += more
        if self._read > self._limits.values:
            check_limit("max_values", "The values in one request", self._read, self._limits.values)

    def _decode(self, message: value_pb2.Value, room: int) -> Value:
        kind = message.WhichOneof("kind")
        match kind:
            case "string_value":
                return message.string_value
            case "map_value":
                return self._entries(message.map_value, room)
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
                return self._items(message.list_value, room)
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

    def _entries(self, message: value_pb2.MapValue, room: int) -> dict[str, Value]:
        if not room:
            raise _BadValueError(f"is nested more than {self._limits.nesting} deep")
        self.count(len(message.entries))
        entries: dict[str, Value] = {}
        key = ""
        try:
            for key, value in message.entries.items():
                entries[key] = self._decode(value, room - 1)
        except _BadValueError as bad:
            bad.path = f".{key}{bad.path}"
            raise
        if len(entries) < 2:
            return entries
        # Maps have no order on the wire. Sorted here, once, they look the same to every decision model.
        return {key: entries[key] for key in sorted(entries)}

    def _items(self, message: value_pb2.ListValue, room: int) -> list[Value]:
        if not room:
            raise _BadValueError(f"is nested more than {self._limits.nesting} deep")
        self.count(len(message.values))
        items: list[Value] = []
        try:
            for value in message.values:
                items.append(self._decode(value, room - 1))
        except _BadValueError as bad:
            bad.path = f"[{len(items)}]{bad.path}"
            raise
        return items


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
