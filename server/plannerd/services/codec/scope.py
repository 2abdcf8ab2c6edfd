"""Changes of the scope, as clients send them."""

from __future__ import annotations

from plannerd.errors import invalid
from plannerd.invocations.scope import ScopeChange
from plannerd.values import ScopeValue, is_blank
from plannerd.wire.values import ValueReader
from plannerd_protos.planner.v1 import value_pb2


def decode_scope(message: value_pb2.ScopeUpdate, reader: ValueReader, *, snapshot: bool) -> ScopeChange:
    """A change of the scope.

    Args:
        message: from the wire.
        reader: reads the values of the request.
        snapshot: whether it is one, so that nothing can be removed.

    Raises:
        PlannerdError: INVALID_REQUEST, INVALID_VALUE or LIMIT_EXCEEDED.
    """
    if snapshot and message.removed:
        raise invalid("scope.removed", "must be empty in FirstAction: its scope is a snapshot")
    reader.count(len(message.removed))
    values: dict[str, ScopeValue] = {}
    sizes: dict[str, int] = {}
    for key, value in message.set.items():
        if is_blank(key):
            raise invalid("scope.set", "has a blank key")
        values[key] = reader.scope_value(value, f"scope.set[{key}]")
        sizes[key] = value.ByteSize()
    for key in message.removed:
        if key in values:
            raise invalid("scope.removed", f"'{key}' is set and removed in the same request")
    return ScopeChange(values, tuple(message.removed), sizes)
