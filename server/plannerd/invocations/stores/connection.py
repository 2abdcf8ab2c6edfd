"""The connection to Redis or Valkey: one, which all requests share, and which comes back by itself."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, cast

from glide import (
    AdvancedGlideClientConfiguration,
    AdvancedGlideClusterClientConfiguration,
    BackoffStrategy,
    ClusterScanCursor,
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
_CURSORS: Final = 64  # listings of a cluster that can be gone on with
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

    @property
    def problem(self) -> str:
        """What went wrong last, in the words of the client; empty while all is well."""

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """What `script` answers.

        Raises:
            PlannerdError: STORE_UNAVAILABLE, after which the script ran or did not; STORE_FULL.
        """

    async def scan(self, pattern: str, cursor: str, count: int) -> tuple[list[bytes], str]:
        """Some of the keys of that pattern, and where to go on; empty at the end and, to begin with, as `cursor`.

        Raises:
            PlannerdError: STORE_UNAVAILABLE.
            ValueError: the cursor is none.
        """

    async def read(self, keys: Sequence[bytes], fields: Sequence[bytes]) -> list[dict[bytes, bytes | None]]:
        """These fields of these hashes, or all where none are named.

        Raises:
            PlannerdError: STORE_UNAVAILABLE.
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
        self._cursors: OrderedDict[str, ClusterScanCursor] = OrderedDict()
        self._down = False
        self._closed = False
        self.problem = ""
        Logger.set_logger_config(LogLevel.OFF)  # it writes to standard error in a form of its own

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """What `script` answers.

        Raises:
            PlannerdError: STORE_UNAVAILABLE, after which the script ran or did not; STORE_FULL.
        """
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = Script(script)  # type: ignore[no-untyped-call]
        script_of = known
        answer = await self._ask(lambda client: client.invoke_script(script_of, keys=list(keys), args=list(arguments)))
        return cast("Answer", answer)

    async def scan(self, pattern: str, cursor: str, count: int) -> tuple[list[bytes], str]:
        """Some of the keys of that pattern, and where to go on."""
        if self._target.cluster:
            return await self._scan_cluster(pattern, cursor, count)
        if cursor and not cursor.isdecimal():
            raise ValueError("it is of another store")

        def scan(client: GlideClient | GlideClusterClient) -> Awaitable[object]:
            return cast("GlideClient", client).scan(cursor or "0", pattern, count)

        following, keys = cast("tuple[bytes, list[bytes]]", await self._ask(scan))
        return keys, "" if following == b"0" else following.decode()

    async def _scan_cluster(self, pattern: str, cursor: str, count: int) -> tuple[list[bytes], str]:
        """The same over all nodes. Where it goes on is known to this process alone, and for the last listings."""
        known = self._cursors.get(cursor) if cursor else ClusterScanCursor()  # type: ignore[no-untyped-call]
        if known is None:
            raise ValueError("it is of another replica, or too old")
        chosen = known

        def scan(client: GlideClient | GlideClusterClient) -> Awaitable[object]:
            return cast("GlideClusterClient", client).scan(chosen, pattern, count)

        following, keys = cast("tuple[ClusterScanCursor, list[bytes]]", await self._ask(scan))
        if following.is_finished():
            return keys, ""
        name = following.get_cursor()
        self._cursors[name] = following
        while len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)
        return keys, name

    async def read(self, keys: Sequence[bytes], fields: Sequence[bytes]) -> list[dict[bytes, bytes | None]]:
        """These fields of these hashes, or all where none are named."""

        async def read_one(key: bytes) -> dict[bytes, bytes | None]:
            if not fields:
                return cast("dict[bytes, bytes | None]", await self._ask(lambda client: client.hgetall(key)))
            values = await self._ask(lambda client: client.hmget(key, list(fields)))
            return dict(zip(fields, cast("list[bytes | None]", values), strict=True))

        return list(await asyncio.gather(*map(read_one, keys)))

    async def _ask(self, request: Callable[[GlideClient | GlideClusterClient], Awaitable[object]]) -> object:
        """Send a request until it is answered or its time is over."""
        give_up = self._clock() + self._target.timeout
        wait = _FIRST_WAIT
        while not self._closed:
            try:
                client = self._client or await self._connect()
                answer = await request(client)
            except GlideError as error:
                if str(error).startswith("OOM"):
                    raise _full() from None
                self._note_failure(error)
                if self._clock() + wait >= give_up:
                    break
            else:
                if self._down:
                    self._down = False
                    self.problem = ""
                    get_logger().info("store_back")
                return answer
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
        self.problem = str(error)[:200]
        if not self._down and not self._closed:
            self._down = True
            get_logger().warning("store_unavailable", error=type(error).__name__, detail=self.problem)


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
