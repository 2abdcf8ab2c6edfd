"""Telemetry as it starts and ends.

A collector must never be felt. The queue of spans is bounded, what does not fit is dropped and counted; exports run in
threads of their own; the end waits for a last export only as long as it is told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter

from plannerd.telemetry.export.metrics import MetricPipeline
from plannerd.telemetry.export.outages import Outages
from plannerd.telemetry.export.spans import SpanPipeline
from plannerd.telemetry.logging import get_logger
from plannerd.telemetry.metrics import Meter
from plannerd.telemetry.plan import Plan, TelemetryError


class Telemetry:
    """Telemetry as it runs.

    Attributes:
        spans: takes spans; None where traces are off.
        meter: takes measurements, also where metrics are off.
    """

    def __init__(self, spans: SpanPipeline | None, metrics: MetricPipeline | None, meter: Meter) -> None:
        self.spans = spans
        self.meter = meter
        self._metrics = metrics

    async def close(self, seconds: float) -> None:
        """Export what is left, for so long at the most; then it is lost, and an export under way is given up."""
        pipelines = [pipeline for pipeline in (self.spans, self._metrics) if pipeline is not None]
        flushed = await asyncio.gather(*(_in_thread(pipeline.close, seconds) for pipeline in pipelines))
        if not all(flushed):
            get_logger().warning("telemetry_lost", detail="the collector did not take the last of it in time")
        # To close a connection may take a while too; the process ends without waiting for that.
        for pipeline, done in zip(pipelines, flushed, strict=True):
            await _in_thread(pipeline.abort, seconds if done else 0.2)


async def _in_thread(function: Callable[[], None], seconds: float) -> bool:
    """Call a function that may hang, and wait so long at most; whether it has ended.

    A thread of its own: asyncio waits for those of its executor when the loop is closed.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            function()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="plannerd-telemetry-end", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return False
    return True


def start(plan: Plan, meter: Meter, version: str) -> Telemetry:
    """Begin to export.

    Args:
        plan: from `planned`.
        meter: what is measured.
        version: of this server.

    Raises:
        TelemetryError: an exporter can't be made of what the environment says.
    """
    resource = _resource(version)
    try:
        outages = Outages()
        spans = SpanPipeline(_span_exporter(plan.traces), resource, outages) if plan.traces else None
        metrics = MetricPipeline(_metric_exporter(plan.metrics), resource, outages, meter) if plan.metrics else None
    except (OSError, ValueError, RuntimeError) as error:
        raise TelemetryError(f"OTEL_ variables: {error}") from error
    outages.starting = False
    if spans is not None:
        meter.dropped.follow(lambda: [((), spans.dropped)])
    meter.export_failures.follow(lambda: [((signal,), count) for signal, count in outages.failures.items()])
    return Telemetry(spans, metrics, meter)


def _resource(version: str) -> Resource:
    """What this process is; what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say wins."""
    said = {name: value for name, value in Resource.create().attributes.items() if name != "service.name"}
    own = {"service.name": "plannerd", "service.version": version, "service.instance.id": str(uuid.uuid4())}
    name = Resource.create().attributes["service.name"]
    if not str(name).startswith("unknown_service"):
        said["service.name"] = name
    return Resource(own | said)


def _span_exporter(protocol: str) -> SpanExporter:
    return GrpcSpanExporter() if protocol == "grpc" else HttpSpanExporter()


def _metric_exporter(protocol: str) -> MetricExporter:
    return GrpcMetricExporter() if protocol == "grpc" else HttpMetricExporter()
