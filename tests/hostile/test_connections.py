"""Hostile connections: those that say nothing, too much, or nonsense."""

from __future__ import annotations

import asyncio
import os

from tests.hostile.conftest import HANDSHAKE_SECONDS, MAX_CONNECTIONS, Scene
from tests.support.frames import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Wire,
    frame,
    request_headers,
)
from tests.support.security import authority
from tests.support.servers import ServerProcess

PATIENCE = HANDSHAKE_SECONDS + 20.0
METHOD = "/planner.v1.PlannerService/ListPlanners"


async def all_closed(wires: list[Wire], seconds: float = PATIENCE) -> int:
    """How many of the connections the server closes."""
    return sum(await asyncio.gather(*(wire.closed(seconds) for wire in wires)))


async def test_connections_that_say_nothing(scene: Scene) -> None:
    """A connection on which nothing is said is closed after the time for the handshake."""
    with scene.undisturbed("200 silent connections"):
        wires = [await Wire.open(scene.target, greet=False) for _ in range(200)]
        assert await all_closed(wires) == 200


async def test_connections_that_speak_something_else(scene: Scene) -> None:
    """What is no HTTP/2 is closed: other protocols, noise, and half a greeting."""
    openings = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64),
        os.urandom(4000),
        PREFACE[:10],
        PREFACE + os.urandom(100),
        PREFACE + frame(SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"),
        PREFACE + frame(SETTINGS, 0, 0) + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    ]
    with scene.undisturbed("connections that speak something else"):
        wires = []
        for number in range(70):
            wire = await Wire.open(scene.target, greet=False)
            await wire.send(openings[number % len(openings)])
            wires.append(wire)
        assert await all_closed(wires) == 70


async def test_more_connections_than_allowed(scene: Scene) -> None:
    """Beyond the limit connections are closed at once, those that are there go on, and there is room afterwards."""
    with scene.undisturbed(f"{MAX_CONNECTIONS + 200} connections"):
        wires = [await Wire.open(scene.target) for _ in range(MAX_CONNECTIONS + 200)]
        closed = await all_closed(wires, 1.0)
        assert 150 <= closed < MAX_CONNECTIONS + 200
        for wire in wires:
            wire.close()
        await asyncio.sleep(0.5)
        wire = await Wire.open(scene.target)
        assert not await wire.closed(1.0)
        wire.close()


async def test_headers_without_end(scene: Scene) -> None:
    """Of headers that never end (CONTINUATION frames) the server keeps little, and others are served."""
    with scene.undisturbed("headers without end"):
        before = scene.memory
        for _ in range(5):
            wire = await Wire.open(scene.target)
            taken = await wire.send(frame(HEADERS, 0, 1, request_headers(METHOD)))
            filler = frame(CONTINUATION, 0, 1, b"\0\x04abcd\x7d" + b"x" * 125)
            for _ in range(600):
                if not taken:
                    break
                taken = await wire.send(filler * 100)
            wire.close()
        assert scene.memory - before < 100 << 20


async def test_calls_that_are_reset_at_once(scene: Scene) -> None:
    """Opening and resetting calls without end (rapid reset) does not keep others from being served."""
    with scene.undisturbed("50,000 calls that are reset"):
        wire = await Wire.open(scene.target)
        headers = request_headers(METHOD)
        sent = 0
        for number in range(50_000):
            stream = 2 * number + 1
            burst = frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
            if not await wire.send(burst):
                break
            sent += 1
        assert sent > 0
        wire.close()


async def test_pings_without_end(scene: Scene) -> None:
    """A connection that pings without end is thrown out."""
    with scene.undisturbed("pings without end"):
        wire = await Wire.open(scene.target)
        sending = asyncio.ensure_future(_ping(wire))
        assert await wire.closed(PATIENCE)
        sending.cancel()
        wire.close()


async def _ping(wire: Wire) -> None:
    for _ in range(100_000):
        if not await wire.send(frame(PING, 0, 0, b"01234567")):
            return
        await asyncio.sleep(0.001)


async def test_tls_handshakes_that_never_end(tls_server: ServerProcess) -> None:
    """Handshakes that stop half-way are closed in time, and meanwhile others are served over TLS."""
    hello = bytes.fromhex("1603010200010001fc0303") + os.urandom(40)
    wires = []
    for number in range(200):
        wire = await Wire.open(tls_server.target, greet=False)
        await wire.send(hello[: 5 + number % 40])
        wires.append(wire)
    await asyncio.to_thread(tls_server.wait_until_serving)
    assert await all_closed(wires) == 200


async def test_tls_handshakes_that_are_begun_again_and_again(tls_server: ServerProcess) -> None:
    """Clients that trust somebody else, one after the other, leave the server as it was."""
    foreign = authority().trusted()

    async def knock() -> None:
        from tests.support.services import open_channel

        async with open_channel(tls_server.target, foreign) as channel:
            channel.get_state(try_to_connect=True)
            await asyncio.sleep(0.2)

    for _ in range(5):
        await asyncio.gather(*(knock() for _ in range(20)))
    await asyncio.to_thread(tls_server.wait_until_serving)
