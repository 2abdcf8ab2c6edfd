"""How a server stops: what is under way, what arrives late, and who watches."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.errors import SeenError, seen
from tests.support.services import Serving, service, serving
from tests.support.streams import RunClient, echo, talking

HANGS = 30.0
FOR_EVER = 10_000.0

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Held:
    """An Init that is held until it is released."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.release = asyncio.Event()

    async def init(self, request: object, call: CallContext) -> planner_pb2.InitResponse:
        self.began.set()
        await self.release.wait()
        return planner_pb2.InitResponse(model="held")


async def end(request: object, call: CallContext) -> planner_pb2.EndResponse:
    return planner_pb2.EndResponse()


async def error_of(call: Awaitable[Any]) -> SeenError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return seen(caught.value)


async def refused(running: Serving) -> SeenError:
    """Call End until it is refused."""
    async with asyncio.timeout(HANGS):
        while True:
            try:
                await running.planner.End(planner_pb2.EndRequest(), timeout=HANGS)
            except grpc.aio.AioRpcError as error:
                return seen(error)


def health(running: Serving) -> Any:
    return health_pb2_grpc.HealthStub(running.channel)


async def test_calls_under_way_end_and_new_ones_are_refused() -> None:
    """While calls under way are finished, new ones get DRAINING and health says NOT_SERVING."""
    held = Held()
    async with serving(service(Init=held.init, End=end), grace_period_seconds=FOR_EVER) as running:
        under_way = asyncio.ensure_future(running.planner.Init(planner_pb2.InitRequest()))
        await held.began.wait()
        stopping = asyncio.ensure_future(running.server.stop())
        answer = await refused(running)
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        for name in ("", "planner.v1.PlannerService"):
            assert (await health(running).Check(health_pb2.HealthCheckRequest(service=name))).status == NOT_SERVING
        assert not stopping.done()
        held.release.set()
        assert (await under_way).model == "held"
        await stopping
    assert [event["calls_cut"] for event in running.events("stopped")] == [0]


async def test_what_exceeds_the_grace_period_is_cut() -> None:
    """A call that is not finished within the grace period gets DRAINING, and its handler is cancelled."""
    held = Held()
    async with serving(service(Init=held.init), grace_period_seconds=0.05) as running:
        under_way = asyncio.ensure_future(running.planner.Init(planner_pb2.InitRequest()))
        await held.began.wait()
        await running.server.stop()
        answer = await error_of(under_way)
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert [event["calls_cut"] for event in running.events("stopped")] == [1]
    [line] = running.events("call")
    assert (line["code"], line["reason"]) == ("UNAVAILABLE", "DRAINING")
    assert not running.events("unexpected_error")


async def test_hurry_ends_all_waiting() -> None:
    """Once somebody hurries, neither the delay nor the grace period is waited for."""
    held = Held()
    async with serving(service(Init=held.init), grace_period_seconds=FOR_EVER, drain_delay_seconds=FOR_EVER) as running:
        under_way = asyncio.ensure_future(running.planner.Init(planner_pb2.InitRequest()))
        await held.began.wait()
        hurry = asyncio.Event()
        stopping = asyncio.ensure_future(running.server.stop(hurry))
        hurry.set()
        async with asyncio.timeout(HANGS):
            assert (await error_of(under_way)).reason == "DRAINING"
            await stopping


async def test_the_drain_delay_still_serves() -> None:
    """During the delay health says NOT_SERVING while requests are served as before."""
    async with serving(service(End=end), drain_delay_seconds=FOR_EVER) as running:
        watch = health(running).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        hurry = asyncio.Event()
        stopping = asyncio.ensure_future(running.server.stop(hurry))
        assert (await watch.read()).status == NOT_SERVING
        await running.planner.End(planner_pb2.EndRequest(), timeout=HANGS)
        hurry.set()
        await stopping


async def test_watches_of_health_do_not_hold_up_the_end() -> None:
    """A client that watches health sees NOT_SERVING and then the end of its watch."""
    async with serving(service(End=end), grace_period_seconds=FOR_EVER) as running:
        watch = health(running).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        await running.server.stop()
        assert (await watch.read()).status == NOT_SERVING
        answer = await error_of(watch.read())
        assert (answer.code, answer.text) == (grpc.StatusCode.UNAVAILABLE, "the server has shut down")


async def test_idle_streams_are_told_to_go() -> None:
    """A stream that waits for its client's next request ends with DRAINING as soon as the server drains."""
    async with serving(service(Run=talking(echo)), grace_period_seconds=FOR_EVER) as running:
        stream = RunClient(running)
        await stream.ask()
        async with asyncio.timeout(HANGS):
            await running.server.stop()
        answer = await error_of(stream.receive())
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert [event["calls_cut"] for event in running.events("stopped")] == [0]


@pytest.mark.parametrize("behind", [False, True])
async def test_busy_streams_answer_first(behind: bool) -> None:
    """A stream whose request is under way gets its answer, and DRAINING after it, also if it is being read on."""
    held = Held()

    async def work(request: Any) -> planner_pb2.RunResponse:
        await held.init(request, CallContext())
        return planner_pb2.RunResponse(id=request.id)

    async with serving(service(Run=talking(work), End=end), grace_period_seconds=FOR_EVER) as running:
        stream = RunClient(running)
        await stream.send(planner_pb2.RunRequest())
        await held.began.wait()
        if behind:
            await stream.ask()
        stopping = asyncio.ensure_future(running.server.stop())
        assert (await refused(running)).reason == "DRAINING"
        held.release.set()
        assert await stream.receive() == planner_pb2.RunResponse(id=1)
        assert (await error_of(stream.receive())).reason == "DRAINING"
        await stopping


async def test_streams_that_exceed_the_grace_period_are_cut() -> None:
    """Whatever a stream does, also if its client reads nothing, the server stops within the grace period."""
    held = Held()
    large = planner_pb2.RunResponse(error=planner_pb2.RunError(message="x" * 1_000_000)).SerializeToString()

    async def work(request: Any) -> bytes:
        if request.id == 1:
            return large
        await held.init(request, CallContext())
        return b""

    async with serving(service(Run=talking(work)), grace_period_seconds=0.1) as running, asyncio.timeout(HANGS):
        deaf, busy = RunClient(running), RunClient(running)
        busy.ids = 1
        await busy.send(planner_pb2.RunRequest())
        await held.began.wait()
        for _ in range(50):
            deaf.ids = 0
            await deaf.send(planner_pb2.RunRequest())
        await running.server.stop()
        assert (await error_of(busy.receive())).reason == "DRAINING"
    assert len(running.events("stopped")) == 1


async def test_a_server_that_never_started_can_be_stopped() -> None:
    """Stopping what does not run does nothing."""
    async with serving(service()) as running:
        await running.server.stop()
        await running.server.stop()
