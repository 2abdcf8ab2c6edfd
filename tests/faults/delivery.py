"""How a fault proxy for messages reaches the replicas: by single calls, and by streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from plannerd_protos.planner.v1 import planner_pb2
from tests.faults.events import EventLog
from tests.faults.replicas import Replica, Replicas
from tests.faults.scenarios import case_of

SERVICE: Final = "planner.v1.PlannerService"
METHODS: Final[Mapping[str, type[Any]]] = {
    "Init": planner_pb2.InitRequest,
    "FirstAction": planner_pb2.FirstActionRequest,
    "NextAction": planner_pb2.NextActionRequest,
    "ExecutionState": planner_pb2.ExecutionStateRequest,
    "End": planner_pb2.EndRequest,
}
FIELDS: Final = {
    "init": "Init",
    "first_action": "FirstAction",
    "next_action": "NextAction",
    "execution_state": "ExecutionState",
    "end": "End",
}
"""The methods of the requests inside a stream's."""

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way."""

    method: str
    request: bytes
    invocation: str
    worker: str
    metadata: tuple[tuple[str, str | bytes], ...]

    @property
    def case(self) -> str:
        """The case that the invocation is an attempt at."""
        return case_of(self.invocation)

    @property
    def about(self) -> dict[str, str]:
        """What an event says of it."""
        return {"case": self.case, "invocation": self.invocation, "method": self.method}


@dataclass(slots=True)
class Delivery:
    """Brings requests to replicas, and notes the replies that it sees.

    Args:
        replicas: where they go.
        log: where replies are noted.
    """

    replicas: Replicas
    log: EventLog
    _sent: dict[str, str] = field(default_factory=dict)
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close()

    def replica_of(self, invocation: str) -> str:
        """The replica that the last request of an invocation was brought to."""
        return self._sent.get(invocation, "")

    async def call(self, call: Call, context: Context | None, *, late: bool = False) -> bytes:
        """Bring a request by a single call; its reply.

        Raises:
            grpc.aio.AioRpcError: what the replica answered, or that it is gone.
        """
        replica = self._choose(call.invocation)
        method: Any = self._channel(replica).unary_unary(f"/{SERVICE}/{call.method}")
        remaining = None if context is None else context.time_remaining()
        reply: bytes = await method(call.request, timeout=remaining, metadata=call.metadata)
        if call.method in {"FirstAction", "NextAction"}:
            self._note(call, replica.name, planner_pb2.NextActionResponse.FromString(reply), late=late)
        return reply

    def open(self, call: Call) -> Stream:
        """A stream to the replica that its first request goes to.

        Raises:
            grpc.aio.AioRpcError: there is none.
        """
        replica = self._choose(call.invocation)
        return Stream(
            self, replica.name, self._channel(replica).stream_stream(f"/{SERVICE}/Run")(metadata=call.metadata)
        )

    def note_answer(self, call: Call, replica: str, answer: bytes) -> bool:
        """Note the answer of a stream; whether the replica ends the stream with it."""
        response = planner_pb2.RunResponse.FromString(answer)
        kind = response.WhichOneof("response")
        if kind not in {"first_action", "next_action"}:
            return kind == "end"
        reply = getattr(response, kind)
        self._note(call, replica, reply, late=False)
        return bool(reply.step.action.WhichOneof("kind") == "suspend")

    def _note(self, call: Call, replica: str, reply: Any, *, late: bool) -> None:
        asks = [decision.usage.input_tokens for decision in reply.step.explanation.decisions]
        self.log.write("replied", late=late, replica=replica, asks=asks, **call.about)

    def _choose(self, invocation: str) -> Replica:
        replica = self.replicas.choose(invocation)
        if replica is None:
            raise unavailable("no replica is there")
        self._sent[invocation] = replica.name
        return replica

    def _channel(self, replica: Replica) -> grpc.aio.Channel:
        if replica.name not in self._channels:
            options = [("grpc.use_local_subchannel_pool", 1)]
            target = self.replicas.lines[replica.place].target
            self._channels[replica.name] = grpc.aio.insecure_channel(target, options)
        return self._channels[replica.name]


class Stream:
    """A stream to a replica.

    Args:
        delivery: notes answers.
        replica: its name.
        call: the stream.

    Attributes:
        over: the replica has ended it in good order.
    """

    def __init__(self, delivery: Delivery, replica: str, call: Any) -> None:
        self._delivery = delivery
        self._replica = replica
        self._call = call
        self.over = False

    async def exchange(self, call: Call, message: bytes) -> bytes | None:
        """Send a request and get its answer; None where the replica had ended the stream in good order.

        Raises:
            grpc.aio.AioRpcError: how the stream ended.
        """
        try:
            await self._call.write(message)
            answer = await self._call.read()
        except asyncio.InvalidStateError:
            answer = grpc.aio.EOF
        if answer is grpc.aio.EOF:
            if (code := await self._call.code()) is not grpc.StatusCode.OK:
                trailing = await self._call.trailing_metadata()
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, await self._call.details())
            self.over = True
            return None
        self.over = self._delivery.note_answer(call, self._replica, answer)
        return bytes(answer)

    def close(self) -> None:
        """Let go of it."""
        self._call.cancel()


def unavailable(why: str) -> grpc.aio.AioRpcError:
    """What a client is told whose connection broke."""
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), why)
