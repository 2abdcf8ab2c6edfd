"""What a case is run against: the service in this process, or servers behind gRPC channels."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

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
        from plannerd.transport.status import CODES

        if self._turns is not None:
            instance = next(self._turns)
        try:
            reply: Any = await getattr(self._services[instance], method)(request, CallContext())
        except PlannerdError as error:
            fields = tuple(violation.field for violation in error.violations)
            raise RefusedError(CODES[error.reason].name, error.reason.value, error.message, fields) from error
        return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())


class Servers:
    """Servers that listen somewhere, one per instance, with the scripts of `scripts.write`.

    Args:
        channels: to the servers. One alone serves for both instances, where cases do not move.
    """

    def __init__(self, channels: Sequence[grpc.aio.Channel]) -> None:
        self._channels = channels

    def open(self, case: Case, mode: Mode) -> Session:
        """Start a run of a case."""
        return _ServersSession(self._channels, model_name(case, mode))


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


def _refused(error: grpc.aio.AioRpcError) -> RefusedError:
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    info, bad = ErrorInfo(), BadRequest()
    for packed in Status.FromString(details).details:
        for message in (info, bad):
            if packed.Is(message.DESCRIPTOR):
                packed.Unpack(message)
    fields = tuple(violation.field for violation in bad.field_violations)
    return RefusedError(error.code().name, info.reason, error.details() or "", fields)
