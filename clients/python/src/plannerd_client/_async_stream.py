"""Sends the requests of a run over one stream, with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from plannerd_client._async_driver import AsyncSender
from plannerd_client._status import to_error
from plannerd_client._stream import Close, Ended, Exchange, Received, Silent, Streaming, Unary
from plannerd_client.errors import PlannerdError
from plannerd_protos.planner.v1 import planner_pb2

if TYPE_CHECKING:
    RunCall: TypeAlias = "grpc.aio.StreamStreamCall[planner_pb2.RunRequest, planner_pb2.RunResponse]"


class AsyncStreamSender:
    """The sender of one run. Close it when the run is over.

    Args:
        streaming: the logic.
        open_stream: opens a stream.
        unary: sends a request by its unary method.
    """

    def __init__(self, streaming: Streaming, open_stream: Callable[[], RunCall], unary: AsyncSender) -> None:
        self._streaming = streaming
        self._open = open_stream
        self._unary = unary
        self._call: RunCall | None = None
        self._answers = 0

    async def __call__(self, method: str, request: Message, timeout: float | None) -> Message:
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
                    outcome = await self._exchange(message, limit)
                case Close():
                    self.close()
                case Unary():
                    try:
                        outcome = await self._unary(effect.method, effect.request, effect.timeout)
                    except PlannerdError as raised:
                        error = raised

    def close(self) -> None:
        """Let go of the stream. The server sees it end, if it has not ended it already."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    async def _exchange(self, message: planner_pb2.RunRequest, timeout: float | None) -> Received | Ended | Silent:
        if self._call is None or self._call.done():
            self._call, self._answers = self._open(), 0
        call, fresh = self._call, self._answers == 0
        sent = False
        try:
            async with asyncio.timeout(timeout):
                await call.write(message)
                sent = True
                response: Any = await call.read()
        except TimeoutError:
            self.close()
            return Silent(fresh)
        except asyncio.InvalidStateError:  # it ended meanwhile
            self.close()
            return Ended(None, fresh, early=True)
        except grpc.RpcError as error:
            self.close()
            return Ended(to_error(error), fresh, early=not sent)
        if response is grpc.aio.EOF:
            self.close()
            return Ended(None, fresh)
        self._answers += 1
        return Received(response, fresh)
