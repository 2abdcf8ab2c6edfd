"""A fault proxy for messages: forwards calls to replicas, and loses, repeats, delays and reorders them.

What happens to a request depends on the seed, its case, its method and how often that was called, not on the clock,
nor on whether it comes alone or by a stream.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias, TypeVar

import grpc
import grpc.aio

from plannerd_protos.planner.v1 import planner_pb2
from tests.faults.delivery import FIELDS, METHODS, SERVICE, Call, Context, Delivery, Stream, unavailable
from tests.faults.oracle import Oracle
from tests.faults.storm import Storm

WORKER_HEADER: Final = "x-worker"
"""Each client says in it who it is."""

NO_FAULT: Final = "none"
FAULTS: Final[Mapping[str, float]] = {
    "request-lost": 3,  # before it reached a replica; the client is told that its connection broke
    "request-swallowed": 0.5,  # the same, and nobody tells the client
    "killed-before-commit": 1,  # the replica is killed while the decision model is being asked
    "killed-after-commit": 1,  # ... when it has answered, and the client does not get the answer
    "cut-before-commit": 4,  # all of the client's connections are cut while the decision model is being asked
    "cut-after-commit": 4,  # ... when the replica has answered
    "reply-lost": 4,  # the replica has answered; the client is told that its connection broke
    "reply-swallowed": 0.5,  # the same, and nobody tells the client
    "twice": 5,  # the request is delivered twice at the same time
    "again-later": 6,  # the request is delivered once more later, perhaps after newer ones
    "delayed": 4,
    NO_FAULT: 67,
}
"""What may happen to a call, and how often."""

_DECISION_SECONDS: Final = 0.3
_LATER_SECONDS: Final = 0.8
_HELD_SECONDS: Final = 0.3

Answer = TypeVar("Answer", bytes, bytes | None)
Deliver: TypeAlias = Callable[[], Awaitable[Answer]]
"""Brings a request to a replica, and its answer back."""


@dataclass(slots=True)
class Post:
    """The proxy.

    Args:
        delivery: brings requests to replicas.
        oracle: tells when a decision is being made.
        seed: of chance.
        storm: kills replicas and cuts connections.
        calm: while it is true nothing happens to requests.
    """

    delivery: Delivery
    oracle: Oracle
    seed: int
    storm: Storm
    calm: bool = False
    faults: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    """How requests came."""
    late: Counter[str] = field(default_factory=Counter)
    """How repetitions that came later were answered."""
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: grpc.aio.Server | None = None
    port: int = 0

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        handlers: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(self._unary(name)) for name in METHODS}
        handlers["Run"] = grpc.stream_stream_rpc_method_handler(self._run)
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0)
        await self.delivery.close()

    async def idle(self) -> None:
        """Wait until everything has been delivered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    # --- how requests come

    def _unary(self, method: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def handle(request: bytes, context: Context) -> bytes:
            self.ways["single calls"] += 1
            call = _call(method, request, context)
            try:
                return await self._carry(call, lambda: self.delivery.call(call, context))
            except grpc.aio.AioRpcError as error:
                await _abort(context, error)

        return handle

    async def _run(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        self.ways["streams"] += 1
        stream: Stream | None = None
        try:
            async for message in requests:
                self.ways["requests by stream"] += 1
                request = planner_pb2.RunRequest.FromString(message)
                kind = request.WhichOneof("request") or "init"
                call = _call(FIELDS[kind], getattr(request, kind).SerializeToString(), context)
                stream = stream or self.delivery.open(call)
                answer = await self._carry(call, _exchange(stream, call, message))
                if answer is not None:
                    yield answer
                if stream.over:
                    return
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)
        finally:
            if stream is not None:
                stream.close()

    # --- faults

    async def _carry(self, call: Call, deliver: Deliver[Answer]) -> Answer:
        """Bring a request to a replica, or do something else to it.

        Raises:
            grpc.aio.AioRpcError: what the client is told instead of an answer.
        """
        self._counts[call.case, call.method] += 1
        chance = random.Random(f"{self.seed}/{call.case}/{call.method}/{self._counts[call.case, call.method]}")
        fault = NO_FAULT if self.calm else chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.faults[fault] += 1
        if fault != NO_FAULT:
            self.delivery.log.write("fault", fault=fault, worker=call.worker, **call.about)
        match fault:
            case "request-lost":
                raise unavailable("the request was lost")
            case "request-swallowed":
                await _for_ever()
            case "cut-before-commit":
                return await self._while_asked(call, deliver, self._cut)
            case "cut-after-commit":
                await deliver()
                self._cut(call)
                await _for_ever()
            case "killed-before-commit":
                return await self._while_asked(call, deliver, self._kill)
            case "killed-after-commit":
                await deliver()
                self._kill(call)
                raise unavailable("the replica is gone")
            case "reply-lost":
                await deliver()
                raise unavailable("the reply was lost")
            case "reply-swallowed":
                await deliver()
                await _for_ever()
            case "twice":
                self._later(call, 0.0)
            case "again-later":
                self._later(call, chance.uniform(0.02, _LATER_SECONDS))
            case "delayed":
                await asyncio.sleep(chance.uniform(0.02, _HELD_SECONDS))
            case _:
                pass
        return await deliver()

    def _cut(self, call: Call) -> None:
        self.storm.cut(call.worker)

    def _kill(self, call: Call) -> None:
        self.storm.kill_replica(self.delivery.replica_of(call.invocation))

    async def _while_asked(self, call: Call, deliver: Deliver[Answer], harm: Callable[[Call], None]) -> Answer:
        """Do `harm` while the decision model is asked; a call that asks nothing is let through."""
        asked = self.oracle.next_question(call.invocation)
        sent: asyncio.Future[Answer] = asyncio.ensure_future(deliver())
        waits: list[asyncio.Future[Any]] = [asked, sent]
        try:
            await asyncio.wait(waits, timeout=_DECISION_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and not sent.done():
                harm(call)
            return await sent
        finally:
            asked.cancel()
            sent.cancel()

    def _later(self, call: Call, seconds: float) -> None:
        """Deliver it once more, by a single call that nobody waits for."""

        async def send() -> None:
            await asyncio.sleep(seconds)
            try:
                await self.delivery.call(call, None, late=True)
                self.late["OK"] += 1
            except grpc.aio.AioRpcError as error:
                self.late[error.code().name] += 1

        task = asyncio.ensure_future(send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _call(method: str, request: bytes, context: Context) -> Call:
    metadata = tuple((key, value) for key, value in context.invocation_metadata() or ())
    worker = next((str(value) for key, value in metadata if key == WORKER_HEADER), "")
    kept = tuple((key, value) for key, value in metadata if key in {"traceparent", WORKER_HEADER})
    return Call(method, request, METHODS[method].FromString(request).invocation_id, worker, kept)


def _exchange(stream: Stream, call: Call, message: bytes) -> Deliver[bytes | None]:
    return lambda: stream.exchange(call, message)


async def _abort(context: Context, error: grpc.aio.AioRpcError) -> NoReturn:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))


async def _for_ever() -> None:
    await asyncio.Event().wait()
