"""Requests as they are traced, and metrics, without OpenTelemetry."""

from __future__ import annotations

import pytest

from plannerd.telemetry.context import TraceContext, parse, written
from plannerd.telemetry.metrics import Counter, Histogram
from plannerd.telemetry.names import CALL_DURATION, STEPS
from plannerd.telemetry.plan import Plan, TelemetryError, planned
from plannerd.telemetry.requests import RequestTrace, Span, SpanKind

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


class Kept:
    """Keeps spans, and samples as it is told."""

    def __init__(self, roots: bool = True) -> None:
        self.spans: list[Span] = []
        self.roots = roots
        self.ids = 100

    def root(self) -> TraceContext:
        return TraceContext(1, self.new_id(), self.roots)

    def sampled(self, parent: TraceContext) -> bool:
        return parent.sampled

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def take(self, span: Span) -> None:
        self.spans.append(span)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT + "-more",
        PARENT.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        PARENT + "\n",
        "\uff10\uff10-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_what_is_no_trace_context(text: str) -> None:
    """What is not of the form of a trace context, or has an id of zeros, is none."""
    assert parse(text) is None


def test_trace_contexts_are_written_as_they_were_read() -> None:
    """A trace context is written as it was read; later versions may have more, which is left out."""
    context = parse(PARENT)
    assert context is not None
    assert written(context) == PARENT
    assert parse("01-" + PARENT[3:] + "-more") == context
    assert not parse(PARENT[:-2] + "00").sampled  # type: ignore[union-attr]


def test_what_is_not_sampled_leaves_nothing() -> None:
    """Of a request that is not sampled nothing is handed out, whatever was noted before that was known."""
    spans = Kept()
    request = RequestTrace(spans)
    request.add("store get", SpanKind.CLIENT, 0.001, {})
    assert request.join(PARENT[:-2] + "00").endswith("-00")
    request.begin_step()
    request.add("decide", SpanKind.CLIENT, 0.001, {})
    request.end_step("step", {})
    assert not request.settle()
    request.finish("call", {})
    assert not spans.spans


def test_a_request_joins_the_trace_of_its_invocation() -> None:
    """A request of another trace than its invocation's is in the invocation's, with a link to its caller."""
    spans = Kept()
    request = RequestTrace(spans, OTHER, "vendor=1")
    request.add("store get", SpanKind.CLIENT, 0.001, {})
    assert request.join(PARENT) == PARENT
    request.begin_step()
    request.add("decide", SpanKind.CLIENT, 0.001, {})
    request.end_step("step", {})
    request.settle()
    request.finish("call", {})
    by_name = {span.name: span for span in spans.spans}
    call = by_name["call"]
    assert (call.parent, call.link, call.tracestate) == (parse(PARENT), parse(OTHER), "")
    assert by_name["store get"].parent == call.context
    assert by_name["step"].parent == call.context
    assert by_name["decide"].parent == by_name["step"].context
    assert {span.context.trace_id for span in spans.spans} == {call.context.trace_id}


def test_a_new_invocation_has_the_trace_of_its_init() -> None:
    """Without any context an Init begins a trace, which the invocation keeps; sampled or not."""
    for sampled in (True, False):
        request = RequestTrace(Kept(sampled))
        kept = request.join("")
        assert request.context is not None
        assert kept == written(request.context)
        assert request.ids is not None
        assert bool(request.ids.span_id) is sampled


def test_histograms_count_into_their_buckets() -> None:
    """A measurement counts in the first bucket whose bound it does not exceed, the largest in the last."""
    histogram = Histogram(CALL_DURATION)
    for value in (0.0001, 0.00011, 30.0, 31.0):
        histogram.record(("m", "OK", "", "grpc"), value)
    ((_, series),) = histogram.read()
    assert (series.buckets[0], series.buckets[1], series.buckets[-2], series.buckets[-1]) == (1, 1, 1, 1)
    assert (series.lowest, series.highest) == (0.0001, 31.0)
    counter = Counter(STEPS)
    counter.add(("bdi", "called"))
    counter.add(("bdi", "called"), 2)
    assert counter.read() == [(("bdi", "called"), 3)]


@pytest.mark.parametrize(
    ("environment", "plan"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, Plan("grpc", "grpc")),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, Plan("grpc", None)),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"},
            Plan("grpc", "http/protobuf"),
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "True"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, Plan(None, "grpc")),
    ],
)
def test_the_environment_says_what_is_exported(environment: dict[str, str], plan: Plan | None) -> None:
    """Nothing is exported without an endpoint; each signal has variables of its own."""
    assert planned(environment) == plan


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("OTEL_TRACES_EXPORTER", "jaeger")],
)
def test_what_is_not_supported_is_refused_by_its_variable(variable: str, value: str) -> None:
    """A protocol or exporter that there is not is refused, by the name of its variable."""
    with pytest.raises(TelemetryError, match=f"{variable}: '{value}' is not supported"):
        planned({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", variable: value})
