"""The two ways to send a request, by its unary method and over a stream, seen alike."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from plannerd_protos.planner.v1 import errors_pb2, planner_pb2
from tests.support.errors import SeenError, seen

Metadata: TypeAlias = tuple[tuple[str, str], ...]

FIELDS = {
    planner_pb2.InitRequest: ("Init", "init"),
    planner_pb2.FirstActionRequest: ("FirstAction", "first_action"),
    planner_pb2.NextActionRequest: ("NextAction", "next_action"),
    planner_pb2.ExecutionStateRequest: ("ExecutionState", "execution_state"),
    planner_pb2.EndRequest: ("End", "end"),
}
"""The unary method of each request, and where it is inside those of a stream."""


class Way(Protocol):
    """Sends a request; what comes back is its answer or how it failed."""

    async def __call__(
        self, stub: Any, request: Message, *, metadata: Metadata = (), timeout: float | None = None
    ) -> Message | SeenError: ...


async def unary(
    stub: Any, request: Message, *, metadata: Metadata = (), timeout: float | None = None
) -> Message | SeenError:
    """By the method of its own."""
    try:
        answer: Message = await getattr(stub, FIELDS[type(request)][0])(request, metadata=metadata, timeout=timeout)
    except grpc.aio.AioRpcError as error:
        return seen(error)
    return answer


async def streamed(
    stub: Any, request: Message, *, metadata: Metadata = (), timeout: float | None = None
) -> Message | SeenError:
    """Over a stream of its own, on which the time limit is the request's."""
    field = FIELDS[type(request)][1]
    envelope = planner_pb2.RunRequest(id=7)
    getattr(envelope, field).CopyFrom(request)
    if timeout is not None:
        envelope.timeout.FromMicroseconds(max(1, round(timeout * 1e6)))
    call = stub.Run(metadata=metadata)
    try:
        await call.write(envelope)
        response = await call.read()
    except grpc.aio.AioRpcError as error:
        return seen(error)
    finally:
        call.cancel()
    assert isinstance(response, planner_pb2.RunResponse), "the stream ended without an answer"
    assert response.id == envelope.id
    if response.HasField("error"):
        return in_band(response.error)
    answer: Message = getattr(response, field)
    assert response.WhichOneof("response") == field
    return answer


WAYS: dict[str, Way] = {"unary": unary, "stream": streamed}


def in_band(error: planner_pb2.RunError) -> SeenError:
    """An error of a stream, as that of a unary call is seen."""
    codes = {code.value[0]: code for code in grpc.StatusCode}
    return SeenError(
        code=codes[error.code],
        text=error.message,
        domain="plannerd.dev",
        reason=errors_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_"),
        metadata=dict(error.metadata),
        violations=[(entry.field, entry.description) for entry in error.field_violations] or None,
        retry_after=error.retry_after.ToMilliseconds() / 1000 if error.HasField("retry_after") else None,
    )
