"""The gRPC server: how it starts, and how it stops without losing a call that it could have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from plannerd.security.files import WatchedFiles, keep_looking
from plannerd.settings import ServerSettings
from plannerd.settings.health import HealthSettings
from plannerd.telemetry.calls import Calls
from plannerd.telemetry.logging import CallLog, get_logger
from plannerd.transport.gate import Gate
from plannerd.transport.handlers import Service, service_handler
from plannerd.transport.health import SERVICE_NAME as HEALTH_SERVICE
from plannerd.transport.health import Health
from plannerd.transport.listening import ListenError, check_exposure, resolve, usable
from plannerd.transport.messages import MessageBounds
from plannerd.transport.protection import UNPROTECTED, Protection
from plannerd.transport.quiet import quieten_grpc
from plannerd.transport.readiness import Dependency, Readiness
from plannerd.transport.stopping import LastResort, signals
from plannerd.transport.streams import StreamBounds
from plannerd.transport.tls import server_credentials

if TYPE_CHECKING:
    from plannerd.security.certificates import ServerCertificate

# Seconds that calls which were cut have to notice, and that replies on their way have to leave.
_CUT_SECONDS: Final = 2.0
_FLUSH_SECONDS: Final = 1.0
_FOR_EVER: Final = 10.0**9
# Of the grace on a connection that is too old, how much a stream has until it ends itself.
_STREAM_SHARE: Final = 0.8

CLOSE_SECONDS: Final = 3.0
"""What the parts of a server have to let go of what they hold, once it has stopped."""

_BEYOND_SECONDS: Final = _CUT_SECONDS + _FLUSH_SECONDS + CLOSE_SECONDS + 1.0


class Server:
    """Serves `services` as `settings` say. An object is started once, inside the event loop that it lives in.

    Args:
        settings: where to listen and how to stop.
        services: what to serve, beside health and reflection.
        calls: hears of every call, for telemetry.
        protection: TLS, who may call, and the files that both come from.
        dependencies: what health looks at; those with patience concern the server as a whole and its first service.
        health: how often it looks.
    """

    def __init__(
        self,
        settings: ServerSettings,
        services: Sequence[Service],
        calls: Calls | None = None,
        protection: Protection = UNPROTECTED,
        dependencies: Sequence[Dependency] = (),
        health: HealthSettings | None = None,
    ) -> None:
        self._settings = settings
        self._protection = protection
        self._services = tuple(services)
        self._log = get_logger()
        self._calls = calls
        self._gate = Gate(CallLog(self._log), calls, protection.admission)
        self._health = Health()
        self._readiness = Readiness(
            self._health,
            dependencies,
            [service.name for service in self._services[:1]],
            (health or HealthSettings()).interval_seconds,
        )
        self._server: grpc.aio.Server | None = None
        self._targets: tuple[str, ...] = ()
        self._port = 0
        self._looking: list[asyncio.Task[None]] = []
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is listened on, once started; the chosen one if the settings say 0."""
        return self._port

    @property
    def targets(self) -> tuple[str, ...]:
        """What is listened on, once started: `127.0.0.1:50051`, `[::1]:50051`."""
        return self._targets

    @property
    def patience(self) -> float:
        """The longest that stopping waits for calls to end."""
        return self._settings.drain_delay_seconds + self._settings.grace_period_seconds

    @property
    def calls(self) -> int:
        """How many calls are under way."""
        return self._gate.inside

    async def start(self) -> None:
        """Start to serve.

        Raises:
            ListenError: the host has no address here, its port is taken, or listening on it is not safe.
        """
        settings = self._settings
        addresses = await resolve(settings.host)
        certificate = self._protection.certificate
        exposed = check_exposure(
            settings.host, addresses, tls=certificate is not None, allow_insecure=settings.allow_insecure
        )
        addresses = usable(settings.host, addresses, settings.port, settings.reuse_port)

        quieten_grpc()
        self._server = grpc.aio.server(options=channel_options(settings))
        bounds = MessageBounds(settings.max_request_bytes, settings.max_reply_bytes)
        aged = settings.max_connection_age_seconds is not None
        streams = StreamBounds(
            settings.stream_idle_seconds,
            settings.max_streams,
            _STREAM_SHARE * settings.max_connection_age_grace_seconds if aged else None,
        )
        self._server.add_generic_rpc_handlers(
            [service_handler(service, self._gate, bounds, streams) for service in self._services]
        )
        names = [service.name for service in self._services]
        self._health.add_to(self._server)
        reflect = not exposed if settings.reflection is None else settings.reflection
        if reflect:
            shown = [*names, HEALTH_SERVICE, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(shown, self._server)

        self._port = settings.port
        for address in addresses:
            self._port = _open(self._server, address.with_port(self._port), certificate)
        self._targets = tuple(address.with_port(self._port) for address in addresses)
        if self._calls is not None:
            self._calls.listening(settings.host, self._port)
        await self._server.start()
        self._health.serving(names)
        self._readiness.start()
        self._looking = [
            asyncio.create_task(keep_looking(every, watched)) for every, watched in self._protection.watched
        ]
        if exposed and certificate is None:
            self._log.warning("insecure", detail="other machines can reach this server, and nothing is encrypted")
        if exposed and not self._protection.checks_callers:
            self._log.warning("open", detail="other machines can reach this server, and nobody is asked who they are")
        self._log.info(
            "serving",
            targets=self._targets,
            port=self._port,
            services=names,
            reflection=reflect,
            tls=certificate is not None,
        )

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Stop: health first, then new calls are refused, then those under way end or are cut.

        Whoever calls this while the server stops already waits for that.

        Args:
            hurry: once it is set, nothing more is waited for.
        """
        if self._server is None:
            return
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        hurry = asyncio.Event() if hurry is None else hurry
        try:
            self._log.info("stopping", calls=self._gate.inside)
            self._health.drain()
            await self._readiness.stop()
            await _first_of(self._settings.drain_delay_seconds, hurry.wait())
            self._gate.drain()
            await _first_of(self._settings.grace_period_seconds, hurry.wait(), self._gate.empty())
            cut = self._gate.cut()
            await _first_of(_CUT_SECONDS, self._gate.empty())
            self._health.close()
            for task in self._looking:
                task.cancel()
            await asyncio.gather(*self._looking, return_exceptions=True)
            await self._server.stop(_FLUSH_SECONDS)
            self._log.info("stopped", calls_cut=cut)
        finally:
            self._stopped.set()

    async def wait_closed(self) -> None:
        """Wait until the server has stopped, whoever stopped it.

        Raises:
            Exception: what it died of.
        """
        if self._server is not None:
            # With a time-out grpc shields its own future from a cancellation of this wait.
            await self._server.wait_for_termination(_FOR_EVER)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def run(server: Server, announce: Callable[[tuple[str, ...]], None], farewell: float = 0.0) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully; a second signal makes that quick.

    Args:
        server: not started yet.
        announce: is told what is listened on, once requests are served.
        farewell: seconds that the caller needs afterwards, beside `CLOSE_SECONDS`.

    Raises:
        ListenError: the server can't listen as it is told to.
        Exception: what the server died of.
    """
    stop, hurry, last_resort = asyncio.Event(), asyncio.Event(), LastResort()

    def resort(first: bool) -> None:
        last_resort.within(_BEYOND_SECONDS + (server.patience + farewell if first else 0.0))

    with signals(stop.set, hurry.set, resort):
        await server.start()
        announce(server.targets)
        await _first_of(_FOR_EVER, stop.wait(), server.wait_closed())
        await server.stop(hurry)
        await server.wait_closed()


def channel_options(settings: ServerSettings) -> list[tuple[str, int]]:
    """The options of grpc's server that follow from `settings`."""
    keepalive = settings.keepalive
    bounds = MessageBounds(settings.max_request_bytes, settings.max_reply_bytes).with_envelope()
    return [
        ("grpc.so_reuseport", int(settings.reuse_port)),
        # The gate refuses what exceeds the setting and says so in full; grpc stops what is far beyond, unread.
        ("grpc.max_receive_message_length", 2 * bounds.request),
        ("grpc.max_send_message_length", bounds.reply),
        ("grpc.max_concurrent_streams", settings.max_connection_calls),
        # Calls that grpc has and Python has not taken yet; from 1000 on it would drop some without a word.
        ("grpc.server.max_pending_requests", settings.max_connection_calls),
        ("grpc.server.max_pending_requests_hard_limit", 2 * settings.max_connection_calls),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", _milliseconds(settings.handshake_timeout_seconds)),
        ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age_seconds or _FOR_EVER)),
        ("grpc.max_connection_age_grace_ms", _milliseconds(settings.max_connection_age_grace_seconds)),
        ("grpc.keepalive_time_ms", _milliseconds(keepalive.interval_seconds)),
        ("grpc.keepalive_timeout_ms", _milliseconds(keepalive.timeout_seconds)),
        # In grpc 1.85 this one, of 60 s by default, is what ends the wait for a keepalive ping as well.
        ("grpc.http2.ping_timeout_ms", _milliseconds(keepalive.timeout_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(keepalive.min_client_interval_seconds)),
    ]


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), 2**31 - 1)


def _open(server: grpc.aio.Server, target: str, certificate: WatchedFiles[ServerCertificate] | None) -> int:
    """Listen on `target`; the port."""
    try:
        if certificate is not None:
            return server.add_secure_port(target, server_credentials(certificate))
        return server.add_insecure_port(target)
    except RuntimeError:
        raise ListenError(f"can't listen on {target}") from None


async def _first_of(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of `waits` ends, at most so long, and give up the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
