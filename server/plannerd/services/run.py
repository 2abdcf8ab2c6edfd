"""planner.v1.PlannerService.Run, one request at a time: what the unary methods answer, and their errors in band.

How requests are read and answers written, and what happens when one comes while another is in work, is the
transport's affair (`transport.streams`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from plannerd.decisions.deadline import call_deadline
from plannerd.errors import PlannerdError, Reason, invalid
from plannerd.services.codec.configuration import check_invocation_id
from plannerd.services.codec.run import decode_timeout, encode_error, encode_response, suspends
from plannerd.services.context import CallContext
from plannerd.services.failures import Failure, failure_of, too_large
from plannerd_protos.planner.v1 import planner_pb2

Method: TypeAlias = Callable[[Any, CallContext], Awaitable[Message | bytes]]

_ANY: Final = "Run"
_NAMES: Final[Mapping[str, str]] = {
    "init": "Init",
    "first_action": "FirstAction",
    "next_action": "NextAction",
    "execution_state": "ExecutionState",
    "end": "End",
}
"""The unary method of each kind of request."""

_STEPS: Final = frozenset({"first_action", "next_action"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request of a stream.

    Attributes:
        reply: the encoded response.
        method: the unary method that was asked for.
        invocation_id: the invocation that the request names.
        last: the stream ends after it.
        failure: what went wrong, if something did.
        error: what was raised then.
    """

    reply: bytes
    method: str
    invocation_id: str
    last: bool = False
    failure: Failure | None = None
    error: BaseException | None = None


class RunConversation:
    """One stream, which is of one invocation: that of the first request that names one.

    Args:
        service: has the unary methods.
        call: the stream as a call.
        max_reply_bytes: bytes of one answer, without what the stream puts around it.
    """

    def __init__(self, service: object, call: CallContext, *, max_reply_bytes: int) -> None:
        self._call = call
        self._max_reply_bytes = max_reply_bytes
        self._methods: dict[str, Method] = {kind: getattr(service, name) for kind, name in _NAMES.items()}
        self._invocation_id = ""

    async def answer(self, request: planner_pb2.RunRequest) -> Answer:
        """Do what a request asks for, and answer it, whatever becomes of it.

        Raises:
            asyncio.CancelledError: the stream is over.
        """
        kind, invocation_id = request.WhichOneof("request"), ""
        call = self._call
        try:
            if kind is None:
                raise invalid("request", "one of init, first_action, next_action, execution_state and end must be set")
            inner = getattr(request, kind)
            invocation_id = inner.invocation_id
            self._check_invocation(invocation_id)
            if request.traceparent or request.HasField("timeout"):
                limit = decode_timeout(request.timeout) if request.HasField("timeout") else None
                call = self._call_of(request, limit)
                if limit == 0:
                    raise TimeoutError
                # The deadline of the stream cancels this task by itself.
                async with asyncio.timeout(limit):
                    with call_deadline(call.time_remaining):
                        reply = await self._methods[kind](inner, call)
            else:
                with call_deadline(call.time_remaining):
                    reply = await self._methods[kind](inner, call)
            encoded = reply if isinstance(reply, bytes) else reply.SerializeToString()
            if len(encoded) > self._max_reply_bytes:
                raise too_large("reply", len(encoded), self._max_reply_bytes)
            return Answer(
                encode_response(request.id, kind, encoded),
                _NAMES[kind],
                invocation_id,
                kind == "end" or (kind in _STEPS and suspends(encoded)),
            )
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _cancelled():
                raise
            return _failed(request.id, kind, invocation_id, error, call.time_remaining())

    def refuse(self, request: planner_pb2.RunRequest, error: PlannerdError | None = None) -> Answer:
        """The answer to a request that is not looked at: by default because another one is in work (row 14)."""
        kind = request.WhichOneof("request")
        error = error or PlannerdError(
            Reason.OUT_OF_ORDER,
            "Another request of this stream is not answered yet: send each one after the answer to the last.",
        )
        return _failed(request.id, kind, getattr(request, kind).invocation_id if kind else "", error, None)

    def _check_invocation(self, invocation_id: str) -> None:
        if invocation_id == self._invocation_id and invocation_id:
            return
        check_invocation_id(invocation_id)
        if self._invocation_id:
            raise invalid(
                "invocation_id",
                f"this stream is of the invocation '{self._invocation_id}'; open another stream for another one",
            )
        self._invocation_id = invocation_id

    def _call_of(self, request: planner_pb2.RunRequest, limit: float | None) -> CallContext:
        """The call that a request of its own would be."""
        call = self._call
        remaining = call.time_remaining
        if limit is not None:
            ends = time.monotonic() + limit

            def remaining() -> float:
                own, whole = max(0.0, ends - time.monotonic()), call.time_remaining()
                return own if whole is None else min(own, whole)

        return replace(call, traceparent=request.traceparent or call.traceparent, time_remaining=remaining)


def _cancelled() -> bool:
    """Whether somebody cancelled this task, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failed(
    request_id: int, kind: str | None, invocation_id: str, error: BaseException, time_remaining: float | None
) -> Answer:
    failure = failure_of(error, time_remaining)
    method = _NAMES[kind] if kind else _ANY
    return Answer(encode_error(request_id, failure), method, invocation_id, False, failure, error)
