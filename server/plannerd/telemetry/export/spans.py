"""Finished spans, on their way to a collector.

Of the SDK this takes the exporters, the batching and its thread, samplers, limits and ids. It makes the finished spans
itself: the SDK's own way takes 29 us for a span (version 1.45), this 4, beside a call of some hundred. The queue is
bounded here, so that a collector that takes nothing costs a comparison for each span, and not a line of the log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace.status import Status, StatusCode

from plannerd.telemetry import names
from plannerd.telemetry.context import TraceContext
from plannerd.telemetry.export.outages import Outages
from plannerd.telemetry.requests import Span, SpanKind

_KINDS: Final = {
    SpanKind.INTERNAL: OtelKind.INTERNAL,
    SpanKind.SERVER: OtelKind.SERVER,
    SpanKind.CLIENT: OtelKind.CLIENT,
}
_FAILED: Final = Status(StatusCode.ERROR)
_UNSET: Final = Status(StatusCode.UNSET)
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)


class _CountedExporter(SpanExporter):
    """Counts what leaves the queue, and hears of exports that fail."""

    def __init__(self, inner: SpanExporter, outages: Outages) -> None:
        self.taken = 0
        self._inner = inner
        self._outages = outages

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        try:
            result = self._inner.export(spans)
        except Exception as error:  # noqa: BLE001 (whatever an exporter raises, the next one may go well)
            self._outages.detail = type(error).__name__
            result = SpanExportResult.FAILURE
        self._outages.exported("traces", result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class SpanPipeline:
    """Takes finished spans, and has them sampled and exported as the environment says. See `requests.Spans`.

    Args:
        exporter: where to.
        resource: what this process is.
        outages: hears of exports that fail.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource, outages: Outages) -> None:
        # The provider reads the environment: the sampler and how ids are made. Its spans are not used.
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._sampler = provider.sampler
        self._ids = provider.id_generator
        self._resource = resource
        self._scope = InstrumentationScope(names.SCOPE)
        limits = SpanLimits()
        self._max_attributes = limits.max_span_attributes
        self._max_length = limits.max_span_attribute_length
        self._exporter = _CountedExporter(exporter, outages)
        self._processor = BatchSpanProcessor(self._exporter)
        self._room = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or 2048)
        # By its description: a parent that another process sampled, or did not, settles it.
        self._follows_parent = (
            "remoteParentSampled:AlwaysOnSampler,remoteParentNotSampled:AlwaysOffSampler"
            in self._sampler.get_description()
        )
        self._submitted = 0
        self.dropped = 0

    def root(self) -> TraceContext:
        """The context of the first span of a new trace."""
        trace_id = self._ids.generate_trace_id()
        result = self._sampler.should_sample(None, trace_id, names.SCOPE, OtelKind.SERVER)
        sampled = result.decision is Decision.RECORD_AND_SAMPLE
        return TraceContext(trace_id, self._ids.generate_span_id(), sampled)

    def sampled(self, parent: TraceContext) -> bool:
        """Whether a span below `parent` is sampled."""
        if self._follows_parent:
            return parent.sampled
        context = set_span_in_context(NonRecordingSpan(_span_context(parent, remote=True)))
        result = self._sampler.should_sample(context, parent.trace_id, names.SCOPE, OtelKind.SERVER)
        return result.decision is Decision.RECORD_AND_SAMPLE

    def new_id(self) -> int:
        """The id of a new span."""
        return self._ids.generate_span_id()

    def take(self, span: Span) -> None:
        """Queue a span; without room it is dropped, and nothing else happens."""
        if self._submitted - self._exporter.taken >= self._room:
            self.dropped += 1
            return
        self._submitted += 1
        self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Export what is queued; may take long."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        """Give up an export that is under way."""
        self._exporter.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        state = TraceState.from_header([span.tracestate]) if span.tracestate else None
        attributes: Mapping[str, Any] = span.attributes
        if self._max_length is not None or (
            self._max_attributes is not None and len(attributes) > self._max_attributes
        ):
            attributes = BoundedAttributes(self._max_attributes, attributes, max_value_len=self._max_length)
        return ReadableSpan(
            span.name,
            _span_context(span.context, state=state),
            None if span.parent is None else _span_context(span.parent, remote=span.kind is SpanKind.SERVER),
            self._resource,
            attributes,
            [Event(name, found, span.end) for name, found in span.events],
            () if span.link is None else (Link(_span_context(span.link, remote=True)),),
            _KINDS[span.kind],
            status=_FAILED if span.error else _UNSET,
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )


def _span_context(context: TraceContext, *, remote: bool = False, state: TraceState | None = None) -> SpanContext:
    flags = _SAMPLED if context.sampled else _NOT_SAMPLED
    return SpanContext(context.trace_id, context.span_id, remote, flags, state)
