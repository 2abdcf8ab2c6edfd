"""HTTP/2 pings, spoken directly: a gRPC client sends them when it likes."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plannerd.settings import KeepaliveSettings
from tests.support.services import service, serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
HANGS = 30.0


class Connection:
    """As much of an HTTP/2 client as pings need."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.write(PREFACE)
        self._send(SETTINGS)

    def _send(self, kind: int, flags: int = 0, payload: bytes = b"") -> None:
        self._writer.write(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4) + payload)

    async def next_frame(self) -> tuple[int, int, bytes]:
        """Kind, flags and payload of the next frame; settings are acknowledged on the way, pings are not."""
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3]))
        if head[3] == SETTINGS and not head[4] & ACK:
            self._send(SETTINGS, ACK)
        return head[3], head[4], payload

    async def answer_ping(self) -> None:
        """Wait for a ping of the server and answer it."""
        while True:
            kind, flags, payload = await self.next_frame()
            if kind == PING and not flags & ACK:
                self._send(PING, ACK, payload)
                return

    async def dropped(self) -> bool:
        """Whether the server asks once more, and hangs up when there is no answer."""
        asked = False
        try:
            while True:
                kind, flags, _ = await self.next_frame()
                asked = asked or (kind == PING and not flags & ACK)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return asked

    async def ping(self) -> str:
        """Send a ping; `ack` if it was answered, otherwise what the server said as it hung up."""
        self._send(PING, payload=b"tangerin")
        while True:
            kind, flags, payload = await self.next_frame()
            if kind == PING and flags & ACK:
                return "ack"
            if kind == GOAWAY:
                return payload[8:].decode()


@asynccontextmanager
async def connected(**keepalive: float) -> AsyncIterator[Connection]:
    async with serving(service(), keepalive=KeepaliveSettings(**keepalive)) as running, asyncio.timeout(HANGS):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()


async def test_clients_may_ping_as_often_as_the_setting_says() -> None:
    """A client without any call that pings no more often than allowed keeps its connection."""
    interval = 0.02
    async with connected(min_client_interval_seconds=interval) as connection:
        for _ in range(10):
            assert await connection.ping() == "ack"
            await asyncio.sleep(2 * interval)


async def test_clients_that_ping_all_the_time_are_disconnected() -> None:
    """A client that keeps pinging more often than allowed is told so, and loses its connection."""
    async with connected() as connection:
        answers: list[str] = []
        while not answers or answers[-1] == "ack":
            answers.append(await connection.ping())
    assert answers[-1] == "too_many_pings"


async def test_the_server_drops_connections_that_died() -> None:
    """A server pings a silent connection, and drops it once there is no answer."""
    async with connected(interval_seconds=0.05, timeout_seconds=0.05) as connection:
        for _ in range(3):
            await connection.answer_ping()
        assert await connection.dropped()


def test_every_ten_seconds_is_allowed() -> None:
    """By default a client that pings every ten seconds keeps well away from the bound."""
    assert KeepaliveSettings().min_client_interval_seconds <= 5.0
