"""The log: structured lines on standard error, one for each call, never with content of requests.

What other libraries send to the standard library's logging comes out in the same form. Exceptions are
written as types and places. Their messages may quote what a client sent, so they are left out unless
switched on. A log that can't be written (a closed pipe) never fails a call.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Final, Literal, TextIO, TypeAlias

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

from plannerd.telemetry.requests import Ids

Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["json", "console"]

_LEVELS: Final[dict[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_encode: Final = json.JSONEncoder(default=str, separators=(",", ":")).encode
_MAX_ID: Final = 128  # characters of an id that a client chose

# What a call's code says about the server: the rest is the client's affair, or went well.
_WARNINGS: Final = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"})
_ERRORS: Final = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"})


def configure(
    level: Level = "info",
    form: Format = "json",
    *,
    error_messages: bool = False,
    worker: int | None = None,
    stream: TextIO | None = None,
) -> None:
    """Set up structlog and the standard library's logging for this process.

    Args:
        level: the least important lines that are written.
        form: one JSON object a line, or text for people (in colour on a terminal).
        error_messages: write the messages of exceptions, not only their types and places.
        worker: the number of this process among several, for each line.
        stream: where to; default standard error.
    """
    stream = sys.stderr if stream is None else stream
    exceptions = _Exceptions(error_messages)
    render: Processor = _json_line if form == "json" else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    shared: list[Processor] = [structlog.processors.add_log_level, _add_time, exceptions]
    if worker is not None:
        shared.append(partial(_add_worker, worker))
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *args: _Lines(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Other libraries' finer levels are their developers' business.
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    logging.raiseExceptions = False


def get_logger() -> FilteringBoundLogger:
    """A logger as `configure` last set it up."""
    logger: FilteringBoundLogger = structlog.get_logger().bind()
    return logger


class CallLog:
    """Writes one line for each call, and one for each unexpected exception.

    Args:
        logger: where to; default a logger as `configure` last set it up.
    """

    def __init__(self, logger: FilteringBoundLogger | None = None) -> None:
        logger = get_logger() if logger is None else logger
        self._unexpected = logger.error
        self._write = dict.fromkeys(_WARNINGS, logger.warning) | dict.fromkeys(_ERRORS, logger.error)
        self._usual = logger.info
        self._finer = logger.debug

    def call(
        self,
        method: str,
        code: str,
        duration: float,
        *,
        reason: str = "",
        invocation_id: str = "",
        correlation_id: str = "",
        stream: bool = False,
        ids: Ids | None = None,
    ) -> None:
        """A call is over.

        Args:
            method: its full name, `/planner.v1.PlannerService/Init`.
            code: the name of its gRPC status.
            duration: how long it took, in seconds.
            reason: why it failed.
            invocation_id: the invocation that it named. Written in part if it is longer than the contract allows.
            correlation_id: finds the line of `unexpected`.
            stream: it was one request of a stream.
            ids: the trace that it belongs to, and its span there.
        """
        facts: dict[str, object] = {"method": method, "code": code}
        if reason:
            facts["reason"] = reason
        facts["duration_ms"] = round(duration * 1000, 3)
        if invocation_id:
            facts["invocation_id"] = printable(invocation_id)
        if correlation_id:
            facts["correlation_id"] = correlation_id
        if stream:
            facts["stream"] = True
        if ids is not None:
            facts["trace_id"] = ids.trace_id
            if ids.span_id:
                facts["span_id"] = ids.span_id
        self._write.get(code, self._usual)("call", **facts)

    def stream(self, method: str, code: str, duration: float, requests: int, *, invocation_id: str = "") -> None:
        """A stream ended while nothing was in work; each of its requests has a line of its own.

        Args:
            method: its full name.
            code: the name of its gRPC status.
            duration: how long it was open, in seconds.
            requests: how many were answered.
            invocation_id: the invocation that it was of.
        """
        facts: dict[str, object] = {"method": method, "code": code, "duration_ms": round(duration * 1000, 3)}
        facts["requests"] = requests
        if invocation_id:
            facts["invocation_id"] = printable(invocation_id)
        self._finer("stream_ended", **facts)

    def unexpected(self, method: str, correlation_id: str, error: BaseException) -> None:
        """A call failed by a bug: its cause, for the operator alone."""
        self._unexpected("unexpected_error", method=method, correlation_id=correlation_id, exc_info=error)


def printable(text: str) -> str:
    """`text` from outside, of bounded length and without characters that could forge lines."""
    text = text[:_MAX_ID]
    return text if text.isprintable() else ascii(text)[1:-1]


def _add_time(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _add_worker(worker: int, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    event.setdefault("worker", worker)
    return event


def _json_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """The event as one line of ASCII, with time, level and name first."""
    line = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    return _encode(line)


class _Lines:
    """Writes lines to a stream; one that can't be written is lost, and nothing else happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = exception = msg


class _Exceptions:
    """Replaces `exc_info` by text: types and places of an exception and its causes, messages if wanted."""

    def __init__(self, messages: bool) -> None:
        self._messages = messages

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        error = _exception(event.pop("exc_info", None))
        if error is not None:
            event["exception"] = "\n".join(self._lines(error, set()))
        return event

    def _lines(self, error: BaseException, seen: set[int]) -> Iterator[str]:
        seen.add(id(error))
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None and id(cause) not in seen:
            yield from self._lines(cause, seen)
            yield "and then:" if error.__cause__ is None else "which caused:"
        yield from _places(error.__traceback__)
        name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        yield f"{name}: {error}" if self._messages else name
        if isinstance(error, BaseExceptionGroup):
            for number, inner in enumerate(error.exceptions, 1):
                yield f"of which {number} of {len(error.exceptions)}:"
                yield from self._lines(inner, seen)


def _exception(info: ExcInfo | BaseException | bool | None) -> BaseException | None:
    if isinstance(info, BaseException):
        return info
    if isinstance(info, tuple):
        return info[1]
    return sys.exc_info()[1] if info else None


def _places(trace: TracebackType | None) -> Iterator[str]:
    for place in traceback.format_tb(trace):
        yield place.rstrip()
