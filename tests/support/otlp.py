"""A real OTLP receiver in this process: what a collector would get, as plain objects.

with receiving() as collector:
    with running_server(environment=collector.environment) as server:
        ...
    spans = collector.spans
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

# Often, so that tests need not wait.
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event within a span."""

    name: str
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as it was received; ids in hexadecimal, empty where there is none."""

    service: str
    instance: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[SeenEvent]
    links: list[str]
    failed: bool
    trace_state: str


@dataclass(frozen=True, slots=True)
class SeenPoint:
    """A data point of a metric: a number, or the count of a histogram with its sum and buckets."""

    attributes: dict[str, Any]
    value: float
    total: float = 0.0
    buckets: tuple[int, ...] = ()


def value_of(value: AnyValue) -> Any:
    """The plain value."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """The plain attributes."""
    return {pair.key: value_of(pair.value) for pair in pairs}


@dataclass
class Received:
    """What came, and a server that it came to.

    Attributes:
        endpoint: its address, as the variable OTEL_EXPORTER_OTLP_ENDPOINT has it.
        protocol: what it speaks.
        traces: the requests with spans.
        metrics: the requests with metrics.
        headers: the metadata or headers of each request.
        before: is called before a request is answered.
    """

    endpoint: str = ""
    protocol: str = "grpc"
    traces: list[trace_service_pb2.ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[metrics_service_pb2.ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a server that exports to it."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol, **QUICK}

    def take(self, request: Message, headers: Mapping[str, str]) -> None:
        """A request came."""
        self.before()
        with self.arrived:
            self.headers.append(dict(headers))
            if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
                self.traces.append(request)
            elif isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
                self.metrics.append(request)
            self.arrived.notify_all()

    def wait_for(self, seen: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until `seen`."""
        with self.arrived:
            assert self.arrived.wait_for(seen, seconds), "the collector waited in vain"

    @property
    def spans(self) -> list[SeenSpan]:
        """All spans so far, by their start."""
        found = [
            _span(span, attributes_of(resource.resource.attributes))
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start)

    def points(self, name: str) -> list[SeenPoint]:
        """The latest data points of a metric."""
        for request in reversed(list(self.metrics)):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            data = getattr(metric, metric.WhichOneof("data") or "")
                            return [_point(point) for point in data.data_points]
        return []

    @property
    def metric_names(self) -> set[str]:
        """The names of all metrics that came."""
        return {
            metric.name
            for request in list(self.metrics)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def everything(self) -> str:
        """All that came, as text to be searched."""
        return "".join(repr(request) for request in [*self.traces, *self.metrics])


def _span(span: trace_pb2.Span, resource: dict[str, Any]) -> SeenSpan:
    return SeenSpan(
        service=resource.get("service.name", ""),
        instance=resource.get("service.instance.id", ""),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=attributes_of(span.attributes),
        events=[SeenEvent(event.name, attributes_of(event.attributes)) for event in span.events],
        links=[link.span_id.hex() for link in span.links],
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        trace_state=span.trace_state,
    )


def _point(point: Any) -> SeenPoint:
    attributes = attributes_of(point.attributes)
    if hasattr(point, "bucket_counts"):
        return SeenPoint(attributes, point.count, point.sum, tuple(point.bucket_counts))
    return SeenPoint(attributes, point.as_int if point.HasField("as_int") else point.as_double)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, received: Received) -> None:
        self._received = received

    def Export(self, request: Any, context: Any) -> trace_service_pb2.ExportTraceServiceResponse:
        self._received.take(request, dict(context.invocation_metadata()))
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, received: Received) -> None:
        self._received = received

    def Export(self, request: Any, context: Any) -> metrics_service_pb2.ExportMetricsServiceResponse:
        self._received.take(request, dict(context.invocation_metadata()))
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def receiving(before: Callable[[], None] = lambda: None) -> Iterator[Received]:
    """A receiver that speaks gRPC."""
    received = Received(before=before)
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(received), server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(received), server)  # type: ignore[no-untyped-call]
    received.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield received
    finally:
        server.stop(0).wait()


@contextmanager
def receiving_http() -> Iterator[Received]:
    """A receiver that speaks protobuf over HTTP."""
    received = Received(protocol="http/protobuf")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kinds: dict[str, type[Message]] = {
                "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
                "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
            }
            received.take(kinds[self.path].FromString(body), {k.lower(): v for k, v in self.headers.items()})
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (its name is the library's)
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
