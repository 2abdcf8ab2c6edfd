"""Failed requests as clients see them: the one table from reasons to codes, what of an error is told, and its bounds.

The bounds hold for statuses and for errors inside a stream alike, so that a request fails in the same words
whichever way it came. They come from statuses: a client's library refuses replies whose headers exceed a limit,
by default 8 KiB in C-core (above it at random, from 16 KiB on always) and in Java, and then shows
RESOURCE_EXHAUSTED in place of what was sent. A text of TEXT_BYTES and details of DETAILS_BYTES, which travel
as base64, come to less than 7 KiB with everything around them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import grpc

from plannerd.errors import PlannerdError, Reason, Violation

CORRELATION_ID: Final = "correlation_id"
"""The metadata key of an internal error that finds its cause in the log."""

TRUNCATED: Final = "truncated"
"""The metadata key that is set when details did not fit."""

INTERNAL_TEXT: Final = "internal error; the operator finds its cause in the server's log by the correlation id"
"""The text of every internal error."""

TEXT_BYTES: Final = 1024
"""The longest status text, as it travels: a character outside printable ASCII takes 3 for each byte of UTF-8."""

DETAILS_BYTES: Final = 4096
"""The largest google.rpc.Status, of which the text is a part."""

# Bytes of UTF-8 inside the details: all metadata, one value of it, a field path or its description, and what else
# there is (the names of the details' types, domain, reason, the time to wait).
_METADATA_BYTES: Final = 1440
_VALUE_BYTES: Final = 1024
_VIOLATION_BYTES: Final = 400
_AROUND_BYTES: Final = 384
# What protobuf adds to an entry of metadata and to a bad field: tags and lengths.
_ENTRY_BYTES: Final = 12

_ELLIPSIS: Final = "..."

CODES: Final[Mapping[Reason, grpc.StatusCode]] = {
    Reason.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_CONFIGURATION: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_VALUE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_CONDITION: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_EXECUTION_STATE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_CALL: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.MISSING_BELIEF: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNSUPPORTED_INPUT: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVOCATION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.PLANNER_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.DECISION_MODEL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.INVOCATION_ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.OUT_OF_ORDER: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.CALL_ALREADY_REPORTED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INVOCATION_FINISHED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INVOCATION_ENDED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STATE_OF_OTHER_PLANNER: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STATE_NEWER: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LIVE_AGENT_MISSING: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.CONDITION_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.VALUE_REQUIRED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.EMPTY_DECISION_INPUT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STALE_REVISION: grpc.StatusCode.ABORTED,
    Reason.REPLICA_BEHIND: grpc.StatusCode.ABORTED,
    Reason.STATE_OUTDATED: grpc.StatusCode.ABORTED,
    Reason.OWNER_CHANGED: grpc.StatusCode.ABORTED,
    Reason.LIMIT_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_INVOCATIONS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.REPLY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DECISION_QUEUE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DECISION_MODEL_LIMIT: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DECISION_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DECISION_MODEL_UNEXPECTED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.DECISION_MODEL_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.DECISION_INVALID_ANSWER: grpc.StatusCode.INTERNAL,
    Reason.DECISION_MODEL_CREDENTIALS: grpc.StatusCode.INTERNAL,
    Reason.DECISION_MODEL_REJECTED: grpc.StatusCode.INTERNAL,
    Reason.STORE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.STORE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    Reason.SWITCHED_OFF: grpc.StatusCode.UNIMPLEMENTED,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
}
"""The code of each reason."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request, as its client will see it.

    Attributes:
        reason: why.
        text: what is wrong and what to do.
        metadata: machine-readable facts.
        violations: the bad fields.
        retry_after: seconds to wait before trying again, where waiting helps.
        correlation_id: of an internal error; empty otherwise.
    """

    reason: Reason
    text: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    retry_after: float | None = None
    correlation_id: str = ""

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC code."""
        return CODES[self.reason]


def failure_of(error: BaseException, time_remaining: float | None) -> Failure:
    """What a client is told about `error`.

    A PlannerdError is told as it is. A time-out or a cancellation is the deadline's if the deadline is over.
    Everything else is an internal error, of which only a correlation id is told.

    Args:
        error: what was raised.
        time_remaining: seconds until the request's deadline; None without one.
    """
    if isinstance(error, PlannerdError) and error.reason is not Reason.INTERNAL:
        return Failure(error.reason, error.message, error.metadata, error.violations, error.retry_after)
    over = time_remaining is not None and time_remaining <= 0
    if over and isinstance(error, TimeoutError | asyncio.CancelledError):
        return Failure(Reason.DEADLINE_EXCEEDED, "the deadline of the call passed before the request was done")
    correlation_id = secrets.token_hex(8)
    return Failure(Reason.INTERNAL, INTERNAL_TEXT, {CORRELATION_ID: correlation_id}, correlation_id=correlation_id)


def too_large(what: str, actual: int, allowed: int) -> PlannerdError:
    """The error of a message, a `request` or a `reply`, that has more bytes than the server allows."""
    return PlannerdError(
        Reason.LIMIT_EXCEEDED,
        f"the {what} has {actual} bytes, this server allows {allowed}",
        metadata={"limit": f"max_{what}_bytes", "allowed": str(allowed), "requested": str(actual)},
    )


def bounded(failure: Failure) -> Failure:
    """`failure`, cut to the bounds; metadata that was cut, or fields that were, show in its metadata."""
    text = cut_text(failure.text)
    metadata, used, complete = _fit_metadata(failure.metadata)
    room = DETAILS_BYTES - len(text.encode()) - used - _AROUND_BYTES
    violations, all_there = _fit_violations(failure.violations, room)
    if not (complete and all_there):
        metadata[TRUNCATED] = "true"
    return replace(failure, text=text, metadata=metadata, violations=violations)


def cut_text(text: str, limit: int = TEXT_BYTES) -> str:
    """`text`, cut between characters so that it takes at most `limit` bytes as it travels, percent-encoded."""
    if len(text) <= limit and text.isascii() and text.isprintable() and "%" not in text:
        return text
    text = _encodable(text)
    used = 0
    fits = 0  # how many characters leave room for the ellipsis
    for index, character in enumerate(text):
        used += 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if used > limit:
            return text[:fits] + _ELLIPSIS
        if used <= limit - len(_ELLIPSIS):
            fits = index + 1
    return text


def _fit_metadata(metadata: Mapping[str, str]) -> tuple[dict[str, str], int, bool]:
    """The entries that there is room for, the bytes that they take, and whether all of them are there, whole."""
    fitting: dict[str, str] = {}
    used = len(TRUNCATED) + _ENTRY_BYTES
    complete = True
    for key, value in metadata.items():
        short = _cut_bytes(value, _VALUE_BYTES)
        size = len(key.encode("utf-8", "replace")) + len(short.encode()) + _ENTRY_BYTES
        if used + size > _METADATA_BYTES:
            return fitting, used, False
        used += size
        fitting[_encodable(key)] = short
        complete = complete and short == value
    return fitting, used, complete


def _fit_violations(violations: tuple[Violation, ...], room: int) -> tuple[tuple[Violation, ...], bool]:
    """As many as fit into `room` bytes; whether all of them are there, whole."""
    fitting: list[Violation] = []
    complete = True
    for violation in violations:
        path, problem = _cut_bytes(violation.field, _VIOLATION_BYTES), _cut_bytes(violation.problem, _VIOLATION_BYTES)
        room -= len(path.encode()) + len(problem.encode()) + _ENTRY_BYTES
        if room < 0:
            return tuple(fitting), False
        fitting.append(Violation(path, problem))
        complete = complete and (path, problem) == (violation.field, violation.problem)
    return tuple(fitting), complete


def _cut_bytes(text: str, limit: int) -> str:
    """`text`, cut between characters so that it takes at most `limit` bytes of UTF-8."""
    raw = _encodable(text).encode()
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - len(_ELLIPSIS)].decode("utf-8", "ignore") + _ELLIPSIS


def _encodable(text: str) -> str:
    """`text` with a question mark in place of each lone surrogate, which UTF-8 can't hold."""
    return text.encode("utf-8", "replace").decode()
