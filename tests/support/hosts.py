"""A host of System One models in this process, which does to each request what a test tells it to.

    async with host(status(503), answer()) as there:
        ...  # the first request meets a 503, all further ones the answer

It speaks HTTP by itself, byte by byte, since most of what it does no HTTP server would do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

NEVER: Final = 3600.0
"""Seconds that no test waits."""

MODEL: Final = "host-model-1"
"""What the host says that its model is."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the connection to answer it on."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write, and wait until it is on its way."""
        self.writer.write(data)
        await self.writer.drain()

    async def respond(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole response."""
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(headers or {})
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)

    async def gone(self) -> None:
        """Wait until the client has hung up."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Behaviour: TypeAlias = Callable[[Exchange], Awaitable[None]]
"""What happens to one request. The connection stays open afterwards, unless it was closed."""

Read: TypeAlias = Callable[[Any], Any]


def answers_to(body: Any, **fixed: Any) -> dict[str, Any]:
    """Valid answers to the questions in `body`: yes is 0.9 probable, the first option and the last level are chosen.

    Args:
        body: of a request.
        fixed: what to answer to single questions instead.
    """
    return {name: fixed.get(name) or _answer(question) for name, question in body["questions"].items()}


def _answer(question: Any) -> dict[str, Any]:
    if question["type"] == "noul":
        return {"type": "noul", "noul": 0.9}
    criteria = list(question["criteria"])
    count = len(criteria)
    if question["type"] == "choice":
        probabilities = {name: float(name == criteria[0]) for name in criteria}
        return {"type": "choice", "choice": criteria[0], "probabilities": probabilities, "confidence": 1.0}
    probabilities = {str(level): float(level == count - 1) for level in range(count)}
    legend = {str(level): text for level, text in enumerate(criteria)}
    return {
        "type": "score",
        "score": float(count - 1),
        "probabilities": probabilities,
        "legend": legend,
        "confidence": 1.0,
    }


def response_to(body: Any, **fixed: Any) -> dict[str, Any]:
    """The whole response with `answers_to`."""
    return {"model": MODEL, "answers": answers_to(body, **fixed), "usage": {"input_tokens": 7, "output_tokens": 2}}


def answer(read: Callable[[Request], Any] | None = None) -> Behaviour:
    """Answer well, or with what `read` makes of the request."""

    async def behave(exchange: Exchange) -> None:
        made = response_to(exchange.request.json) if read is None else read(exchange.request)
        await exchange.respond(200, json.dumps(made).encode())

    return behave


def status(code: int, body: bytes = b'{"error": "tangerine"}', **headers: str) -> Behaviour:
    """Answer with a status; in names of headers `_` stands for `-`."""

    async def behave(exchange: Exchange) -> None:
        await exchange.respond(code, body, {name.replace("_", "-"): value for name, value in headers.items()})

    return behave


def raw(data: bytes, *, close: bool = True) -> Behaviour:
    """Send these bytes in place of a response."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(data)
        if close:
            exchange.writer.close()

    return behave


async def hang(exchange: Exchange) -> None:
    """Say nothing."""
    await exchange.gone()


async def reset(exchange: Exchange) -> None:
    """Cut the connection."""
    exchange.writer.transport.abort()


def slow(seconds: float) -> Behaviour:
    """Answer well, later."""

    async def behave(exchange: Exchange) -> None:
        try:
            await asyncio.wait_for(exchange.gone(), seconds)
        except TimeoutError:
            await answer()(exchange)

    return behave


async def half(exchange: Exchange) -> None:
    """Promise a body, send half of it, and close."""
    body = json.dumps(response_to(exchange.request.json)).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    await exchange.send(head + body[: len(body) // 2])
    exchange.writer.close()


async def half_closed(exchange: Exchange) -> None:
    """Close the sending side alone, in the middle of the head, and go on listening."""
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
    exchange.writer.write_eof()
    await exchange.gone()


async def half_hanging(exchange: Exchange) -> None:
    """Promise a body, send half of it, and wait."""
    body = json.dumps(response_to(exchange.request.json)).encode()
    await exchange.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
    await exchange.gone()


def drip(pause: float) -> Behaviour:
    """Answer well, one byte at a time."""

    async def behave(exchange: Exchange) -> None:
        body = json.dumps(response_to(exchange.request.json)).encode()
        for byte in f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body:
            await exchange.send(bytes([byte]))
            await asyncio.sleep(pause)

    return behave


def endless(
    chunk: bytes, head: bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *, at_once: int = 65536
) -> Behaviour:
    """Send `head`, and then `chunk` without end, about so many bytes at once."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(head)
        block = chunk * max(1, at_once // len(chunk))
        while True:
            await exchange.send(block)
            await asyncio.sleep(0.001)  # the client is in the same event loop, and must have its turns

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One after the other, and again from the first."""
    number = 0

    async def behave(exchange: Exchange) -> None:
        nonlocal number
        chosen = behaviours[number % len(behaviours)]
        number += 1
        await chosen(exchange)

    return behave


@dataclass(slots=True)
class FaultyHost:
    """A host that runs.

    Attributes:
        url: where.
        always: what happens to requests for which nothing else is said.
        script: what happens to the next ones.
        requests: what came in.
        connections: how many are open.
        opened: how many ever were.
    """

    url: str
    always: Behaviour
    script: list[Behaviour]
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    opened: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.opened += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                behave = self.script.pop(0) if self.script else self.always
                await behave(Exchange(request, reader, writer))
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.connections -= 1
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    lines = head.decode("latin-1").split("\r\n")
    if len(lines) < 2:
        return None
    method, path, _ = lines[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


@asynccontextmanager
async def host(
    *script: Behaviour, always: Behaviour | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FaultyHost]:
    """A host on a free port of 127.0.0.1.

    Args:
        script: what happens to the first requests.
        always: what happens to further ones; by default they are answered well.
        tls: what it shows of itself; None: plain HTTP.
    """
    there = FaultyHost("", always or answer(), list(script))
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(there.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    there.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield there
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
