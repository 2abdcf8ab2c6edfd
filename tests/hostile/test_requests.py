"""Hostile requests over well-formed connections."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc, value_pb2
from tests.hostile.conftest import ATTACKER, MAX_CALLS, MAX_INVOCATIONS, MAX_REQUEST, Scene
from tests.support.builders import agent, scheduler
from tests.support.errors import seen
from tests.support.security import bearer, ec_signer
from tests.support.services import contract_methods, open_channel
from tests.support.streams import until

EVIL = bearer(ATTACKER)
HANGS = 60.0
UNLIMITED = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 64 << 20)]


def system(invocation_id: str) -> planner_pb2.InitRequest:
    request = scheduler(agent("write", "ticket", writes="draft"))
    request.invocation_id = invocation_id
    return request


async def outcome(call: Awaitable[Any]) -> str:
    """The reason, or the code where there is none; `OK`."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        found = seen(error)
        return found.reason or found.code.name
    return "OK"


async def spread(
    target: str, count: int, ask: Callable[[grpc.aio.Channel, int], Awaitable[Any]], at_once: int = 50
) -> Counter[str]:
    """The outcomes of many calls, some of them at a time."""
    outcomes: Counter[str] = Counter()
    numbers = iter(range(count))

    async with open_channel(target) as channel:

        async def work() -> None:
            for number in numbers:
                outcomes[await outcome(ask(channel, number))] += 1

        await asyncio.gather(*(work() for _ in range(at_once)))
    return outcomes


def raw(channel: grpc.aio.Channel, path: str, body: bytes, metadata: Any = EVIL) -> Awaitable[Any]:
    call: Any = channel.unary_unary(path)
    return call(body, metadata=metadata, timeout=HANGS)  # type: ignore[no-any-return]


async def test_malformed_bytes(scene: Scene) -> None:
    """Bytes that are no message are INVALID_REQUEST, for every method, and never an internal error."""
    paths = [f"/{item.containing_service.full_name}/{item.name}" for item in contract_methods()]
    chance = random.Random(7)
    bodies = [chance.randbytes(chance.randrange(1, 400)) for _ in range(2000)]

    async def ask(channel: grpc.aio.Channel, number: int) -> Any:
        path = paths[number % len(paths)]
        if not path.endswith("/Run"):
            return await raw(channel, path, bodies[number])
        stream: Any = channel.stream_stream(path)(metadata=EVIL, timeout=HANGS)
        await stream.write(bodies[number])
        await stream.done_writing()
        return await stream.read()

    with scene.undisturbed("malformed bytes"):
        outcomes = await spread(scene.target, len(bodies), ask)
    assert outcomes["INVALID_REQUEST"] > 1500
    known = {"INVALID_REQUEST", "INVALID_VALUE", "INVALID_CONFIGURATION", "INVOCATION_NOT_FOUND", "OK"}
    assert set(outcomes) <= {*known, "SWITCHED_OFF"}  # the service for operators


async def test_giant_messages(scene: Scene) -> None:
    """A message over the limit is refused with both sizes, and one far beyond it is not even read."""

    async def ask(channel: grpc.aio.Channel, number: int) -> Any:
        size = (MAX_REQUEST + 1, 8 * MAX_REQUEST)[number % 2]
        return await raw(channel, "/planner.v1.PlannerService/Init", b"\0" * size)

    with scene.undisturbed("giant messages"):
        outcomes = await spread(scene.target, 100, ask, at_once=10)
    assert outcomes == {"LIMIT_EXCEEDED": 50, "RESOURCE_EXHAUSTED": 50}


def nested(depth: int) -> value_pb2.Value:
    """A list in a list in a list."""
    made = value_pb2.Value(int_value=1)
    for _ in range(depth):
        outer = value_pb2.Value()
        outer.list_value.values.append(made)
        made = outer
    return made


def deep_bytes(depth: int) -> bytes:
    """The same in bytes, deeper than any library would write it."""
    body = b"\x18\x01"
    for _ in range(depth):
        for tag in (b"\x0a", _LIST_TAG):
            body = tag + _varint(len(body)) + body
    return body


_LIST_TAG = bytes([value_pb2.Value.DESCRIPTOR.fields_by_name["list_value"].number << 3 | 2])


def _varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


async def test_deep_nesting(scene: Scene) -> None:
    """Values that are nested too deep are refused, however deep: as values, as messages, and in a state."""
    shallow = planner_pb2.FirstActionRequest(invocation_id="x")
    shallow.base.epoch, shallow.base.branch = 1, "b"
    shallow.scope.set["ticket"].CopyFrom(nested(30))
    key = planner_pb2.FirstActionRequest.DESCRIPTOR.fields_by_name["scope"].number
    entry = b"\x0a\x01k\x12" + _varint(len(deep_bytes(3000))) + deep_bytes(3000)
    update = b"\x0a" + _varint(len(entry)) + entry
    deep = b"\x0a\x01x" + bytes([key << 3 | 2]) + _varint(len(update)) + update
    state = system("x")
    state.state.planner = "scheduler"
    state.state.format_version = 1
    state.state.data = b'{"a":' * 40_000

    async def ask(channel: grpc.aio.Channel, number: int) -> Any:
        method, body = [
            ("FirstAction", shallow.SerializeToString()),
            ("FirstAction", deep),
            ("Init", state.SerializeToString()),
        ][number % 3]
        return await raw(channel, f"/planner.v1.PlannerService/{method}", body)

    with scene.undisturbed("deep nesting"):
        outcomes = await spread(scene.target, 300, ask)
    assert outcomes == {"INVALID_VALUE": 100, "INVALID_REQUEST": 100, "INVALID_EXECUTION_STATE": 100}


async def test_idle_streams(scene: Scene) -> None:
    """One identity may have so many streams; the others are refused, and everybody else has theirs."""
    with scene.undisturbed("2,000 idle streams"):
        channels = [open_channel(scene.target) for _ in range(10)]
        calls: list[Any] = []
        outcomes: Counter[str] = Counter()
        for number in range(2000):
            call = planner_pb2_grpc.PlannerServiceStub(channels[number % 10]).Run(metadata=EVIL)
            calls.append(call)
            if number % 100 == 99:
                await asyncio.sleep(0.05)
        for call in calls[MAX_CALLS + 200 :]:
            outcomes[await outcome(call.read())] += 1
        assert outcomes == {"LIMIT_EXCEEDED": 2000 - MAX_CALLS - 200}
        await until(lambda: sum(not call.done() for call in calls) <= MAX_CALLS)
        assert sum(not call.done() for call in calls) == MAX_CALLS
        for call in calls:
            call.cancel()
        for channel in channels:
            await channel.close()


async def test_slow_readers(scene: Scene) -> None:
    """Streams that send and never read hold up themselves alone."""
    body = planner_pb2.RunRequest(
        execution_state=planner_pb2.ExecutionStateRequest(invocation_id="x" * 100)
    ).SerializeToString()
    with scene.undisturbed("100 streams that never read"):
        async with open_channel(scene.target) as channel:
            calls = []
            for _ in range(100):
                call: Any = channel.stream_stream("/planner.v1.PlannerService/Run")(metadata=EVIL)
                calls.append(call)

            async def send(call: Any) -> None:
                for _ in range(300):
                    await call.write(body)

            sending = [asyncio.ensure_future(send(call)) for call in calls]
            await asyncio.wait(sending, timeout=5)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            for call in calls:
                call.cancel()


async def test_ten_thousand_invocations(scene: Scene) -> None:
    """Invocations beyond what is kept push out the oldest; a client that loses one goes on from its last state."""

    async def ask(channel: grpc.aio.Channel, number: int) -> Any:
        stub: Any = planner_pb2_grpc.PlannerServiceStub(channel)
        return await stub.Init(system(f"flood{number}"), metadata=EVIL, timeout=HANGS)

    async def look(channel: grpc.aio.Channel, number: int) -> Any:
        stub: Any = planner_pb2_grpc.PlannerServiceStub(channel)
        # Every fifth of them, the first and the last among them.
        asked = planner_pb2.ExecutionStateRequest(invocation_id=f"flood{number * 5 if number < 1999 else 9999}")
        return await stub.ExecutionState(asked, metadata=EVIL, timeout=HANGS)

    with scene.undisturbed("10,000 open invocations"):
        assert await spread(scene.target, 10_000, ask) == {"OK": 10_000}
        left = await spread(scene.target, 2000, look)
    # One that is kept has no action yet, which is another error.
    assert set(left) == {"INVOCATION_NOT_FOUND", "OUT_OF_ORDER"}
    assert left["OUT_OF_ORDER"] <= MAX_INVOCATIONS // 5 + 1


async def test_wrong_and_expired_tokens(scene: Scene) -> None:
    """Tokens that do not count are refused, each time, and cost nobody else anything."""
    signer, other = ec_signer("hostile"), ec_signer("other")
    expired = [signer.token(f"user{number}", exp=1) for number in range(20)]
    forged = [other.token(f"user{number}", header={"kid": "hostile"}) for number in range(20)]
    wrong = [f"wrong-token-{number:020}" for number in range(20)]
    tokens = [*expired, *forged, *wrong, "x" * 9000, "a.b.c"]

    async def ask(channel: grpc.aio.Channel, number: int) -> Any:
        stub: Any = planner_pb2_grpc.PlannerServiceStub(channel)
        metadata = bearer(tokens[number % len(tokens)]) if number % 7 else ()
        return await stub.ListPlanners(planner_pb2.ListPlannersRequest(), metadata=metadata, timeout=HANGS)

    with scene.undisturbed("3,000 wrong and expired tokens"):
        outcomes = await spread(scene.target, 3000, ask)
    # A header of 9,000 bytes may already be too long for gRPC.
    assert outcomes["UNAUTHENTICATED"] > 2900
    assert set(outcomes) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}


@pytest.mark.parametrize("size", [20_000, 1_000_000])
async def test_large_metadata(scene: Scene, size: int) -> None:
    """Metadata beyond gRPC's limit is refused before the server looks at the call."""
    with scene.undisturbed(f"metadata of {size} bytes"):
        outcomes: Counter[str] = Counter()
        async with grpc.aio.insecure_channel(scene.target, UNLIMITED) as channel:
            stub: Any = planner_pb2_grpc.PlannerServiceStub(channel)
            for number in range(8):
                metadata = (*EVIL, ("x-bomb", "x" * size), ("x-n", str(number)))
                call = stub.ListPlanners(planner_pb2.ListPlannersRequest(), metadata=metadata, timeout=10)
                outcomes[await outcome(call)] += 1
    assert "OK" not in outcomes
    assert "INTERNAL" not in outcomes


async def test_calls_that_are_cancelled_at_once(scene: Scene) -> None:
    """Calls that their client cancels leave nothing behind."""
    with scene.undisturbed("3,000 cancelled calls"):
        async with open_channel(scene.target) as channel:
            stub: Any = planner_pb2_grpc.PlannerServiceStub(channel)
            started = time.monotonic()
            for number in range(3000):
                call = stub.Init(system(f"cancelled{number}"), metadata=EVIL)
                await asyncio.sleep(0)
                call.cancel()
            assert time.monotonic() - started < HANGS
            assert await outcome(stub.ListPlanners(planner_pb2.ListPlannersRequest(), metadata=EVIL)) == "OK"
