"""From a failed gRPC call to a typed error."""

from __future__ import annotations

from typing import Final, cast

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from plannerd_client.errors import WITHOUT_REASON, FieldViolation, PlannerdError

DOMAIN: Final = "plannerd.dev"
_DETAILS_KEY: Final = "grpc-status-details-bin"


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
