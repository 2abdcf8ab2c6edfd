"""Streams: what a service sees of requests, and a client of errors."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.errors import seen
from tests.support.services import service, serving


async def echo(requests: AsyncIterator[Any], call: CallContext) -> AsyncIterator[planner_pb2.RunResponse]:
    async for request in requests:
        yield planner_pb2.RunResponse(id=request.id)


async def test_requests_and_replies_alternate() -> None:
    """Each request of a stream is seen before the next one is sent, and half-closing ends it with OK."""
    async with serving(service(Run=echo)) as running:
        stream = running.planner.Run()
        for number in range(1, 4):
            await stream.write(planner_pb2.RunRequest(id=number))
            assert await stream.read() == planner_pb2.RunResponse(id=number)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
    [line] = running.events("call")
    assert (line["method"], line["code"]) == ("/planner.v1.PlannerService/Run", "OK")


async def test_bytes_in_a_stream_are_sent_as_they_are() -> None:
    """Replies of a stream may be bytes, and are repeated byte for byte."""
    stored = planner_pb2.RunResponse(id=1).SerializeToString() * 2

    async def run(requests: AsyncIterator[Any], call: CallContext) -> AsyncIterator[bytes]:
        yield stored

    async with serving(service(Run=run)) as running:
        stream = running.channel.stream_stream("/planner.v1.PlannerService/Run", bytes, bytes)()
        assert await stream.read() == stored


async def test_an_error_ends_the_stream_after_its_replies() -> None:
    """Replies that were sent before an error arrive, then its status."""

    async def run(requests: AsyncIterator[Any], call: CallContext) -> AsyncIterator[planner_pb2.RunResponse]:
        yield planner_pb2.RunResponse(id=1)
        raise PlannerdError(Reason.SWITCHED_OFF, "streams are switched off")

    async with serving(service(Run=run)) as running:
        stream = running.planner.Run()
        assert await stream.read() == planner_pb2.RunResponse(id=1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    answer = seen(caught.value)
    assert (answer.code, answer.reason) == (grpc.StatusCode.UNIMPLEMENTED, "SWITCHED_OFF")


async def test_a_stream_may_be_refused_before_it_starts() -> None:
    """A service may raise at once instead of giving an iterator."""

    def run(requests: AsyncIterator[Any], call: CallContext) -> AsyncIterator[bytes]:
        raise PlannerdError(Reason.NOT_IMPLEMENTED, "not yet")

    async with serving(service(Run=run)) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.planner.Run().read()
    assert seen(caught.value).reason == "NOT_IMPLEMENTED"


async def test_plain_iterators_will_do() -> None:
    """What a service gives need not be a generator."""

    class Numbers:
        def __init__(self) -> None:
            self.left = [2, 1]

        def __aiter__(self) -> "Numbers":
            return self

        async def __anext__(self) -> planner_pb2.RunResponse:
            if not self.left:
                raise StopAsyncIteration
            return planner_pb2.RunResponse(id=self.left.pop())

    async with serving(service(Run=lambda requests, call: Numbers())) as running:
        replies = [reply.id async for reply in running.planner.Run()]
    assert replies == [1, 2]
