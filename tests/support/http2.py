"""As much of an HTTP/2 client as misbehaving needs: it says how much it takes, and reads only when told to."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK, END_STREAM, END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE: Final = 4


class Http2:
    """A connection; every stream of it may get `window` bytes, and nothing ever makes room for more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, window: int) -> None:
        self._reader = reader
        self._writer = writer
        self._next_stream = 1
        writer.write(PREFACE)
        self.send(SETTINGS, payload=struct.pack(">HI", _INITIAL_WINDOW_SIZE, window))

    @classmethod
    async def connect(cls, port: int, *, window: int = 65535) -> Self:
        """Connect to a server of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port), window)

    def send(self, kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> None:
        """Send a frame."""
        head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
        self._writer.write(head + payload)

    def call(self, path: str, message: bytes, *, end: bool = True) -> int:
        """Begin a call with one message; the number of its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(b"\x10" + _text(name) + _text(value) for name, value in headers.items())
        self.send(HEADERS, END_HEADERS, stream, block)
        self.send(DATA, END_STREAM if end else 0, stream, b"\x00" + struct.pack(">I", len(message)) + message)
        return stream

    async def frame(self) -> tuple[int, int, int, bytes]:
        """Kind, flags, stream and payload of the next frame."""
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3]))
        return head[3], head[4], int.from_bytes(head[5:]) & 0x7FFF_FFFF, payload

    async def settle(self) -> None:
        """Wait until the server has seen everything so far."""
        self.send(PING, payload=b"tangerin")
        while True:
            kind, flags, _, _ = await self.frame()
            if kind == SETTINGS and not flags & ACK:
                self.send(SETTINGS, ACK)
            if kind == PING and flags & ACK:
                return

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


def _text(text: str) -> bytes:
    """As HPACK has it, without Huffman's code: the length in 7 bits, and the bytes."""
    return bytes([len(text)]) + text.encode()
