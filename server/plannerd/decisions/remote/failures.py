"""What the statuses of a `DecisionModelService` mean to those who ask plannerd.

The other side's text goes to a client only where it is about the client's own request. Anything else may
hold addresses or secrets; it stays in `__cause__`, for `plannerd models check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from plannerd.decisions.masking import masked
from plannerd.decisions.retries import LONGEST_RETRY_AFTER, RETRIES_SPENT, AttemptError
from plannerd.errors import PlannerdError, Reason

_DOMAIN: Final = "plannerd.dev"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_MAX_TEXT: Final = 300

# Reasons of another plannerd that mean the same to a client of this one: its words where they are about the
# client's request, else these.
_ABOUT_THE_REQUEST: Final = frozenset({Reason.UNSUPPORTED_INPUT, Reason.DECISION_MODEL_LIMIT, Reason.DECISION_REFUSED})
_BEHIND_IT: Final = {
    Reason.DECISION_INVALID_ANSWER: "the model behind it gave no valid answer",
    Reason.DECISION_MODEL_CREDENTIALS: "the model behind it rejects its credentials",
    Reason.DECISION_MODEL_REJECTED: "the model behind it rejects its requests",
}
_SAME: Final = {reason.value: reason for reason in (*_ABOUT_THE_REQUEST, *_BEHIND_IT)}

# Where gRPC stops a message that is too large, on either side, it says so in these words.
_TOO_LARGE: Final = "message larger than max"
_THIS_SIDE: Final = "CLIENT:"


@dataclass(frozen=True, slots=True)
class _Details:
    """The error details of a status, as far as they matter here."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None


def failure_of(
    error: grpc.aio.AioRpcError, model: str, asked: str, secrets: tuple[str, ...] = ()
) -> AttemptError | PlannerdError:
    """What to raise for a call that failed: AttemptError where another attempt may go better.

    Args:
        error: the status.
        model: the configured name of the model, for messages.
        asked: the name of the model that the other side was asked for.
        secrets: what the other side was sent, and its text must not show.
    """
    code, text = error.code(), masked(error.details() or "", secrets)
    details = _details(error)
    if details.reason in _SAME:
        return _same(_SAME[details.reason], code, text, details, model)
    match code:
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return _failure(Reason.DECISION_MODEL_CREDENTIALS, model, "rejects the credentials of this server", code)
        case grpc.StatusCode.UNAVAILABLE:
            if RETRIES_SPENT in details.metadata:
                # The other side tried as often as it may; trying here as well would multiply that.
                return _unavailable(model, "is unavailable behind its server", code, details)
            return AttemptError("is unavailable", details.retry_after)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return AttemptError("did not answer in time", details.retry_after)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return _exhausted(model, code, text, details)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.FAILED_PRECONDITION | grpc.StatusCode.OUT_OF_RANGE:
            return _failure(Reason.DECISION_MODEL_LIMIT, model, f"refuses the request: {_shown(text)}", code)
        case grpc.StatusCode.NOT_FOUND:
            which = f"a model '{asked}'" if asked else "a default model"
            return _rejected(model, f"its server does not know {which}", code)
        case grpc.StatusCode.UNIMPLEMENTED:
            return _rejected(model, "its server has no DecisionModelService", code)
        case _:
            return _unavailable(model, f"failed with {code.name}", code, details)


def invalid_reply(model: str, problem: str) -> PlannerdError:
    """The error of a reply that is none."""
    return PlannerdError(
        Reason.DECISION_INVALID_ANSWER, f"decision model '{model}' {problem}", metadata={"model": model}
    )


def _same(reason: Reason, code: grpc.StatusCode, text: str, details: _Details, model: str) -> PlannerdError:
    if reason in _ABOUT_THE_REQUEST:
        return PlannerdError(reason, _shown(text), metadata={**details.metadata, "model": model, "status": code.name})
    return _failure(reason, model, f"failed: {_BEHIND_IT[reason]}", code)


def _exhausted(model: str, code: grpc.StatusCode, text: str, details: _Details) -> AttemptError | PlannerdError:
    if details.retry_after is not None:
        return AttemptError("is busy", details.retry_after)
    if _TOO_LARGE in text:
        if _THIS_SIDE in text:
            return invalid_reply(model, "gave a reply larger than max_reply_bytes")
        return _limit_of_bytes(model, code, "the request is larger than its server takes")
    if details.reason == Reason.LIMIT_EXCEEDED:
        return _limit_of_bytes(model, code, f"as its server says: {_shown(text)}", details.metadata)
    return _unavailable(model, "is busy", code, details)


def _limit_of_bytes(
    model: str, code: grpc.StatusCode, problem: str, metadata: Mapping[str, str] | None = None
) -> PlannerdError:
    return PlannerdError(
        Reason.DECISION_MODEL_LIMIT,
        f"decision model '{model}': {problem}",
        metadata={"limit": "bytes", **(metadata or {}), "model": model, "status": code.name},
    )


def _unavailable(model: str, problem: str, code: grpc.StatusCode, details: _Details) -> PlannerdError:
    metadata = {"model": model, "status": code.name}
    if RETRIES_SPENT in details.metadata:
        metadata[RETRIES_SPENT] = "true"
    return PlannerdError(
        Reason.DECISION_MODEL_UNAVAILABLE,
        f"decision model '{model}' {problem}",
        metadata=metadata,
        retry_after=details.retry_after,
    )


def _rejected(model: str, problem: str, code: grpc.StatusCode) -> PlannerdError:
    return _failure(Reason.DECISION_MODEL_REJECTED, model, f"is not there: {problem}", code)


def _failure(reason: Reason, model: str, problem: str, code: grpc.StatusCode) -> PlannerdError:
    return PlannerdError(reason, f"decision model '{model}' {problem}", metadata={"model": model, "status": code.name})


def _shown(text: str) -> str:
    """The other side's words, as they may be shown: one line, not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _MAX_TEXT]).split())
    if not line:
        return "it does not say why"
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


def _details(error: grpc.aio.AioRpcError) -> _Details:
    """The details of a status; none where there are none that can be read."""
    raw = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS_KEY), None)
    if not isinstance(raw, bytes):
        return _Details()
    info, retry = ErrorInfo(), RetryInfo()
    reason, metadata, retry_after = "", dict[str, str](), None
    try:
        for detail in Status.FromString(raw).details:
            if detail.Is(ErrorInfo.DESCRIPTOR) and detail.Unpack(info) and info.domain == _DOMAIN:
                reason, metadata = info.reason, dict(info.metadata)
            elif detail.Is(RetryInfo.DESCRIPTOR) and detail.Unpack(retry):
                seconds = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
                retry_after = min(max(0.0, seconds), LONGEST_RETRY_AFTER)
    except DecodeError:
        return _Details()
    return _Details(reason, metadata, retry_after)
