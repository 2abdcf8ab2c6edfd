"""Services as grpc handlers, made from their descriptors.

A service is an object with a method for each RPC. A unary one is `async def Name(self, request, call)` and
returns a message, or bytes that are sent as they are (a stored reply is repeated byte for byte). One with
streams both ways is `def Name(self, call)` and returns a `streams.Conversation`, which answers one request
after the other. `call` is a CallContext. Whatever they raise, the gate turns into a status.

Messages are decoded and encoded here and not by grpc, so that a request that can't be decoded, or a reply
that can't be encoded, goes through the gate like everything else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from plannerd.decisions.deadline import call_deadline
from plannerd.services.context import CallContext
from plannerd.transport.gate import Context, Gate
from plannerd.transport.messages import Codec, MessageBounds, Reply
from plannerd.transport.streams import DEFAULT_BOUNDS, StreamBounds, streaming

Unary: TypeAlias = Callable[[Message, CallContext], Coroutine[Any, Any, Reply]]


@dataclass(frozen=True, slots=True)
class Service:
    """An implementation and the service that it implements."""

    descriptor: ServiceDescriptor
    implementation: object

    @property
    def name(self) -> str:
        """The full name, `planner.v1.PlannerService`."""
        return self.descriptor.full_name


def service_handler(
    service: Service, gate: Gate, bounds: MessageBounds, stream_bounds: StreamBounds = DEFAULT_BOUNDS
) -> grpc.GenericRpcHandler:
    """The handlers of all methods of `service`, each behind `gate`.

    Raises:
        TypeError: the implementation lacks a method, or one is not of the form above.
    """
    handlers = {
        method.name: _handler(method, getattr(service.implementation, method.name, None), gate, bounds, stream_bounds)
        for method in service.descriptor.methods
    }
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _handler(
    method: MethodDescriptor, behave: Any, gate: Gate, bounds: MessageBounds, stream_bounds: StreamBounds
) -> grpc.RpcMethodHandler[Any, Any]:
    codec = Codec(method, bounds)
    if method.client_streaming and method.server_streaming:
        codec = Codec(method, bounds.with_envelope())
        if not callable(behave) or inspect.iscoroutinefunction(behave):
            raise TypeError(f"{codec.path} needs an implementation that returns a conversation")
        return grpc.stream_stream_rpc_method_handler(streaming(codec, behave, gate, stream_bounds))
    if method.client_streaming or method.server_streaming:
        raise TypeError(f"{codec.path}: streams in one direction alone are not supported")
    if not inspect.iscoroutinefunction(behave):
        raise TypeError(f"{codec.path} needs an implementation that is an async function")
    return grpc.unary_unary_rpc_method_handler(_unary(codec, behave, gate))


def _unary(codec: Codec, behave: Unary, gate: Gate) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def handle(raw: bytes, context: Context) -> bytes:
        passage = gate.enter(codec.path, context)
        try:
            gate.admit(passage)
            request: Any = codec.decode(raw)
            if codec.has_id:
                passage.invocation_id = request.invocation_id
            facts = passage.facts()
            with call_deadline(facts.time_remaining):
                reply = codec.encode(await passage.work(behave(request, facts)))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (the gate logs and answers)
            await gate.fail(passage, error)
        finally:
            gate.leave(passage)
        gate.succeeded(passage)
        return reply

    return handle
