"""Metrics, on their way to a collector."""

from __future__ import annotations

import os
import threading
import time

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from plannerd.telemetry import names
from plannerd.telemetry.export.outages import Outages
from plannerd.telemetry.metrics import Labels, Meter, Series, labelled


class MetricPipeline:
    """Exports the metrics of a meter every so often, in a thread of its own.

    Args:
        exporter: where to.
        resource: what this process is.
        outages: hears of exports that fail.
        meter: what is measured.
    """

    def __init__(self, exporter: MetricExporter, resource: Resource, outages: Outages, meter: Meter) -> None:
        self._exporter = exporter
        self._resource = resource
        self._outages = outages
        self._meter = meter
        self._scope = InstrumentationScope(names.SCOPE)
        self._interval = _milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000
        self._timeout = _milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", 30_000)
        self._started = time.time_ns()
        preference = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
        self._delta = preference in ("delta", "lowmemory")
        self._before: dict[tuple[str, Labels], int | tuple[list[int], float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plannerd-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self.export()
        self.export()

    def export(self) -> None:
        """Export the metrics as they are now."""
        try:
            result = self._exporter.export(self.data(), timeout_millis=self._timeout)
        except Exception as error:  # noqa: BLE001 (whatever an exporter raises, the next one may go well)
            self._outages.detail = type(error).__name__
            result = MetricExportResult.FAILURE
        self._outages.exported("metrics", result is MetricExportResult.SUCCESS)

    def data(self) -> MetricsData:
        """The metrics as they are now."""
        now = time.time_ns()
        metrics = [self._count(read.name, read.read(), now) for read in self._meter.counts]
        metrics += [self._histogram(read.name, read.read(), now) for read in self._meter.histograms]
        if self._delta:
            self._started = now
        filled = [metric for metric in metrics if metric.data.data_points]
        return MetricsData([ResourceMetrics(self._resource, [ScopeMetrics(self._scope, filled, "")], "")])

    def close(self) -> None:
        """Export once more; may take long."""
        self._ended.set()
        self._thread.join()

    def abort(self) -> None:
        """Give up an export that is under way."""
        self._exporter.shutdown()

    @property
    def _temporality(self) -> AggregationTemporality:
        return AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE

    def _count(self, name: names.MetricName, values: list[tuple[Labels, int]], now: int) -> Metric:
        points = []
        for labels, value in values:
            counted = value
            if self._delta and name.kind is names.Kind.COUNTER:
                before = self._before.get((name.name, labels), 0)
                counted = value - before if isinstance(before, int) else value
                self._before[name.name, labels] = value
            points.append(NumberDataPoint(labelled(name, labels), self._started, now, counted))
        data = Gauge(points) if name.kind is names.Kind.GAUGE else Sum(points, self._temporality, is_monotonic=True)
        return Metric(name.name, name.description, name.unit, data)

    def _histogram(self, name: names.MetricName, values: list[tuple[Labels, Series]], now: int) -> Metric:
        points = []
        for labels, series in values:
            buckets, total = list(series.buckets), series.total
            if self._delta:
                before = self._before.get((name.name, labels))
                self._before[name.name, labels] = (buckets, total)
                if isinstance(before, tuple):
                    buckets = [now_in - then_in for now_in, then_in in zip(buckets, before[0], strict=True)]
                    total -= before[1]
            points.append(
                HistogramDataPoint(
                    labelled(name, labels),
                    self._started,
                    now,
                    sum(buckets),
                    total,
                    buckets,
                    name.bounds,
                    series.lowest,
                    series.highest,
                )
            )
        return Metric(name.name, name.description, name.unit, HistogramData(points, self._temporality))


def _milliseconds(variable: str, default: float) -> float:
    try:
        value = float(os.environ.get(variable) or default)
    except ValueError:
        return default
    return value if value > 0 else default
