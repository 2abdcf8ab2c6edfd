"""What a case is run against: the service in this process, or servers behind gRPC channels."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from plannerd_protos.planner.v1 import errors_pb2, planner_pb2
from tests.conformance import wire
from tests.conformance.cases import Case
from tests.conformance.scripts import INSTANCES, Mode, model_name, script

if TYPE_CHECKING:
    from plannerd.invocations.definitions import Definitions
    from plannerd.invocations.stores import Store

SERVICE = "/planner.v1.PlannerService"
TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class RefusedError(Exception):
    """A request that failed, as a client sees it."""

    code: str
    reason: str
    message: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line."""
        where = f" at {', '.join(self.fields)}" if self.fields else ""
        return f"{self.code} {self.reason}{where}: {self.message}"


class Session(Protocol):
    """One run of one case against a target with at least two instances."""

    @property
    def model(self) -> str:
        """The name of the decision model that has the case's script; empty: the default."""

    @property
    def asked(self) -> int | None:
        """How often the decision model was asked so far; None where nobody can see it."""

    async def call(self, instance: int, method: str, request: Message) -> bytes:
        """Send a request to an instance; the reply as it was sent.

        Raises:
            RefusedError: the request failed.
        """

    def close(self) -> None:
        """The run is over."""


class Target(Protocol):
    """Something that conforms, or not."""

    def open(self, case: Case, mode: Mode) -> Session:
        """Start a run of a case."""


class InProcess:
    """The service in this process, with engines of its own for every case.

    Args:
        stores: makes the store of each instance from its compiled configurations; default: memory stores.
        in_turns: send each request to the next instance, whatever the case says. They must share a store.
    """

    def __init__(
        self, stores: Callable[[], Callable[[Definitions], Store]] | None = None, *, in_turns: bool = False
    ) -> None:
        self._stores = stores
        self._in_turns = in_turns

    def open(self, case: Case, mode: Mode) -> Session:
        """Start a run of a case."""
        return _InProcessSession(case, mode, self._stores() if self._stores else None, self._in_turns)


class _InProcessSession:
    def __init__(
        self, case: Case, mode: Mode, make_store: Callable[[Definitions], Store] | None, in_turns: bool
    ) -> None:
        from plannerd.decisions.fixed import FixedModel
        from plannerd.decisions.models import DecisionModels
        from plannerd.invocations.definitions import Definitions
        from plannerd.invocations.engine import Engine
        from plannerd.invocations.stores import MemoryBounds, MemoryStore
        from plannerd.services.codec.replies import encode_step
        from plannerd.services.planner_service import PlannerService

        self.model = ""
        self._stream = mode.stream
        self._conversations: dict[tuple[int, str], Any] = {}
        self._fixed = FixedModel(script(case, mode))
        self._turns = itertools.cycle(range(INSTANCES)) if in_turns else None
        self._services = []
        for _ in range(INSTANCES):
            definitions = Definitions(keep_source=make_store is not None)
            store = MemoryStore(MemoryBounds(), time.monotonic) if make_store is None else make_store(definitions)
            engine = Engine(DecisionModels({"fixed": self._fixed}), store, encode_step, definitions=definitions)
            self._services.append(
                PlannerService(engine, version="test", max_request_bytes=4 << 20, retained_seconds=60.0)
            )

    @property
    def asked(self) -> int | None:
        return len(self._fixed.asked)

    async def call(self, instance: int, method: str, request: Message) -> bytes:
        from plannerd.errors import PlannerdError
        from plannerd.services.context import CallContext
        from plannerd.services.failures import CODES

        if self._turns is not None:
            instance = next(self._turns)
        if self._stream:
            return await self._over_stream(instance, method, request)
        try:
            reply: Any = await getattr(self._services[instance], method)(request, CallContext())
        except PlannerdError as error:
            fields = tuple(violation.field for violation in error.violations)
            raise RefusedError(CODES[error.reason].name, error.reason.value, error.message, fields) from error
        return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())

    async def _over_stream(self, instance: int, method: str, request: Any) -> bytes:
        from plannerd.services.context import CallContext

        place = (instance, request.invocation_id)
        conversation = self._conversations.pop(place, None) or self._services[instance].Run(CallContext())
        answer = await conversation.answer(wire.run_request(7, method, request))
        if not answer.last:
            self._conversations[place] = conversation
        return _answer(answer.reply, 7, method)

    def close(self) -> None:
        pass


class Servers:
    """Servers that listen somewhere, one per instance, with the scripts of `scripts.write`.

    Args:
        channels: to the servers. One alone serves for both instances, where cases do not move.
    """

    def __init__(self, channels: Sequence[grpc.aio.Channel]) -> None:
        self._channels = channels

    def open(self, case: Case, mode: Mode) -> Session:
        """Start a run of a case."""
        kind = _StreamsSession if mode.stream else _ServersSession
        return kind(self._channels, model_name(case, mode))


class _ServersSession:
    asked = None

    def __init__(self, channels: Sequence[grpc.aio.Channel], model: str) -> None:
        self.model = model
        self._channels = channels

    async def call(self, instance: int, method: str, request: Message) -> bytes:
        send: grpc.aio.UnaryUnaryMultiCallable[Message, bytes] = self._channels[
            instance % len(self._channels)
        ].unary_unary(
            f"{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=bytes,
        )
        try:
            reply: bytes = await send(request, timeout=TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return reply

    def close(self) -> None:
        pass


class _StreamsSession(_ServersSession):
    """One stream for each invocation and instance; another one where the server ended it."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], model: str) -> None:
        super().__init__(channels, model)
        self._streams: dict[tuple[int, str], Any] = {}
        self._number = 0

    async def call(self, instance: int, method: str, request: Any) -> bytes:
        place = (instance % len(self._channels), request.invocation_id)
        self._number += 1
        sent = wire.run_request(self._number, method, request).SerializeToString()
        try:
            async with asyncio.timeout(TIMEOUT):
                raw = await self._exchange(place, sent)
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from error
        return _answer(raw, self._number, method)

    async def _exchange(self, place: tuple[int, str], sent: bytes) -> bytes:
        stream = self._streams.get(place)
        if stream is not None:
            try:
                await stream.write(sent)
            except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                pass  # ended since: a write that meets the end hides its status
            else:
                if (raw := await stream.read()) is not grpc.aio.EOF:
                    return bytes(raw)
            # It was ended with OK since the last answer: the request was not looked at.
        open_stream: Any = self._channels[place[0]].stream_stream(f"{SERVICE}/Run", bytes, bytes)
        stream = self._streams[place] = open_stream()
        await stream.write(sent)
        if (raw := await stream.read()) is grpc.aio.EOF:
            raise RefusedError("OK", "", "the stream ended without an answer")
        return bytes(raw)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.cancel()


def _answer(raw: bytes, number: int, method: str) -> bytes:
    """The bytes of the answer inside a response."""
    response = planner_pb2.RunResponse.FromString(raw)
    if response.id != number:
        raise RefusedError("OK", "", f"the answer has the id {response.id}, not {number}")
    kind = response.WhichOneof("response")
    if kind == "error":
        error = response.error
        code = next(code for code in grpc.StatusCode if code.value[0] == error.code)
        fields = tuple(violation.field for violation in error.field_violations)
        raise RefusedError(
            code.name, wire.name_of(errors_pb2.ErrorReason, error.reason, "ERROR_REASON"), error.message, fields
        )
    if kind != wire.STREAMED[method]:
        raise RefusedError("OK", "", f"the answer to {method} is {kind}")
    return wire.inside(raw, planner_pb2.RunResponse.DESCRIPTOR.fields_by_name[kind].number)


def _refused(error: grpc.aio.AioRpcError) -> RefusedError:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    info, bad = ErrorInfo(), BadRequest()
    for packed in Status.FromString(details).details:
        for message in (info, bad):
            if packed.Is(message.DESCRIPTOR):
                packed.Unpack(message)
    fields = tuple(violation.field for violation in bad.field_violations)
    return RefusedError(error.code().name, info.reason, error.details() or "", fields)
