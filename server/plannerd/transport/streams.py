"""Streams both ways: one request after the other, each answered before the next is taken.

A step that does not wait costs no task of its own. While one does wait, the stream is read on, so that a second
request is refused at once instead of being kept: what is held of a stream is the request in work, and at most
one that came behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

import grpc.aio

from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd.services.run import Answer
from plannerd.telemetry.requests import RequestTrace
from plannerd.transport.gate import Context, Gate, Passage
from plannerd.transport.messages import Codec

_END: Final = grpc.aio.EOF


class Conversation(Protocol):
    """A stream as a service sees it."""

    def answer(self, request: Any) -> Awaitable[Answer]:
        """Do what a request asks for. Only a cancellation is raised; everything else is answered."""

    def refuse(self, request: Any, error: PlannerdError | None = None) -> Answer:
        """The answer to a request that is not even looked at.

        Args:
            request: what was asked.
            error: why, and the stream ends with it; None: it came before another one was answered.
        """


Streaming: TypeAlias = Callable[[CallContext], Conversation]


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """How much streams may hold.

    Attributes:
        idle_seconds: how long one may wait for its client's next request before the server ends it.
        streams: how many there may be.
        age_seconds: how old one may be when it waits for its client's next request; None: any age.
    """

    idle_seconds: float = 300.0
    streams: int = 10_000
    age_seconds: float | None = None


DEFAULT_BOUNDS: Final = StreamBounds()


def streaming(
    codec: Codec, behave: Streaming, gate: Gate, bounds: StreamBounds
) -> Callable[[object, Context], Awaitable[None]]:
    """The handler of a method with streams both ways."""
    open_streams: set[Passage] = set()

    # A coroutine that reads and writes by itself: of a generator grpc would not make sure that it is closed.
    async def handle(_: object, context: Context) -> None:
        passage = gate.enter(codec.path, context)
        try:
            gate.admit(passage)
            if len(open_streams) >= bounds.streams:
                raise _too_many(bounds.streams)
            open_streams.add(passage)
            await _Stream(codec, behave(passage.facts()), gate, passage).run(bounds)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the gate logs and answers)
            await gate.fail(passage, error)
        finally:
            open_streams.discard(passage)
            gate.leave(passage)
        gate.ended(passage)

    return handle


class _Stream:
    """One stream, in the task of its call."""

    def __init__(self, codec: Codec, conversation: Conversation, gate: Gate, passage: Passage) -> None:
        self._decode = codec.decode
        self._conversation = conversation
        self._gate = gate
        self._passage = passage
        self._context = passage.context
        self._loop = asyncio.get_running_loop()
        # The read that goes on while a step waits, and the next request if it came before that was answered.
        self._ahead: asyncio.Task[object] | None = None
        self._working = False
        self._writing = asyncio.Lock()
        # Since when the next request is waited for, and what ended that wait.
        self._idle_since: float | None = None
        self._interrupted = False
        self._old = False

    async def run(self, bounds: StreamBounds) -> None:
        """Answer requests until the client sends no more, waits for too long, or there is no more to say."""
        self._passage.interrupt = self._interrupt
        self._timer = self._loop.call_later(bounds.idle_seconds, self._check_idle, bounds.idle_seconds)
        self._end = None if bounds.age_seconds is None else self._loop.call_later(bounds.age_seconds, self._grow_old)
        try:
            while (raw := await self._next()) is not _END:
                if await self._answer(cast("bytes", raw)):
                    break
        finally:
            self._timer.cancel()
            if self._end is not None:
                self._end.cancel()
            if self._ahead is not None:
                self._ahead.cancel()
                await asyncio.gather(self._ahead, return_exceptions=True)

    async def _answer(self, raw: bytes) -> bool:
        """Answer one request; whether it was the last."""
        request: Any = self._decode(raw)
        started = time.perf_counter()
        trace = self._gate.request(self._passage, request.traceparent)
        refusal = self._gate.refusal(self._passage)
        if refusal is not None:
            await self._reply(self._conversation.refuse(request, refusal), started, trace)
            return True
        self._working = True
        # If the step has not waited by the next turn of the loop, it is done and this never runs.
        reading_on = self._loop.call_soon(self._read_on)
        try:
            answer = await self._conversation.answer(request)
        finally:
            self._working = False
            reading_on.cancel()
        await self._reply(answer, started, trace)
        return answer.last

    async def _reply(self, answer: Answer, started: float, trace: RequestTrace | None) -> None:
        try:
            async with self._writing:
                await self._context.write(answer.reply)
        finally:
            # What was done is told, also if its client is gone before this has noticed that the reply left.
            self._gate.answered(self._passage, answer, started, trace)

    async def _next(self) -> object:
        """The next request; _END after the last."""
        self._passage.idle = True
        self._gate.check_open()
        if self._old and (self._ahead is None or not self._ahead.done()):
            return _END
        self._idle_since = self._loop.time()
        try:
            if self._ahead is None:
                raw = await self._context.read()
            else:
                ahead, self._ahead = self._ahead, None
                raw = await ahead
        except asyncio.CancelledError:
            if not self._interrupted or self._passage.task.uncancel() > 0:
                raise
            self._gate.check_open()
            return _END
        finally:
            self._idle_since = None
        self._passage.idle = raw is _END
        return raw

    def _read_on(self) -> None:
        if self._ahead is None:
            self._ahead = self._loop.create_task(self._refuse_others())

    async def _refuse_others(self) -> object:
        """Refuse requests while one is in work; the first that is there after it, or _END."""
        while True:
            raw = await self._context.read()
            if raw is _END or not self._working:
                return raw
            started = time.perf_counter()
            request: Any = self._decode(cast("bytes", raw))
            trace = self._gate.request(self._passage, request.traceparent)
            await self._reply(self._conversation.refuse(request), started, trace)

    def _check_idle(self, seconds: float) -> None:
        now = self._loop.time()
        since = now if self._idle_since is None else self._idle_since
        if now - since >= seconds:
            self._interrupt()
        else:
            self._timer = self._loop.call_at(since + seconds, self._check_idle, seconds)

    def _grow_old(self) -> None:
        self._old = True
        self._interrupt()

    def _interrupt(self) -> None:
        """End the wait for the next request, if there is one."""
        if self._idle_since is not None and not self._interrupted:
            self._interrupted = True
            self._passage.task.cancel()


def _too_many(allowed: int) -> PlannerdError:
    return PlannerdError(
        Reason.LIMIT_EXCEEDED,
        f"this server has {allowed} streams open and takes no more; use the unary methods, or try again later",
        metadata={"limit": "max_streams", "allowed": str(allowed), "requested": str(allowed + 1)},
    )
