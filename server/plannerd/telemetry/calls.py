"""Telemetry of calls: for each a measurement, and a span where it is sampled."""

from __future__ import annotations

from typing import Final

from plannerd.telemetry.metrics import Meter
from plannerd.telemetry.names import Attribute
from plannerd.telemetry.requests import CURRENT, RequestTrace, Spans, Value

_SYSTEM: Final = "grpc"
# What of a server's answers is its own failure, by the semantic conventions.
_ERRORS: Final = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Calls:
    """Hears of every call, and of every request of a stream.

    Args:
        meter: takes measurements.
        spans: takes spans; None where traces are off.
    """

    def __init__(self, meter: Meter, spans: Spans | None) -> None:
        self._meter = meter
        self._spans = spans
        self._server: dict[str, Value] = {}

    def listening(self, host: str, port: int) -> None:
        """Where the server listens, for its spans."""
        self._server = {Attribute.SERVER_ADDRESS.value: host, Attribute.SERVER_PORT.value: port}

    def begin(self, traceparent: str, tracestate: str = "") -> RequestTrace | None:
        """A request begins, in the task that serves it.

        Args:
            traceparent: the trace context that its client sent.
            tracestate: likewise.
        """
        if self._spans is None:
            return None
        trace = RequestTrace(self._spans, traceparent, tracestate)
        CURRENT.set(trace)
        return trace

    def end(
        self,
        trace: RequestTrace | None,
        method: str,
        code: str,
        seconds: float,
        *,
        reason: str = "",
        invocation_id: str = "",
        stream: bool = False,
        requests: int | None = None,
    ) -> None:
        """A request is answered.

        Args:
            trace: what `begin` gave.
            method: its full name, `/planner.v1.PlannerService/Init`.
            code: the name of its gRPC status.
            seconds: how long it took.
            reason: why it failed.
            invocation_id: the invocation that it named.
            stream: it was one request of a stream.
            requests: it was a stream, and so many requests of it were answered.
        """
        name = method.removeprefix("/")
        self._meter.calls.record((name, code, reason, _SYSTEM), seconds)
        if trace is None or not trace.settle():
            return
        attributes: dict[str, Value] = {
            Attribute.RPC_SYSTEM.value: _SYSTEM,
            Attribute.RPC_METHOD.value: name,
            Attribute.RPC_STATUS.value: code,
            **self._server,
        }
        if reason:
            attributes[Attribute.ERROR_TYPE.value] = reason
        if invocation_id:
            attributes[Attribute.INVOCATION_ID.value] = invocation_id
        if stream:
            attributes[Attribute.STREAM.value] = True
        if requests is not None:
            attributes[Attribute.STREAM_REQUESTS.value] = requests
        trace.finish(name, attributes, error=code in _ERRORS)
