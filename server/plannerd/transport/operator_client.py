"""A client of planner.v1.OperatorService, for the command line: plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]

from plannerd.transport.connecting import Connection
from plannerd_protos.planner.v1 import operator_pb2, operator_pb2_grpc


class CallError(Exception):
    """A call failed. Its text is for the operator."""


class OperatorClient:
    """Calls the service.

    Raises:
        OSError: a file can't be read.
    """

    def __init__(self, connection: Connection) -> None:
        self._timeout = connection.timeout
        self._metadata = connection.metadata()
        self._channel = connection.channel()
        self._stub = operator_pb2_grpc.OperatorServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def list(self, wanted: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
        """Up to `limit` invocations (0: all) that pass a filter; durations in it are in seconds.

        Raises:
            CallError: the server refused, or could not be reached.
        """
        chosen = dict(wanted)
        for name in ("min_age", "min_idle"):
            seconds = chosen.pop(name, 0)
            if seconds:
                chosen[name] = Duration()
                chosen[name].FromMilliseconds(round(seconds * 1000))
        chosen["statuses"] = [f"INVOCATION_STATUS_{status.upper()}" for status in chosen.get("statuses", ())]
        request = operator_pb2.ListInvocationsRequest(filter=operator_pb2.InvocationFilter(**chosen))
        request.page_size = min(limit, 500) if limit else 500
        given = 0
        while True:
            page = self._call(self._stub.ListInvocations, request)
            for summary in page.invocations:
                yield _plain(summary)
                given += 1
                if given == limit:
                    return
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def get(self, identity: str, invocation_id: str) -> dict[str, Any]:
        """An invocation.

        Raises:
            CallError: as for `list`.
        """
        request = operator_pb2.GetInvocationRequest(identity=identity, invocation_id=invocation_id)
        return _plain(self._call(self._stub.GetInvocation, request))

    def end(self, identity: str, invocation_id: str, reason: str) -> dict[str, Any]:
        """End an invocation; how it stood before.

        Raises:
            CallError: as for `list`.
        """
        request = operator_pb2.EndInvocationRequest(identity=identity, invocation_id=invocation_id, reason=reason)
        return _plain(self._call(self._stub.EndInvocation, request))

    def _call(self, method: Any, request: Message) -> Any:
        try:
            return method(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise CallError(_told(error)) from None


def statuses() -> tuple[str, ...]:
    """The statuses by which invocations can be listed."""
    names = operator_pb2.InvocationStatus.keys()[1:]
    return tuple(name.removeprefix("INVOCATION_STATUS_").lower() for name in names)


def _plain(message: Message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)


def _told(error: Any) -> str:
    """What a server says, or that there is none."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = ErrorInfo()
        if detail.Unpack(info):
            return f"{info.reason}: {error.details()}"
    return f"{error.code().name}: {error.details()}"
