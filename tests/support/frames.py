"""HTTP/2 frames by hand, for what no decent library sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Headers in HPACK, each a literal that is not indexed; values of up to 126 bytes."""
    block = b""
    for name, value in headers:
        raw_name, raw_value = name.encode(), value.encode()
        assert len(raw_name) < 127
        assert len(raw_value) < 127
        block += b"\0" + bytes([len(raw_name)]) + raw_name + bytes([len(raw_value)]) + raw_value
    return block


def request_headers(method: str, *more: tuple[str, str]) -> bytes:
    """The headers of a gRPC call."""
    return header_block(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            *more,
        ]
    )


class Wire:
    """A connection on which anything can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, target: str, *, greet: bool = True) -> Wire:
        """Connect; `greet` begins HTTP/2."""
        host, _, port = target.rpartition(":")
        wire = cls(*await asyncio.open_connection(host, int(port)))
        if greet:
            await wire.send(PREFACE + frame(SETTINGS, 0, 0))
        return wire

    async def send(self, data: bytes) -> bool:
        """Send bytes; whether the server still takes any."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            return False
        return not self.writer.is_closing()

    async def closed(self, seconds: float) -> bool:
        """Whether the server closes the connection within so many seconds; what it sends is thrown away."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        self.close()
        return True

    def close(self) -> None:
        """Hang up."""
        self.writer.close()
