"""W3C trace contexts, as they travel: `00-<trace id>-<span id>-<flags>`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A span, as others refer to it."""

    trace_id: int
    span_id: int
    sampled: bool


def parse(traceparent: str) -> TraceContext | None:
    """The context that `traceparent` names; None if it names none, whatever else it may be."""
    found = _FORM.fullmatch(traceparent)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED))


def written(context: TraceContext) -> str:
    """The traceparent of `context`."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{'01' if context.sampled else '00'}"
