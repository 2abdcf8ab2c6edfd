"""Real `DecisionModelService` servers on loopback that answer by a function, or badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from plannerd_protos.planner.v1 import decision_pb2

METHOD = "/planner.v1.DecisionModelService/Decide"


@dataclass(frozen=True, slots=True)
class Seen:
    """One attempt as the server saw it."""

    request: decision_pb2.DecideRequest
    metadata: Mapping[str, str | bytes]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Failing:
    """A status to answer with."""

    code: grpc.StatusCode
    text: str = "no"
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    details: bytes | None = None
    domain: str = "plannerd.dev"

    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        """The error details, as metadata."""
        if self.details is not None:
            return (("grpc-status-details-bin", self.details),)
        parts: list[Message] = []
        if self.reason:
            parts.append(ErrorInfo(domain=self.domain, reason=self.reason, metadata=dict(self.metadata)))
        if self.retry_after is not None:
            wait = Duration()
            wait.FromMilliseconds(round(self.retry_after * 1000))
            parts.append(RetryInfo(retry_delay=wait))
        status = Status(code=self.code.value[0], message=self.text)
        for part in parts:
            status.details.add().Pack(part)
        return (("grpc-status-details-bin", status.SerializeToString()),) if parts else ()


Answer = decision_pb2.DecideResponse | bytes | Failing | float
"""A reply, its bytes, a status, or seconds to sleep before the next one."""


@dataclass(slots=True)
class DecisionServer:
    """A server, what it was asked, and what it answers: `answers` in turn, the last one for ever."""

    answers: Sequence[Answer]
    target: str = ""
    seen: list[Seen] = field(default_factory=list)
    inside: int = 0
    finished: int = 0
    gate: asyncio.Event | None = None
    _turn: int = 0

    async def decide(self, raw: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Answer a request as it is its turn."""
        metadata = dict(context.invocation_metadata() or ())
        self.seen.append(Seen(decision_pb2.DecideRequest.FromString(raw), metadata, context.time_remaining()))
        self.inside += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            return await self._answer(context)
        finally:
            self.inside -= 1
            self.finished += 1

    async def _answer(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        answer = self.answers[min(self._turn, len(self.answers) - 1)]
        self._turn += 1
        if isinstance(answer, Failing):
            await context.abort(answer.code, answer.text, answer.trailing())
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return await self._answer(context)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so that others bring about."""
    while not holds():  # noqa: ASYNC110 -- it has no event of its own
        await asyncio.sleep(0.01)


@asynccontextmanager
async def decision_server(
    *answers: Answer,
    port: int = 0,
    credentials: grpc.ServerCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    service: str = "planner.v1.DecisionModelService",
) -> AsyncIterator[DecisionServer]:
    """A server that answers with `answers`, one for each attempt; the last one again and again."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *options])
    made = DecisionServer(answers)
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(made.decide)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Decide": handler})])
    address = f"127.0.0.1:{port}"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    made.target = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield made
    finally:
        await server.stop(0.1)


@asynccontextmanager
async def socket_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that is no gRPC server; where it listens."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def reply(**yes_no: float) -> decision_pb2.DecideResponse:
    """A reply with a yes/no answer to each question."""
    answers = [
        decision_pb2.Answer(question=name, yes_no=decision_pb2.YesNoAnswer(probability=probability))
        for name, probability in yes_no.items()
    ]
    return decision_pb2.DecideResponse(answers=answers, model="theirs")
