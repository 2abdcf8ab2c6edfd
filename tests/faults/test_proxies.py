"""The fault proxies do what they say, and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.events import EventLog, read_events
from tests.faults.lines import Address, Line
from tests.faults.stores import unescaped


@pytest.fixture
async def echo() -> AsyncIterator[Address]:
    """A server that sends back what it gets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()
    server.close()


@pytest.fixture
async def line(echo: Address) -> AsyncIterator[Line]:
    """A line to it."""
    line = Line(lambda: echo, random.Random(1))
    await line.start()
    yield line
    await line.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the connection, in whichever way."""
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionResetError:
        return True


async def test_a_line_carries_bytes(line: Line) -> None:
    """What is sent arrives, in both directions, and an end is passed on."""
    reader, writer = await asyncio.open_connection(*line.address)
    writer.write(b"x" * 100_000)
    writer.write_eof()
    assert await reader.read(-1) == b"x" * 100_000
    writer.close()


async def test_a_cut_ends_connections_at_once(line: Line) -> None:
    """Whoever is connected notices; whoever connects afterwards does not."""
    for _ in range(4):
        reader, writer = await asyncio.open_connection(*line.address)
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        assert line.cut() == 1
        assert await ended(reader)
        writer.close()


async def test_a_line_that_leads_nowhere_refuses() -> None:
    """Without a replica to lead to, a connection is closed."""
    line = Line(lambda: None, random.Random(1))
    await line.start()
    reader, writer = await asyncio.open_connection(*line.address)
    assert await ended(reader)
    writer.close()
    await line.close()


def test_events_of_several_processes_come_in_order(tmp_path: Path) -> None:
    """Lines of all files are read by their time; a line that a killed process did not end is left out."""
    first, second = EventLog(tmp_path / "a.events"), EventLog(tmp_path / "b.events")
    first.write("one")
    second.write("two", case="c")
    first.write("three")
    (tmp_path / "c.events").write_text('{"t": 1, "kind": "half', "utf-8")
    assert [event["kind"] for event in read_events(tmp_path)] == ["one", "two", "three"]
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("written", "meant"),
    [(rb"plannerd:i:{-:x}", b"plannerd:i:{-:x}"), (rb"\x00\xff\\\"\n\r\t\a\b", b'\x00\xff\\"\n\r\t\a\b')],
)
def test_words_of_redis_are_read(written: bytes, meant: bytes) -> None:
    """What MONITOR writes as escapes is understood."""
    assert unescaped(written) == meant
