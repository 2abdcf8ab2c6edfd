"""The stream `Run` of a run, without input and output: its messages, and when the unary methods take over.

A run has one stream at a time, on which each of its requests is answered before the next one is sent. Whatever
ends a stream ends nothing else: the request that it left unanswered goes over another one. The logic is a
generator, as in `_effects`; `_sync_stream` and `_async_stream` perform what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from plannerd_client._status import error_in_band
from plannerd_client.errors import DeadlineExceeded, PlannerdError, ProtocolError, ServerUnreachable
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2

FIELDS: Final = {
    "Init": "init",
    "FirstAction": "first_action",
    "NextAction": "next_action",
    "ExecutionState": "execution_state",
    "End": "end",
}
"""Where the requests and responses of each method are inside those of the stream."""

_BREAKS: Final = 2
_UNARY_SECONDS: Final = 60.0
# A write that meets the end of its stream hides the status behind an INTERNAL of grpc.aio. Trying again shows it.
_HIDDEN: Final = 3


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send a request over the stream, a new one if there is none; `Received`, `Ended` or `Silent` comes back."""

    message: planner_pb2.RunRequest
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Received:
    """The answer.

    Args:
        response: it.
        fresh: the stream had not had an answer before.
    """

    response: planner_pb2.RunResponse
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream ended in place of an answer, and is closed.

    Args:
        error: its status; None for OK.
        fresh: it had not had an answer before.
        early: the request could not even be sent.
    """

    error: PlannerdError | None
    fresh: bool
    early: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """There was no answer in time, and the stream is closed. `fresh` as for `Ended`."""

    fresh: bool


@dataclass(frozen=True, slots=True)
class Close:
    """Let go of the stream; None comes back."""


@dataclass(frozen=True, slots=True)
class Unary:
    """Send a request by its unary method; the response comes back, or a `PlannerdError` is thrown."""

    method: str
    request: Message
    timeout: float | None


Program: TypeAlias = Generator[Exchange | Close | Unary, Any, Message]


class Choice:
    """Whether a client's requests go over streams: while it wants that and it works.

    Args:
        wanted: the client's own choice.
        clock: seconds from any start, never going back.
    """

    def __init__(self, wanted: bool, clock: Callable[[], float]) -> None:
        self._wanted = wanted
        self._clock = clock
        # Streams that broke before their first answer, since one was answered; then unary calls may work still.
        self._breaks = 0
        self._unary_works = False
        self._unary_until = 0.0

    @property
    def streams(self) -> bool:
        """Whether the next request goes over a stream."""
        return self._wanted and self._breaks < _BREAKS and self._clock() >= self._unary_until

    def answered(self) -> None:
        """A stream gave an answer."""
        self._breaks, self._unary_works = 0, False

    def unsupported(self) -> None:
        """The server, or something before it, has no streams: never again."""
        self._wanted = False

    def broke(self, *, silent: bool = False) -> None:
        """A stream ended before its first answer and nobody said why; `silent`: it did not even end.

        After some of them a unary call is tried. If it gets through and streams still don't, or if trying a stream
        takes long, unary calls are used for a while.
        """
        if self._unary_works:
            self._unary_until = self._clock() + _UNARY_SECONDS
        else:
            self._breaks += 1
        if silent:
            self._breaks, self._unary_works = _BREAKS, True

    def unary(self, *, worked: bool) -> None:
        """A unary call was made in place of a stream, and got an answer or not."""
        if self._breaks < _BREAKS:
            return
        if worked and self._unary_works:
            self._unary_until = self._clock() + _UNARY_SECONDS
        self._breaks, self._unary_works = _BREAKS - 1, worked


class Streaming:
    """The requests of one run.

    Args:
        choice: whether they go over streams.
        traceparent: gives the W3C trace context of a request.
    """

    def __init__(self, choice: Choice, traceparent: Callable[[], str]) -> None:
        self._choice = choice
        self._traceparent = traceparent
        self._number = 0

    def send(self, method: str, request: Message, timeout: float | None) -> Program:
        """Send a request and return its answer.

        Raises:
            PlannerdError: it failed, or what became of it is not known.
        """
        choice, hidden = self._choice, 0
        while choice.streams:
            self._number += 1
            message = _envelope(self._number, method, request, timeout, self._traceparent())
            match (yield Exchange(message, timeout)):
                case Received(response, fresh):
                    choice.answered()
                    if not fresh and response.error.reason == errors_pb2.ERROR_REASON_UNAUTHENTICATED:
                        yield Close()
                        continue  # its token is not good any more: another stream brings the current one
                    answer = _opened(method, response)
                    if _released(method, answer):
                        yield Close()
                    return answer
                case Silent(fresh):
                    if fresh:
                        choice.broke(silent=True)
                    raise _silence()
                case Ended(error, fresh, early):
                    if not fresh and (early or error is None or error.reason == "DRAINING"):
                        continue  # it ended before it looked at the request
                    error = error or _unanswered()
                    if early and error.code is grpc.StatusCode.INTERNAL and hidden < _HIDDEN:
                        hidden += 1
                        continue
                    if error.code is grpc.StatusCode.UNIMPLEMENTED:
                        choice.unsupported()
                        continue
                    if error.reason == "LIMIT_EXCEEDED" and error.metadata.get("limit") == "max_streams":
                        break
                    if fresh and not error.reason:
                        choice.broke()
                    raise error
        try:
            answer = cast("Message", (yield Unary(method, request, timeout)))
        except PlannerdError as failure:
            choice.unary(worked=bool(failure.reason))
            raise
        choice.unary(worked=True)
        return answer


def _envelope(
    number: int, method: str, request: Message, timeout: float | None, traceparent: str
) -> planner_pb2.RunRequest:
    """A request of a stream.

    The server gets a little less time than the client waits, so that it is the one to say that time is up.
    """
    made = planner_pb2.RunRequest(id=number, traceparent=traceparent)
    getattr(made, FIELDS[method]).CopyFrom(request)
    if timeout is not None:
        made.timeout.FromMicroseconds(max(1, round((timeout - min(1.0, 0.1 * timeout)) * 1e6)))
    return made


def _opened(method: str, response: planner_pb2.RunResponse) -> Message:
    """The answer inside a response, or the error raised."""
    kind = response.WhichOneof("response")
    if kind == "error":
        raise error_in_band(response.error)
    if kind != FIELDS[method]:
        raise ProtocolError(f"the answer to {method} is {kind or 'of a kind that this version does not know'}")
    return cast("Message", getattr(response, kind))


def _released(method: str, answer: Any) -> bool:
    """Whether the server ends the stream after this answer."""
    if method == "End":
        return True
    return method in {"FirstAction", "NextAction"} and answer.step.action.WhichOneof("kind") == "suspend"


def _silence() -> PlannerdError:
    return DeadlineExceeded("the server did not answer in time", reason="", code=grpc.StatusCode.DEADLINE_EXCEEDED)


def _unanswered() -> PlannerdError:
    return ServerUnreachable("the stream ended without an answer", reason="", code=grpc.StatusCode.UNAVAILABLE)
