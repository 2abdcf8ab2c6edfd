"""Failures as gRPC statuses, with the details that clients act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from plannerd.services.failures import Failure, bounded

DOMAIN: Final = "plannerd.dev"
"""The domain of every ErrorInfo."""

_DETAILS_KEY: Final = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class WireStatus:
    """A status as gRPC sends it: `context.abort(status.code, status.text, status.metadata)`."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, bytes], ...]


def status_of(failure: Failure) -> WireStatus:
    """The rich status of `failure`: ErrorInfo, RetryInfo and BadRequest as they apply, within the bounds."""
    failure = bounded(failure)
    details: list[Message] = [ErrorInfo(domain=DOMAIN, reason=failure.reason.value, metadata=failure.metadata)]
    if failure.retry_after is not None:
        wait = Duration()
        wait.FromMilliseconds(max(0, round(failure.retry_after * 1000)))
        details.append(RetryInfo(retry_delay=wait))
    if failure.violations:
        fields = [
            BadRequest.FieldViolation(field=violation.field, description=violation.problem)
            for violation in failure.violations
        ]
        details.append(BadRequest(field_violations=fields))
    rich = Status(code=failure.code.value[0], message=failure.text)
    for detail in details:
        rich.details.add().Pack(detail)
    return WireStatus(failure.code, failure.text, ((_DETAILS_KEY, rich.SerializeToString()),))
