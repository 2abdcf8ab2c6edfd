"""Streams: how requests are read and answers written, whatever the service."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd.services.run import Answer
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.errors import seen
from tests.support.services import service, serving
from tests.support.streams import RunClient, Talk, echo, talking, until

HANGS = 30.0


class Held:
    """Answers requests of an even id when it is released, others at once."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.release = asyncio.Event()

    async def work(self, request: Any) -> planner_pb2.RunResponse:
        if request.id % 2 == 0:
            self.began.set()
            await self.release.wait()
        return planner_pb2.RunResponse(id=request.id)


async def test_requests_and_answers_alternate() -> None:
    """Each request of a stream is answered before the next one is sent, and half-closing ends it with OK."""
    async with serving(service(Run=talking(echo))) as running:
        stream = RunClient(running)
        for number in range(1, 4):
            assert await stream.ask() == planner_pb2.RunResponse(id=number)
        await stream.call.done_writing()
        assert await stream.ended() is grpc.StatusCode.OK
    assert [line["method"] for line in running.events("call")] == ["/planner.v1.PlannerService/Talk"] * 3
    assert {line["stream"] for line in running.events("call")} == {True}


async def test_the_end_of_a_stream_is_logged_for_developers() -> None:
    """That a stream ended as it should is a line of level debug, with the number of its requests."""
    async with serving(service(Run=talking(echo)), log_level="debug") as running:
        stream = RunClient(running)
        await stream.ask()
        await stream.call.done_writing()
        assert await stream.ended() is grpc.StatusCode.OK
    [line] = running.events("stream_ended")
    assert (line["method"], line["code"], line["requests"]) == ("/planner.v1.PlannerService/Run", "OK", 1)


async def test_bytes_in_a_stream_are_sent_as_they_are() -> None:
    """Answers of a stream are repeated byte for byte."""
    stored = planner_pb2.RunResponse(id=1).SerializeToString() * 2

    async def work(request: Any) -> bytes:
        return stored

    async with serving(service(Run=talking(work))) as running:
        stream = running.channel.stream_stream("/planner.v1.PlannerService/Run", bytes, bytes)()
        await stream.write(b"")
        assert await stream.read() == stored


async def test_an_error_ends_the_stream_after_its_answers() -> None:
    """Answers that were sent before an error arrive, then its status."""

    async def work(request: Any) -> planner_pb2.RunResponse:
        if request.id == 2:
            raise PlannerdError(Reason.SWITCHED_OFF, "streams are switched off")
        return await echo(request)

    async with serving(service(Run=talking(work))) as running:
        stream = RunClient(running)
        assert await stream.ask() == planner_pb2.RunResponse(id=1)
        await stream.send(planner_pb2.RunRequest())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.receive()
    answer = seen(caught.value)
    assert (answer.code, answer.reason) == (grpc.StatusCode.UNIMPLEMENTED, "SWITCHED_OFF")


async def test_a_stream_may_be_refused_before_it_starts() -> None:
    """A service may raise at once instead of giving a conversation."""

    def run(call: CallContext) -> Any:
        raise PlannerdError(Reason.NOT_IMPLEMENTED, "not yet")

    async with serving(service(Run=run)) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RunClient(running).receive()
    assert seen(caught.value).reason == "NOT_IMPLEMENTED"


async def test_the_last_answer_ends_the_stream() -> None:
    """After an answer that is the last one the server ends the stream, with OK."""
    async with serving(service(Run=talking(echo, last=lambda request: request.id == 2))) as running:
        stream = RunClient(running)
        await stream.ask()
        await stream.ask()
        assert await stream.ended() is grpc.StatusCode.OK


async def test_a_request_behind_one_in_work_is_refused_at_once() -> None:
    """While a request waits, others of its stream are refused, each with its own id; then it is answered."""
    held = Held()
    async with serving(service(Run=talking(held.work))) as running, asyncio.timeout(HANGS):
        stream = RunClient(running)
        await stream.ask()
        await stream.send(planner_pb2.RunRequest())
        await held.began.wait()
        for number in range(3, 9):
            assert await stream.ask() == planner_pb2.RunResponse(
                id=number, error=planner_pb2.RunError(message="refused")
            )
        held.release.set()
        assert await stream.receive() == planner_pb2.RunResponse(id=2)
        assert await stream.ask() == planner_pb2.RunResponse(id=9)


async def test_a_client_that_sends_and_never_reads_holds_up_itself_alone() -> None:
    """What it sends waits on its side of the connection: the server keeps none of it, and serves others."""
    held = Held()
    refused: list[int] = []

    class Verbose(Talk):
        def refuse(self, request: Any, error: PlannerdError | None = None) -> Answer:
            refused.append(request.id)
            long = planner_pb2.RunError(message="x" * 100_000)
            return Answer(planner_pb2.RunResponse(error=long).SerializeToString(), "Talk", "")

    async with serving(service(Run=lambda call: Verbose(held.work))) as running, asyncio.timeout(HANGS):
        greedy, other = RunClient(running), RunClient(running)
        await greedy.ask()
        await greedy.send(planner_pb2.RunRequest())
        await held.began.wait()
        for _ in range(500):
            await greedy.send(planner_pb2.RunRequest())
        for _ in range(20):
            other.ids = 0
            await other.ask()
            await asyncio.sleep(0.01)
        assert 0 < len(refused) < 400
        greedy.call.cancel()
        await until(lambda: running.server.calls == 1)


@pytest.mark.parametrize("behind", [False, True])
async def test_half_closing_while_a_request_is_in_work(behind: bool) -> None:
    """It is answered, and then the stream ends with OK."""
    held = Held()
    async with serving(service(Run=talking(held.work))) as running, asyncio.timeout(HANGS):
        stream = RunClient(running)
        await stream.ask()
        await stream.send(planner_pb2.RunRequest())
        await held.began.wait()
        if behind:
            await stream.ask()
        await stream.call.done_writing()
        await asyncio.sleep(0.05)
        held.release.set()
        assert await stream.receive() == planner_pb2.RunResponse(id=2)
        assert await stream.ended() is grpc.StatusCode.OK


@pytest.mark.parametrize("in_work", [False, True])
async def test_bytes_that_are_no_request_end_the_stream(in_work: bool) -> None:
    """They have no id that could be answered; what is in work is answered before."""
    held = Held()
    async with serving(service(Run=talking(held.work))) as running, asyncio.timeout(HANGS):
        stream = running.channel.stream_stream("/planner.v1.PlannerService/Run", bytes, bytes)()
        await stream.write(planner_pb2.RunRequest(id=2).SerializeToString())
        await held.began.wait()
        if not in_work:
            held.release.set()
            await stream.read()
        await stream.write(b"\xff\xff\xff")
        if in_work:
            await asyncio.sleep(0.05)
            held.release.set()
            assert await stream.read() == planner_pb2.RunResponse(id=2).SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    answer = seen(caught.value)
    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")


@pytest.mark.parametrize(("size", "reason"), [(1024, None), (2048, "LIMIT_EXCEEDED"), (9000, "")])
async def test_requests_are_bounded(size: int, reason: str | None) -> None:
    """One of the largest size passes with what a stream puts around it; a larger one ends the stream, far larger ones
    before they are read; other streams go on."""
    async with serving(service(Run=talking(echo)), max_request_bytes=1024) as running, asyncio.timeout(HANGS):
        other, stream = RunClient(running), RunClient(running)
        await other.ask()
        request = planner_pb2.RunRequest(next_action=planner_pb2.NextActionRequest(invocation_id="x" * (size - 4)))
        if reason is None:
            await stream.send(request)
            await stream.receive()
        else:
            await stream.send(request)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.receive()
            answer = seen(caught.value)
            assert (answer.code, answer.reason or "") == (grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        await other.ask()


async def test_a_stream_that_idles_is_ended() -> None:
    """With OK, and not before its time; requests and work count as life."""
    held = Held()
    async with serving(service(Run=talking(held.work)), stream_idle_seconds=0.5) as running, asyncio.timeout(HANGS):
        loop = asyncio.get_running_loop()
        silent, lively, busy = RunClient(running), RunClient(running), RunClient(running)
        busy.ids = 1
        await busy.send(planner_pb2.RunRequest())
        for _ in range(10):
            lively.ids = 0  # odd ids are answered at once
            await lively.ask()
            await asyncio.sleep(0.1)
        assert silent.call.done()
        assert await silent.ended() is grpc.StatusCode.OK
        held.release.set()
        assert (await busy.receive()).id == 2
        lively.ids = 0
        await lively.ask()
        last = loop.time()
        assert await lively.ended() is grpc.StatusCode.OK
        assert loop.time() - last >= 0.4
        assert await busy.ended() is grpc.StatusCode.OK


async def test_an_idle_stream_can_be_followed_by_another() -> None:
    """The end of an idle stream takes nothing away: the next request goes over a new one."""
    async with serving(service(Run=talking(echo)), stream_idle_seconds=0.1) as running:
        for _ in range(3):
            stream = RunClient(running)
            await stream.ask()
            assert await stream.ended() is grpc.StatusCode.OK


async def test_the_number_of_streams_is_bounded() -> None:
    """One too many is refused with the limit's name, and there is room again when another has ended."""
    async with serving(service(Run=talking(echo)), max_streams=2) as running, asyncio.timeout(HANGS):
        first, second = RunClient(running), RunClient(running)
        await first.ask()
        await second.ask()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await RunClient(running).receive()
        answer = seen(caught.value)
        assert (answer.reason, answer.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_streams")
        first.call.cancel()
        while True:
            third = RunClient(running)
            try:
                await third.ask()
                break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)
        await second.ask()


async def test_calls_of_a_connection_are_bounded() -> None:
    """What is beyond the calls that one connection may have waits at its client until another has ended."""
    async with serving(service(Run=talking(echo)), max_connection_calls=2) as running, asyncio.timeout(HANGS):
        first, second = RunClient(running), RunClient(running)
        await first.ask()
        await second.ask()
        third = RunClient(running)
        waiting = asyncio.ensure_future(third.ask())
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await first.call.done_writing()
        assert (await waiting).id == 1


async def test_thousands_of_idle_streams_leave_room_for_others() -> None:
    """While 2000 streams idle, requests of another are answered, and draining ends them all at once."""
    async with serving(service(Run=talking(echo)), grace_period_seconds=10_000.0) as running, asyncio.timeout(60):
        idle: list[RunClient] = []
        for _ in range(20):  # gRPC itself refuses more than some hundreds that arrive at the same moment
            more = [RunClient(running) for _ in range(100)]
            await asyncio.gather(*(stream.ask() for stream in more))
            idle += more
        lively = RunClient(running)
        for _ in range(100):
            await lively.ask()
        await running.server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await idle[0].receive()
        assert seen(caught.value).reason == "DRAINING"
    assert not [line for line in running.events("call") if line["level"] != "info"]


async def test_cancelled_streams_leave_nothing_behind() -> None:
    """Streams that are cancelled while they idle, work, or work with another request behind leave no task."""
    held = Held()
    async with serving(service(Run=talking(held.work))) as running, asyncio.timeout(60):
        probe = RunClient(running)
        await probe.ask()
        before = len(asyncio.all_tasks())
        for _ in range(5):
            streams = [RunClient(running) for _ in range(30)]
            await asyncio.gather(*(stream.ask() for stream in streams))
            for stream in streams[10:]:
                await stream.send(planner_pb2.RunRequest())
            await held.began.wait()
            await asyncio.gather(*(stream.ask() for stream in streams[20:]))
            for stream in streams:
                stream.call.cancel()
            await asyncio.gather(*(stream.call.code() for stream in streams))
            del streams, stream
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert running.server.calls == 1
    assert not running.events("unexpected_error")
