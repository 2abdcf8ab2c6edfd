"""Errors as a client sees them, with their details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class SeenError:
    """A failed call. Fields of details that were not sent are None."""

    code: grpc.StatusCode
    text: str
    domain: str | None
    reason: str | None
    metadata: dict[str, str]
    violations: list[tuple[str, str]] | None
    retry_after: float | None


def seen(error: grpc.aio.AioRpcError) -> SeenError:
    """What `error` says; code and text must be the same in the status and in its details."""
    info = bad = retry = None
    status: Any = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        if detail.Is(ErrorInfo.DESCRIPTOR):
            info = ErrorInfo.FromString(detail.value)
        elif detail.Is(BadRequest.DESCRIPTOR):
            bad = BadRequest.FromString(detail.value)
        elif detail.Is(RetryInfo.DESCRIPTOR):
            retry = RetryInfo.FromString(detail.value)
        else:
            raise AssertionError(f"an unexpected detail: {detail.type_url}")
    return SeenError(
        code=error.code(),
        text=error.details() or "",
        domain=info.domain if info else None,
        reason=info.reason if info else None,
        metadata=dict(info.metadata) if info else {},
        violations=[(entry.field, entry.description) for entry in bad.field_violations] if bad else None,
        retry_after=retry.retry_delay.ToMilliseconds() / 1000 if retry else None,
    )
