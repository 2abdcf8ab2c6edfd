"""Collectors that are away, in the log."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from plannerd.telemetry.logging import get_logger

Signal: TypeAlias = Literal["traces", "metrics"]


class Outages:
    """Says in the log, once each, that a collector does not take what it is sent, and that it does so again.

    Exporters write a line or two at each attempt. They are kept back; the last one is the detail of the line here.
    Other lines of OpenTelemetry are let through while telemetry starts, when they are about its variables. Later ones
    may quote what a client sent.

    Attributes:
        failures: how many exports failed.
        starting: whether telemetry is being started.
        detail: what was said of the last failure.
    """

    def __init__(self) -> None:
        self.failures: dict[Signal, int] = {"traces": 0, "metrics": 0}
        self.starting = True
        self._out: set[Signal] = set()
        self.detail = ""
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.handlers = [_Kept(self)]

    def heard(self, record: logging.LogRecord) -> None:
        """The SDK has something to say."""
        if record.name.startswith("opentelemetry.exporter"):
            self.detail = record.getMessage()
        elif self.starting and record.levelno >= logging.WARNING:
            logging.getLogger().handle(record)

    def exported(self, signal: Signal, taken: bool) -> None:
        """An export ended."""
        if not taken:
            self.failures[signal] += 1
        if taken is (signal not in self._out):
            return
        if taken:
            self._out.discard(signal)
            get_logger().info("telemetry_back", signal=signal)
        else:
            self._out.add(signal)
            get_logger().warning("telemetry_unavailable", signal=signal, detail=self.detail)


class _Kept(logging.Handler):
    def __init__(self, outages: Outages) -> None:
        super().__init__()
        self._outages = outages

    def emit(self, record: logging.LogRecord) -> None:
        self._outages.heard(record)
