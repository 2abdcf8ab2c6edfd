"""The connection to Redis or Valkey: one, which all requests share, and which comes back by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, cast

from glide import (
    AdvancedGlideClientConfiguration,
    AdvancedGlideClusterClientConfiguration,
    BackoffStrategy,
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    GlideError,
    Logger,
    LogLevel,
    NodeAddress,
    Script,
    ServerCredentials,
    TlsAdvancedConfiguration,
)

from plannerd.errors import PlannerdError, Reason
from plannerd.telemetry.logging import get_logger

Answer: TypeAlias = "int | bytes | list[bytes] | dict[bytes, bytes] | None"

# The least and the most that a broken connection waits before it is made again.
_BACKOFF: Final = BackoffStrategy(num_of_retries=6, factor=20, exponent_base=2, jitter_percent=20)
_FIRST_WAIT: Final = 0.02
_LONGEST_WAIT: Final = 0.5
_ATTEMPTS: Final = 4  # that fit into the time of one request, if each of them is waited for in vain


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """Where a Redis or Valkey server is, and how to speak to it.

    Attributes:
        host: its name or address.
        port: its port.
        database: the number of the database.
        cluster: whether it is a node of a cluster, which then tells of the others.
        username: for an access control list; empty for the default user.
        password: empty for none.
        tls: whether to use TLS.
        ca: certificates to trust, in PEM; None: those of the system.
        cert: an own certificate, in PEM.
        key: its key.
        timeout: seconds that one request may take, with every attempt.
    """

    host: str
    port: int = 6379
    database: int = 0
    cluster: bool = False
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    timeout: float = 5.0


class Connection(Protocol):
    """Runs scripts."""

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """What `script` answers.

        Raises:
            PlannerdError: STORE_UNAVAILABLE, after which the script ran or did not; STORE_FULL.
        """

    async def close(self) -> None:
        """Let go of it."""


class RedisConnection:
    """A connection that is made when it is first needed.

    A request whose connection breaks is sent again until its time is over: every script may run twice.

    Args:
        target: where the server is.
        clock: monotonic seconds.
    """

    def __init__(self, target: RedisTarget, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._client: GlideClient | GlideClusterClient | None = None
        self._connecting = asyncio.Lock()
        self._scripts: dict[str, Script] = {}
        self._down = False
        self._closed = False
        Logger.set_logger_config(LogLevel.OFF)  # it writes to standard error in a form of its own

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """What `script` answers.

        Raises:
            PlannerdError: STORE_UNAVAILABLE, after which the script ran or did not; STORE_FULL.
        """
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = Script(script)  # type: ignore[no-untyped-call]
        give_up = self._clock() + self._target.timeout
        wait = _FIRST_WAIT
        while not self._closed:
            try:
                client = self._client or await self._connect()
                answer = await client.invoke_script(known, keys=list(keys), args=list(arguments))
            except GlideError as error:
                if str(error).startswith("OOM"):
                    raise _full() from None
                self._note_failure(error)
                if self._clock() + wait >= give_up:
                    break
            else:
                if self._down:
                    self._down = False
                    get_logger().info("store_back")
                return cast("Answer", answer)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
        raise _unavailable(self._target.timeout)

    async def close(self) -> None:
        """Close the connection; requests under way fail."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connect(self) -> GlideClient | GlideClusterClient:
        async with self._connecting:
            if self._client is None:
                target = self._target
                if target.cluster:
                    self._client = await GlideClusterClient.create(_cluster_configuration(target))
                else:
                    self._client = await GlideClient.create(_configuration(target))
            return self._client

    def _note_failure(self, error: GlideError) -> None:
        """Log the first failure of a row."""
        if not self._down and not self._closed:
            self._down = True
            get_logger().warning("store_unavailable", error=type(error).__name__, detail=str(error)[:200])


def _attempt_milliseconds(target: RedisTarget) -> int:
    return max(1, round(target.timeout * 1000 / _ATTEMPTS))


def _tls(target: RedisTarget) -> TlsAdvancedConfiguration | None:
    if not target.tls:
        return None
    return TlsAdvancedConfiguration(root_pem_cacerts=target.ca, client_cert_pem=target.cert, client_key_pem=target.key)


def _credentials(target: RedisTarget) -> ServerCredentials | None:
    if not target.password:
        return None
    return ServerCredentials(password=target.password, username=target.username or None)


def _configuration(target: RedisTarget) -> GlideClientConfiguration:
    return GlideClientConfiguration(
        [NodeAddress(target.host, target.port)],
        use_tls=target.tls,
        credentials=_credentials(target),
        request_timeout=_attempt_milliseconds(target),
        reconnect_strategy=_BACKOFF,
        database_id=target.database,
        client_name="plannerd",
        advanced_config=AdvancedGlideClientConfiguration(
            connection_timeout=_attempt_milliseconds(target), tls_config=_tls(target)
        ),
        lazy_connect=True,
    )


def _cluster_configuration(target: RedisTarget) -> GlideClusterClientConfiguration:
    return GlideClusterClientConfiguration(
        [NodeAddress(target.host, target.port)],
        use_tls=target.tls,
        credentials=_credentials(target),
        request_timeout=_attempt_milliseconds(target),
        reconnect_strategy=_BACKOFF,
        client_name="plannerd",
        advanced_config=AdvancedGlideClusterClientConfiguration(
            connection_timeout=_attempt_milliseconds(target), tls_config=_tls(target)
        ),
        lazy_connect=True,
    )


def _unavailable(timeout: float) -> PlannerdError:
    return PlannerdError(
        Reason.STORE_UNAVAILABLE,
        f"The store of this server did not answer within {timeout:g} s. Send the request again later: it happens once.",
        retry_after=1.0,
    )


def _full() -> PlannerdError:
    return PlannerdError(
        Reason.STORE_FULL,
        "The store of this server has no room left, so nothing was changed. Send the request again later.",
        retry_after=5.0,
    )
