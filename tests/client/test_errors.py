"""Typed errors, and how they come from gRPC's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from plannerd_client import errors
from plannerd_client._retries import Budget, Remedy, RetryPolicy, remedy
from plannerd_client._status import to_error
from plannerd_client.errors import FieldViolation, PlannerdError
from plannerd_protos.planner.v1 import errors_pb2


class FailedCall(grpc.RpcError):
    """A failed call as gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, message: str, details: Sequence[Message] | None = None) -> None:
        super().__init__()
        self._code, self._message = code, message
        self._trailers: tuple[tuple[str, bytes], ...] = ()
        if details is not None:
            status = status_pb2.Status(code=code.value[0], message=message)
            for detail in details:
                packed = AnyMessage()
                packed.Pack(detail)
                status.details.append(packed)
            self._trailers = (("grpc-status-details-bin", status.SerializeToString()),)

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._message

    def trailing_metadata(self) -> tuple[Any, ...]:
        return self._trailers


def info(reason: str, domain: str = "plannerd.dev", **metadata: str) -> Message:
    return cast("Message", error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata))


def test_every_reason_has_a_class() -> None:
    """Each reason of the contract is a subclass of PlannerdError with a sentence about when it fires."""
    reasons = {name.removeprefix("ERROR_REASON_") for name, _ in errors_pb2.ErrorReason.items()} - {"UNSPECIFIED"}
    assert set(PlannerdError.by_reason) == reasons
    assert all(kind.__doc__ and kind.reason == reason for reason, kind in PlannerdError.by_reason.items())


def test_an_error_has_what_the_server_said() -> None:
    """Reason, metadata, bad fields and the wait come from the details of the status."""
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="agents[2].name", description="is blank")
    retry = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
    details = [info("INVALID_REQUEST", k="v"), bad, retry]
    error = to_error(FailedCall(grpc.StatusCode.INVALID_ARGUMENT, "agents[2].name: is blank", details))
    assert type(error) is errors.InvalidRequest
    assert (error.reason, error.code) == ("INVALID_REQUEST", grpc.StatusCode.INVALID_ARGUMENT)
    assert error.metadata == {"k": "v"}
    assert error.violations == (FieldViolation("agents[2].name", "is blank"),)
    assert error.retry_after == 1.5
    assert str(error) == "INVALID_REQUEST: agents[2].name: is blank"


def test_an_unknown_reason_is_the_base() -> None:
    """A reason of a newer server is kept as text."""
    error = to_error(FailedCall(grpc.StatusCode.ABORTED, "new", [info("BRAND_NEW")]))
    assert type(error) is PlannerdError
    assert error.reason == "BRAND_NEW"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.ServerUnreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, errors.RequestCancelled),
        (grpc.StatusCode.UNAUTHENTICATED, errors.Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, errors.PermissionDenied),
        (grpc.StatusCode.UNKNOWN, PlannerdError),
    ],
)
def test_errors_without_a_reason_are_told_by_their_code(code: grpc.StatusCode, kind: type[PlannerdError]) -> None:
    """Errors of the connection and of proxies have classes too, and no reason."""
    for details in (None, [info("INVALID_REQUEST", domain="other.dev")]):
        error = to_error(FailedCall(code, "", details))
        assert type(error) is kind
        assert (error.reason, error.code) == ("", code)


def with_reason(
    reason: str,
    code: grpc.StatusCode | None = None,
    retry_after: float | None = None,
    metadata: Mapping[str, str] | None = None,
) -> PlannerdError:
    return PlannerdError("x", reason=reason, code=code, retry_after=retry_after, metadata=metadata)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (with_reason("", grpc.StatusCode.UNAVAILABLE), Remedy.RESEND),
        (with_reason("", grpc.StatusCode.INTERNAL), Remedy.RESEND),
        (with_reason("", grpc.StatusCode.RESOURCE_EXHAUSTED), Remedy.STOP),
        (with_reason("", grpc.StatusCode.PERMISSION_DENIED), Remedy.STOP),
        (with_reason("", None), Remedy.STOP),
        (with_reason("INTERNAL", grpc.StatusCode.INTERNAL), Remedy.STOP),
        (with_reason("DRAINING", grpc.StatusCode.UNAVAILABLE), Remedy.RESEND),
        (with_reason("DECISION_MODEL_UNAVAILABLE"), Remedy.RESEND),
        (with_reason("DECISION_MODEL_UNAVAILABLE", metadata={"retries_spent": "true"}), Remedy.STOP),
        (with_reason("DECISION_MODEL_UNAVAILABLE", retry_after=1, metadata={"retries_spent": "true"}), Remedy.STOP),
        (with_reason("TOO_MANY_INVOCATIONS", retry_after=1), Remedy.RESEND),
        (with_reason("TOO_MANY_INVOCATIONS"), Remedy.STOP),
        (with_reason("STATE_NEWER"), Remedy.RESEND),
        (with_reason("REPLICA_BEHIND"), Remedy.RESTORE),
        (with_reason("STATE_OUTDATED"), Remedy.STOP),
        (with_reason("INVOCATION_ENDED"), Remedy.STOP),
    ],
)
def test_errors_say_what_to_do(error: PlannerdError, expected: Remedy) -> None:
    """What is transient is sent again, what is lost restored, all else raised."""
    assert remedy(error) is expected


def budget(clock: list[float], chance: float = 0.0, **policy: Any) -> Budget:
    return Budget(RetryPolicy(**policy), lambda: clock[0], lambda: chance)


def test_waits_double_up_to_the_longest() -> None:
    """Without jitter the waits are the first one, doubled each time, up to the longest."""
    one = budget([0.0], attempts=7, first=1, longest=5, total=100)
    assert [one.wait_before_next(None) for _ in range(7)] == [1, 2, 4, 5, 5, 5, None]


def test_waits_are_spread_by_chance() -> None:
    """Jitter takes away up to its share of the wait."""
    assert budget([0.0], 1.0, first=1, jitter=0.25).wait_before_next(None) == 0.75


def test_the_total_time_counts_from_the_first_failure() -> None:
    """A wait that would end later is refused."""
    clock = [100.0]
    one = budget(clock, first=1, total=10)
    assert one.wait_before_next(None) == 1
    clock[0] = 107.0
    assert one.wait_before_next(None) == 2
    assert one.wait_before_next(None) is None
