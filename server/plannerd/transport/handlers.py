"""Services as grpc handlers, made from their descriptors.

A service is an object with a method for each RPC. A unary one is `async def Name(self, request, call)` and
returns a message, or bytes that are sent as they are (a stored reply is repeated byte for byte). One with
streams both ways is `def Name(self, requests, call)`, takes an async iterator and returns one. `call` is a
CallContext. Whatever they raise, the gate turns into a status.

Messages are decoded and encoded here and not by grpc, so that a request that can't be decoded, or a reply
that can't be encoded, goes through the gate like everything else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from plannerd.decisions.deadline import call_deadline
from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd.transport.gate import Context, Gate, Passage, draining

Reply: TypeAlias = Message | bytes
Unary: TypeAlias = Callable[[Message, CallContext], Awaitable[Reply]]
Streaming: TypeAlias = Callable[[AsyncIterator[Message], CallContext], AsyncIterator[Reply]]

_ID_FIELD: Final = "invocation_id"


@dataclass(frozen=True, slots=True)
class Service:
    """An implementation and the service that it implements."""

    descriptor: ServiceDescriptor
    implementation: object

    @property
    def name(self) -> str:
        """The full name, `planner.v1.PlannerService`."""
        return self.descriptor.full_name


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """The largest messages.

    Attributes:
        request: bytes of a request.
        reply: bytes of a reply.
    """

    request: int
    reply: int


def service_handler(service: Service, gate: Gate, bounds: MessageBounds) -> grpc.GenericRpcHandler:
    """The handlers of all methods of `service`, each behind `gate`.

    Raises:
        TypeError: the implementation lacks a method, or one is not of the form above.
    """
    handlers = {
        method.name: _handler(method, getattr(service.implementation, method.name, None), gate, bounds)
        for method in service.descriptor.methods
    }
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _handler(
    method: MethodDescriptor, behave: Any, gate: Gate, bounds: MessageBounds
) -> grpc.RpcMethodHandler[Any, Any]:
    codec = _Codec(method, bounds)
    if method.client_streaming and method.server_streaming:
        if not callable(behave) or inspect.iscoroutinefunction(behave):
            raise TypeError(f"{codec.path} needs an implementation that returns an async iterator")
        return grpc.stream_stream_rpc_method_handler(_streaming(codec, behave, gate))
    if method.client_streaming or method.server_streaming:
        raise TypeError(f"{codec.path}: streams in one direction alone are not supported")
    if not inspect.iscoroutinefunction(behave):
        raise TypeError(f"{codec.path} needs an implementation that is an async function")
    return grpc.unary_unary_rpc_method_handler(_unary(codec, behave, gate))


class _Codec:
    """Decodes the requests of a method and encodes its replies."""

    def __init__(self, method: MethodDescriptor, bounds: MessageBounds) -> None:
        self.path = f"/{method.containing_service.full_name}/{method.name}"
        self.has_id = _ID_FIELD in method.input_type.fields_by_name
        self._request = GetMessageClass(method.input_type)
        self._reply = GetMessageClass(method.output_type)
        self._bounds = bounds

    def decode(self, raw: bytes) -> Message:
        """The message that `raw` holds.

        Raises:
            PlannerdError: LIMIT_EXCEEDED, or INVALID_REQUEST for bytes that are no such message.
        """
        if len(raw) > self._bounds.request:
            raise _too_large("request", len(raw), self._bounds.request)
        try:
            return self._request.FromString(raw)
        except DecodeError:
            name = self._request.DESCRIPTOR.full_name
            raise PlannerdError(
                Reason.INVALID_REQUEST, f"the request is not a well-formed {name}, or is nested too deep"
            ) from None

    def encode(self, reply: Reply) -> bytes:
        """The bytes of `reply`.

        Raises:
            PlannerdError: LIMIT_EXCEEDED.
            TypeError: the reply is neither bytes nor the method's message.
        """
        if not isinstance(reply, bytes):
            if not isinstance(reply, self._reply):
                raise TypeError(f"{self.path} gave a {type(reply).__name__}, not a {self._reply.__name__}")
            reply = reply.SerializeToString()
        if len(reply) > self._bounds.reply:
            raise _too_large("reply", len(reply), self._bounds.reply)
        return reply


def _too_large(what: str, actual: int, allowed: int) -> PlannerdError:
    return PlannerdError(
        Reason.LIMIT_EXCEEDED,
        f"the {what} has {actual} bytes, this server allows {allowed}",
        metadata={"limit": f"max_{what}_bytes", "allowed": str(allowed), "requested": str(actual)},
    )


def _unary(codec: _Codec, behave: Unary, gate: Gate) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def handle(raw: bytes, context: Context) -> bytes:
        passage = gate.enter(codec.path, context)
        try:
            gate.check_open()
            request: Any = codec.decode(raw)
            if codec.has_id:
                passage.invocation_id = request.invocation_id
            facts = passage.facts()
            with call_deadline(facts.time_remaining):
                reply = codec.encode(await behave(request, facts))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the gate logs and answers)
            await gate.fail(passage, error)
        finally:
            gate.leave(passage)
        gate.succeeded(passage)
        return reply

    return handle


def _streaming(codec: _Codec, behave: Streaming, gate: Gate) -> Callable[[object, Context], Awaitable[None]]:
    # A coroutine that reads and writes by itself: of a generator grpc would not make sure that it is closed.
    async def handle(_: object, context: Context) -> None:
        passage = gate.enter(codec.path, context)
        try:
            gate.check_open()
            replies = behave(_Requests(codec, gate, passage), passage.facts())
            try:
                async for reply in replies:
                    await context.write(codec.encode(reply))
            finally:
                close = getattr(replies, "aclose", None)
                if close is not None:
                    await close()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the gate logs and answers)
            await gate.fail(passage, error)
        finally:
            gate.leave(passage)
        gate.succeeded(passage)

    return handle


class _Requests(AsyncIterator[Message]):
    """The requests of a stream. While the server drains it raises DRAINING instead of waiting for another."""

    def __init__(self, codec: _Codec, gate: Gate, passage: Passage) -> None:
        self._codec = codec
        self._gate = gate
        self._read = passage.context.read
        self._reader: asyncio.Task[object] | None = None
        self._interrupted = False
        passage.interrupt = self._interrupt

    async def __anext__(self) -> Message:
        self._gate.check_open()
        self._reader = asyncio.current_task()
        try:
            raw = await self._read()
        except asyncio.CancelledError:
            if self._interrupted and self._reader is not None and self._reader.uncancel() == 0:
                raise draining() from None
            raise
        finally:
            self._reader = None
        if raw is grpc.aio.EOF:
            raise StopAsyncIteration
        return self._codec.decode(raw)

    def _interrupt(self) -> None:
        if self._reader is not None:
            self._interrupted = True
            self._reader.cancel()
