"""How a client reaches its server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from plannerd_client._retries import RetryPolicy

Token: TypeAlias = str | Callable[[], str]
"""A bearer token, or a function that gives the current one before each request. It must not block for long."""

DEFAULT_TIMEOUT: Final = 60.0
"""Seconds that one attempt of a request may take: a decision of a large model may take some of them."""

# A server that comes back is noticed within seconds; gRPC's own default goes up to two minutes.
_DEFAULT_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS, by files in PEM.

    Args:
        ca: certificates to trust. None: those of the system.
        cert: the client's own certificate chain, for mTLS.
        key: its private key.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials of a channel.

        Raises:
            OSError: a file can't be read.
        """
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach a server and how to speak to it; the arguments of both clients."""

    target: str
    tls: Tls | grpc.ChannelCredentials | None
    token: Token | None
    metadata: Sequence[tuple[str, str]]
    timeout: float | None
    retry: RetryPolicy
    max_reply_bytes: int
    stream: bool
    options: Sequence[tuple[str, Any]]

    def credentials(self) -> grpc.ChannelCredentials | None:
        """The credentials of the channel; None for a connection without TLS."""
        return self.tls.credentials() if isinstance(self.tls, Tls) else self.tls

    def channel_options(self) -> list[tuple[str, Any]]:
        """The options of the channel; the caller's own win."""
        # A stream puts its envelope around a reply.
        limit = ("grpc.max_receive_message_length", self.max_reply_bytes + 256 if self.max_reply_bytes else -1)
        return list(dict([*_DEFAULT_OPTIONS, limit, *self.options]).items())

    def request_metadata(self, traceparent: str) -> tuple[tuple[str, str], ...]:
        """What goes with each request."""
        metadata = list(self.metadata)
        if self.token is not None:
            token = self.token if isinstance(self.token, str) else self.token()
            metadata.append(("authorization", f"Bearer {token}"))
        if traceparent := traceparent or current_traceparent():
            metadata.append(("traceparent", traceparent))
        return tuple(metadata)


def _read(path: str | Path | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def current_traceparent() -> str:
    """The trace context of the current OpenTelemetry span; empty where the program does not use OpenTelemetry."""
    propagate = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        return ""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")
