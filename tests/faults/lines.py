"""A fault proxy for connections: bytes go through as they are, until the connection is cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]

_CHUNK: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)


class Line:
    """Listens on a port of its own, and connects whoever comes with what `choose` says; None refuses.

    Args:
        choose: where a new connection leads.
        chance: whether a cut is a reset or an orderly end, for both sides alike.
    """

    def __init__(self, choose: Callable[[], Address | None], chance: random.Random) -> None:
        self._choose = choose
        self._chance = chance
        self._server: asyncio.Server | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address: Address = ("127.0.0.1", 0)

    @property
    def target(self) -> str:
        """Its address, as a channel takes it."""
        return "{}:{}".format(*self.address)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()

    async def close(self) -> None:
        """Refuse new connections and cut those that there are."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Cut every connection; how many there were."""
        pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            reset = self._chance.random() < 0.5
            for writer in pair:
                if reset:
                    found: socket.socket | None = writer.get_extra_info("socket")
                    with contextlib.suppress(OSError):
                        if found is not None:
                            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
        return len(pairs)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        address = self._choose()
        try:
            if address is None:
                return
            there, on = await asyncio.open_connection(*address)
        except OSError:
            return
        finally:
            if address is None:
                writer.transport.abort()
        pair = (writer, on)
        self._pairs.add(pair)
        try:
            await asyncio.gather(_pump(reader, on), _pump(there, writer))
        except OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for one in pair:
                one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()
