"""A decision model behind somebody's own `DecisionModelService`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.hops import HEADER, hops
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.pacing import Pacing
from plannerd.decisions.questions import DecisionRequest
from plannerd.decisions.remote.connection import Connection, ConnectionOptions, Keepalive, RemoteTls
from plannerd.decisions.remote.failures import failure_of, invalid_reply
from plannerd.decisions.remote.metadata import Entry, Metadata
from plannerd.decisions.retries import Retries, RetryRules
from plannerd.decisions.wire import decode_response, encode_request
from plannerd.errors import PlannerdError, Reason
from plannerd_protos.planner.v1 import decision_pb2

_UNNAMED: Final = "unnamed"


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How to ask.

    Attributes:
        target: where the service is, as gRPC takes it.
        model: the name to ask it for; empty: its default.
        tls: None: nothing is encrypted.
        metadata: what is sent beside each request.
        limits: what one request may hold.
        max_request_bytes: bytes of one request.
        max_reply_bytes: bytes of one reply.
        retries: how a request is tried again.
        concurrent: requests at once.
        queue: further requests that may wait.
        keepalive: pings.
    """

    target: str
    model: str = ""
    tls: RemoteTls | None = None
    metadata: tuple[Entry, ...] = ()
    limits: ModelLimits = field(default_factory=lambda: ModelLimits(images=True))
    max_request_bytes: int = 4 << 20
    max_reply_bytes: int = 4 << 20
    retries: RetryRules = field(default_factory=RetryRules)
    concurrent: int = 16
    queue: int = 256
    keepalive: Keepalive = field(default_factory=Keepalive)


class RemoteModel:
    """Asks a `DecisionModelService`.

    Args:
        name: the configured name, for errors.
        options: how to ask.
        clock: monotonic seconds.

    Raises:
        OSError: a file with metadata can't be read.
        ValueError: metadata that can't be sent, certificates that can't be used, or numbers that make no sense.
    """

    provider: Final = "grpc"
    repeatable: Final = False

    def __init__(self, name: str, options: RemoteOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._options = options
        self._clock = clock
        self._metadata = Metadata(options.metadata)
        self._pacing = Pacing(name, concurrent=options.concurrent, queue=options.queue, clock=clock)
        self._retries = Retries(name, options.retries, clock=clock)
        self._connection = Connection(
            ConnectionOptions(options.target, options.tls, options.max_reply_bytes, options.keepalive)
        )
        self.limits = options.limits

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Ask for an answer to every question of `request`, in as many attempts as `timeout` and settings allow.

        Raises:
            PlannerdError: DECISION_MODEL_LIMIT, DECISION_QUEUE_FULL, DECISION_MODEL_UNAVAILABLE,
                DECISION_MODEL_REJECTED, DECISION_INVALID_ANSWER or DECISION_MODEL_CREDENTIALS; UNSUPPORTED_INPUT
                or DECISION_REFUSED where another plannerd says so.
        """
        raw = encode_request(request, self._options.model).SerializeToString()
        self._check_size(len(raw))
        started = self._clock()
        async with self._pacing.turn():
            left = None if timeout is None else max(0.0, timeout - (self._clock() - started))
            message, retries = await self._retries.run(lambda seconds: self._attempt(raw, seconds), left)
        response = decode_response(message, self._options.model or _UNNAMED)
        return replace(response, retries=response.retries + retries)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, should the service repeat it."""
        return self._metadata.secrets

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _attempt(self, raw: bytes, seconds: float | None) -> decision_pb2.DecideResponse:
        try:
            metadata = (*self._metadata.current(), (HEADER, str(hops.get() + 1)))
        except (OSError, ValueError) as error:
            raise self._no_credentials() from error
        try:
            reply = await self._connection.decide(raw, timeout=seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error, self._name, self._options.model, self.secrets) from error
        try:
            return decision_pb2.DecideResponse.FromString(reply)
        except DecodeError as error:
            raise invalid_reply(self._name, "gave a reply that is no DecideResponse") from error

    def _check_size(self, size: int) -> None:
        allowed = self._options.max_request_bytes
        if size > allowed:
            raise PlannerdError(
                Reason.DECISION_MODEL_LIMIT,
                f"decision model '{self._name}' takes requests of at most {allowed} bytes, and this one has {size}",
                metadata={
                    "limit": "bytes",
                    "allowed": str(allowed),
                    "requested": str(size),
                    "model": self._name,
                },
            )

    def _no_credentials(self) -> PlannerdError:
        return PlannerdError(
            Reason.DECISION_MODEL_CREDENTIALS,
            f"the credentials for decision model '{self._name}' can't be read on this server",
            metadata={"model": self._name},
        )
