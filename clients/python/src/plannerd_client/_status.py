"""From a failed gRPC call to a typed error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from plannerd_client.errors import WITHOUT_REASON, FieldViolation, PlannerdError
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2

DOMAIN: Final = "plannerd.dev"
_DETAILS_KEY: Final = "grpc-status-details-bin"
_PREFIX: Final = "ERROR_REASON_"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def to_error(call: grpc.RpcError) -> PlannerdError:
    """The typed error for a failed call of a sync or an asyncio channel."""
    failed = cast("grpc.Call", call)  # both kinds of errors have these methods; only one says so
    code = failed.code()
    message = failed.details() or code.name
    for key, value in failed.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            return _from_details(code, status.message or message, status)
    return _without_reason(code, message)


def _from_details(code: grpc.StatusCode, message: str, status: status_pb2.Status) -> PlannerdError:
    reason, metadata = "", dict[str, str]()
    violations: list[FieldViolation] = []
    retry_after: float | None = None
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            violations += [FieldViolation(item.field, item.description) for item in bad.field_violations]
        elif detail.Unpack(retry):
            retry_after = seconds(retry.retry_delay)
    return _error(code, message, reason, metadata, violations, retry_after)


def error_in_band(error: planner_pb2.RunError) -> PlannerdError:
    """The typed error for a failed request of a stream: the one that a unary call would have raised."""
    try:
        reason = errors_pb2.ErrorReason.Name(error.reason).removeprefix(_PREFIX)
    except ValueError:
        reason = str(error.reason)  # of a newer server
    return _error(
        _CODES.get(error.code, grpc.StatusCode.UNKNOWN),
        error.message,
        reason,
        dict(error.metadata),
        [FieldViolation(item.field, item.description) for item in error.field_violations],
        seconds(error.retry_after) if error.HasField("retry_after") else None,
    )


def _error(
    code: grpc.StatusCode,
    message: str,
    reason: str,
    metadata: Mapping[str, str],
    violations: Sequence[FieldViolation],
    retry_after: float | None,
) -> PlannerdError:
    if not reason:
        return _without_reason(code, message, retry_after)
    kind = PlannerdError.by_reason.get(reason, PlannerdError)
    return kind(message, reason=reason, code=code, metadata=metadata, violations=violations, retry_after=retry_after)


def _without_reason(code: grpc.StatusCode, message: str, retry_after: float | None = None) -> PlannerdError:
    kind = WITHOUT_REASON.get(code.name, PlannerdError)
    return kind(message, reason="", code=code, retry_after=retry_after)


def seconds(duration: Duration) -> float:
    """A protobuf duration in seconds."""
    return duration.seconds + duration.nanos / 1e9
