"""Requests as they are traced, without OpenTelemetry, which comes in where finished spans are handed out (`export`).

Spans are made when a request is answered, from what was noted on its way, and only if it is sampled. Whether it is may
be known only after a look at the invocation, whose trace it belongs to; what happened before that is noted in any
case, which is a tuple or two.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from plannerd.telemetry.context import TraceContext, parse, written

Scalar: TypeAlias = str | bool | int | float
Value: TypeAlias = Scalar | Sequence[str] | Sequence[int] | Sequence[float]
Attributes: TypeAlias = Mapping[str, Value]
Event: TypeAlias = tuple[str, Attributes]


class SpanKind(enum.Enum):
    """Which side of a call a span is."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2


class Span(NamedTuple):
    """A finished span.

    Attributes:
        name: its name.
        kind: its kind.
        context: its own context.
        parent: that of its parent; None for a root.
        start: when it began, in nanoseconds since the epoch.
        end: when it ended.
        attributes: its attributes.
        events: what happened within, at its end.
        error: whether it failed.
        link: another span that it has to do with.
        tracestate: what the caller's tracing system wants to hear again.
    """

    name: str
    kind: SpanKind
    context: TraceContext
    parent: TraceContext | None
    start: int
    end: int
    attributes: Attributes
    events: Sequence[Event] = ()
    error: bool = False
    link: TraceContext | None = None
    tracestate: str = ""


class Spans(Protocol):
    """Where spans go, and what decides about them."""

    def root(self) -> TraceContext:
        """The context of the first span of a new trace, sampled or not."""

    def sampled(self, parent: TraceContext) -> bool:
        """Whether a span below `parent`, which is another process's, is sampled."""

    def new_id(self) -> int:
        """The id of a new span."""

    def take(self, span: Span) -> None:
        """Export a span in due course. Never waits: what there is no room for is dropped and counted."""


class _Child(NamedTuple):
    name: str
    kind: SpanKind
    span_id: int
    parent_id: int
    start: int
    end: int
    attributes: Attributes
    events: Sequence[Event]
    error: bool


@dataclass(frozen=True, slots=True)
class Ids:
    """What a line of the log says of a trace: the ids in hexadecimal; the span's is empty where there is no span."""

    trace_id: str
    span_id: str


class RequestTrace:
    """One request on its way: a call, or one of a stream.

    Args:
        spans: where its spans go.
        traceparent: what its client sent.
        tracestate: likewise.

    Attributes:
        started: when it began, in nanoseconds since the epoch.
        context: its own context, once it is known which trace it belongs to.
        invocation: the trace of the invocation that it is about; empty where there is none.
        facts: more attributes of its span.
    """

    __slots__ = (
        "_children",
        "_link",
        "_parent",
        "_received",
        "_spans",
        "_step_id",
        "_step_started",
        "_tracestate",
        "context",
        "facts",
        "invocation",
        "started",
    )

    def __init__(self, spans: Spans, traceparent: str = "", tracestate: str = "") -> None:
        self.started = time.time_ns()
        self.context: TraceContext | None = None
        self.invocation = ""
        self.facts: dict[str, Value] = {}
        self._spans = spans
        self._received = parse(traceparent) if traceparent else None
        self._tracestate = tracestate if self._received is not None else ""
        self._parent: TraceContext | None = None
        self._link: TraceContext | None = None
        self._children: list[_Child] = []
        self._step_id = self._step_started = 0

    def join(self, traceparent: str) -> str:
        """The request is about an invocation of the trace `traceparent`, or of none yet.

        Returns:
            The trace that the invocation belongs to from now on.
        """
        if traceparent and traceparent == self.invocation:
            return traceparent
        known = parse(traceparent) if traceparent else None
        if self.context is None:
            self._decide(known)
        if known is None:
            context = self._received or self.context
            traceparent = written(context) if context is not None else ""
        self.invocation = traceparent
        return traceparent

    @property
    def sampled(self) -> bool:
        """Whether spans are made of it, as far as that is known."""
        return self.context is None or self.context.sampled

    @property
    def ids(self) -> Ids | None:
        """For the log; None before it is known which trace it is."""
        context = self.context
        if context is None:
            return None
        return Ids(f"{context.trace_id:032x}", f"{context.span_id:016x}" if context.sampled else "")

    def add(
        self,
        name: str,
        kind: SpanKind,
        seconds: float,
        attributes: Attributes,
        *,
        events: Sequence[Event] = (),
        error: bool = False,
    ) -> None:
        """Something within the current step, or beside it, ended now and took so many seconds."""
        if self.sampled:
            end = time.time_ns()
            start = max(self.started, end - round(seconds * 1e9))
            self._children.append(
                _Child(name, kind, self._spans.new_id(), self._step_id, start, end, attributes, events, error)
            )

    def begin_step(self) -> None:
        """What is added from here on belongs to a step. Once it has begun, it goes on."""
        if self.sampled and not self._step_id:
            self._step_id = self._spans.new_id()
            self._step_started = time.time_ns()

    def end_step(self, name: str, attributes: Attributes, *, error: bool = False) -> None:
        """The step is over, if one has begun."""
        if self._step_id:
            self._children.append(
                _Child(
                    name, SpanKind.INTERNAL, self._step_id, 0, self._step_started, time.time_ns(), attributes, (), error
                )
            )
            self._step_id = 0

    def settle(self) -> bool:
        """Settle which trace it is, if nothing has; whether it is sampled."""
        if self.context is None:
            self._decide(None)
        return self.sampled

    def finish(self, name: str, attributes: Attributes, *, error: bool = False) -> None:
        """The request is answered: hand out its spans if it is sampled."""
        context, spans = self.context, self._spans
        if context is None or not context.sampled:
            return
        if self.facts:
            attributes = {**attributes, **self.facts}
        end = time.time_ns()
        spans.take(
            Span(
                name,
                SpanKind.SERVER,
                context,
                self._parent,
                self.started,
                end,
                attributes,
                error=error,
                link=self._link,
                tracestate=self._tracestate,
            )
        )
        for child in self._children:
            own = TraceContext(context.trace_id, child.span_id, True)
            parent = TraceContext(context.trace_id, child.parent_id, True) if child.parent_id else context
            spans.take(
                Span(
                    child.name,
                    child.kind,
                    own,
                    parent,
                    child.start,
                    child.end,
                    child.attributes,
                    child.events,
                    child.error,
                    tracestate=self._tracestate,
                )
            )
        self._children.clear()

    def _decide(self, known: TraceContext | None) -> None:
        """Settle which trace it is: the invocation's, of which the caller may have a later span."""
        parent = self._received
        if known is not None and (parent is None or parent.trace_id != known.trace_id):
            self._link, parent = parent, known
            self._tracestate = ""  # it is of the other trace
        self._parent = parent
        if parent is None:
            self.context = self._spans.root()
        else:
            sampled = self._spans.sampled(parent)
            span_id = self._spans.new_id() if sampled else parent.span_id
            self.context = TraceContext(parent.trace_id, span_id, sampled)
        if not self.context.sampled:
            self._children.clear()


CURRENT: Final[ContextVar[RequestTrace | None]] = ContextVar("plannerd_request", default=None)
"""The request that the running task serves; None where nothing is traced."""
