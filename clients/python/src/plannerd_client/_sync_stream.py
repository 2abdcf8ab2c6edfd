"""Sends the requests of a run over one stream, from the thread of the run."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import Message

from plannerd_client._status import to_error
from plannerd_client._stream import Close, Ended, Exchange, Received, Silent, Streaming, Unary
from plannerd_client._sync_driver import Sender
from plannerd_client.errors import PlannerdError
from plannerd_protos.planner.v1 import planner_pb2

Requests: TypeAlias = Iterator[planner_pb2.RunRequest]

_END: Final = object()


class RunCall(Protocol):
    """A stream of gRPC: an iterator of responses that can be cancelled."""

    def __next__(self) -> planner_pb2.RunResponse: ...

    def __iter__(self) -> Iterator[planner_pb2.RunResponse]: ...

    def cancel(self) -> Any:
        """End it."""

    def is_active(self) -> bool:
        """Whether it has not ended."""


class Watchdog:
    """Cancels calls that are not answered in time: reading from a stream has no time limit of its own.

    It has one thread, which sleeps until the earliest limit that it knows, and ends when there is none.
    """

    def __init__(self) -> None:
        self._limits: dict[RunCall, float] = {}
        self._changed = threading.Condition()
        self._wakes: float | None = None  # when the thread looks again, if there is one

    def watch(self, call: RunCall, seconds: float) -> None:
        """Cancel `call` after some seconds, unless it is released before."""
        limit = time.monotonic() + seconds
        with self._changed:
            self._limits[call] = limit
            if self._wakes is None:
                self._wakes = limit
                threading.Thread(target=self._run, name="plannerd-watchdog", daemon=True).start()
            elif limit < self._wakes:
                self._changed.notify()

    def release(self, call: RunCall) -> bool:
        """Watch it no longer; whether it was in time."""
        with self._changed:
            return self._limits.pop(call, None) is not None

    def close(self) -> None:
        """Forget all limits; the thread ends."""
        with self._changed:
            self._limits.clear()
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._limits:
                now = time.monotonic()
                for call in [call for call, limit in self._limits.items() if limit <= now]:
                    del self._limits[call]
                    call.cancel()
                self._wakes = min(self._limits.values(), default=now)
                self._changed.wait(self._wakes - now)
            self._wakes = None


class StreamSender:
    """The sender of one run. Close it when the run is over.

    Args:
        streaming: the logic.
        open_stream: opens a stream for requests.
        unary: sends a request by its unary method.
        watchdog: keeps the time limits.
    """

    def __init__(
        self, streaming: Streaming, open_stream: Callable[[Requests], RunCall], unary: Sender, watchdog: Watchdog
    ) -> None:
        self._streaming = streaming
        self._open = open_stream
        self._unary = unary
        self._watchdog = watchdog
        self._call: RunCall | None = None
        self._requests: queue.SimpleQueue[planner_pb2.RunRequest | None] = queue.SimpleQueue()
        self._answers = 0

    def __call__(self, method: str, request: Message, timeout: float | None) -> Message:
        """Send a request and return its answer; see `Streaming.send`."""
        program = self._streaming.send(method, request, timeout)
        outcome: Any = None
        error: PlannerdError | None = None
        while True:
            try:
                effect = program.send(outcome) if error is None else program.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            outcome, error = None, None
            match effect:
                case Exchange(message, limit):
                    outcome = self._exchange(message, limit)
                case Close():
                    self.close()
                case Unary():
                    try:
                        outcome = self._unary(effect.method, effect.request, effect.timeout)
                    except PlannerdError as raised:
                        error = raised

    def close(self) -> None:
        """Let go of the stream. The server sees it end, if it has not ended it already."""
        call, self._call = self._call, None
        if call is not None:
            self._requests.put(None)  # ends the thread in which gRPC takes requests
            call.cancel()

    def _exchange(self, message: planner_pb2.RunRequest, timeout: float | None) -> Received | Ended | Silent:
        if self._call is None or not self._call.is_active():
            self.close()
            self._requests, self._answers = queue.SimpleQueue(), 0
            self._call = self._open(iter(self._requests.get, None))
        call, fresh = self._call, self._answers == 0
        if timeout is not None:
            self._watchdog.watch(call, timeout)
        error: PlannerdError | None = None
        response: Any = _END
        try:
            self._requests.put(message)
            response = next(call, _END)
        except grpc.RpcError as raised:
            error = to_error(raised)
        finally:
            in_time = timeout is None or self._watchdog.release(call)
        if response is not _END:
            self._answers += 1
            return Received(response, fresh)
        self.close()
        return Ended(error, fresh) if in_time else Silent(fresh)
