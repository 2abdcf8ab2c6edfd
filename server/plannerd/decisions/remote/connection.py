"""The connection to a `DecisionModelService`: made when it is first needed, kept, closed at the end."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from plannerd.decisions.remote.files import file_version
from plannerd_protos.planner.v1 import decision_pb2

_DECIDE: Final = f"/{decision_pb2.DESCRIPTOR.services_by_name['DecisionModelService'].full_name}/Decide"

# Every replica behind a name gets its share, and what a DNS server says beside addresses is not listened to.
_SERVICE_CONFIG: Final = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})

_GRACE_SECONDS: Final = 60.0  # for calls on a channel that a new one replaced
_CLOSE_SECONDS: Final = 1.0  # for all channels, when the server ends

Decide: TypeAlias = Callable[..., Awaitable[bytes]]
"""Calls the method: bytes of the request, `timeout`, `metadata`; bytes of the reply."""


@dataclass(frozen=True, slots=True)
class RemoteTls:
    """How to know the other side, and how it knows this one.

    Attributes:
        ca: certificates of those who may vouch for it; None: gRPC's own.
        cert: this side's certificate, with `key`; None: it shows none.
        key: the key of `cert`.
        server_name: the name in the other side's certificate, where that is not the one in the target.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Pings, by which a connection that died is noticed; also how long sent data may go unacknowledged.

    Attributes:
        interval: seconds of silence before a ping.
        timeout: seconds in which it must be answered.
    """

    interval: float = 300.0
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where to connect to, and how.

    Attributes:
        target: as gRPC takes it.
        tls: None: nothing is encrypted.
        max_reply_bytes: the largest reply.
        keepalive: pings.
    """

    target: str
    tls: RemoteTls | None = None
    max_reply_bytes: int = 4 << 20
    keepalive: Keepalive = field(default_factory=Keepalive)


class Connection:
    """A gRPC channel of its own, made inside the running event loop by the first call.

    When a file of `options.tls` changes, further calls use a new channel; those under way end on the old one.

    Args:
        options: where to and how.

    Raises:
        ValueError: a file of `options.tls` can't be read or has something else in it.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._versions = _versions(options.tls)
        self._credentials = None if options.tls is None else _credentials(options.tls)
        self._channel: grpc.aio.Channel | None = None
        self._decide: Decide | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def decide(self) -> Decide:
        """The method `Decide` of the other side, over bytes."""
        if self._closed:
            raise RuntimeError("the connection to a decision model was closed")
        if self._options.tls is not None:
            self._renew(self._options.tls)
        if self._decide is None:
            self._channel = self._open()
            self._decide = self._channel.unary_unary(_DECIDE)
        return self._decide

    async def close(self) -> None:
        """Close it; calls under way are cancelled."""
        self._closed = True
        self._retire(None)
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _renew(self, tls: RemoteTls) -> None:
        """Take files that changed. Those that can't be used, such as half of a new pair, are looked at again later."""
        versions = _versions(tls)
        if versions == self._versions:
            return
        try:
            self._credentials = _credentials(tls)
        except ValueError:
            return
        self._versions = versions
        self._retire(_GRACE_SECONDS)

    def _retire(self, grace: float | None) -> None:
        channel, self._channel, self._decide = self._channel, None, None
        if channel is not None:
            task = asyncio.ensure_future(channel.close(grace))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _open(self) -> grpc.aio.Channel:
        options = _channel_options(self._options)
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._options.target, options)
        return grpc.aio.secure_channel(self._options.target, self._credentials, options)


def _credentials(tls: RemoteTls) -> grpc.ChannelCredentials:
    """The credentials in the files, which gRPC itself would look at only when it connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except OSError as error:
            raise ValueError(f"tls.ca: {tls.ca} has no certificates that can be read ({_cause(error)})") from None
    if tls.cert is not None and tls.key is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key, password="")  # without one it would ask for it
        except OSError as error:
            raise ValueError(
                f"tls.cert, tls.key: {tls.cert} and {tls.key} are no certificate and its key ({_cause(error)})"
            ) from None
    try:
        return grpc.ssl_channel_credentials(
            root_certificates=tls.ca.read_bytes() if tls.ca else None,
            private_key=tls.key.read_bytes() if tls.key else None,
            certificate_chain=tls.cert.read_bytes() if tls.cert else None,
        )
    except OSError as error:
        raise ValueError(f"tls: {error}") from None


def _cause(error: OSError) -> str:
    return (error.strerror or type(error).__name__).rstrip(".")


def _versions(tls: RemoteTls | None) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells that a file of `tls` changed."""
    return () if tls is None else tuple(_version(file) for file in (tls.ca, tls.cert, tls.key))


def _version(file: Path | None) -> tuple[int, int, int] | None:
    try:
        return None if file is None else file_version(file)
    except OSError:
        return None


def _channel_options(options: ConnectionOptions) -> list[tuple[str, Any]]:
    chosen: list[tuple[str, Any]] = [
        # Connections of different models are not shared.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config", _SERVICE_CONFIG),
        ("grpc.service_config_disable_resolution", 1),
        # Where requests go is for the settings to say, not for variables of the environment.
        ("grpc.enable_http_proxy", 0),
        # The size of a request is checked before it is sent.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", options.max_reply_bytes),
        # A server that comes back is found at once.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", _milliseconds(options.keepalive.interval)),
        ("grpc.keepalive_timeout_ms", _milliseconds(options.keepalive.timeout)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(options.keepalive.timeout)),
    ]
    if options.tls is not None and options.tls.server_name is not None:
        chosen.append(("grpc.ssl_target_name_override", options.tls.server_name))
    return chosen


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), 2**31 - 1)
