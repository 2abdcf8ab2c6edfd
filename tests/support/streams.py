"""Small services behind streams, and a client of the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc.aio

from plannerd.errors import PlannerdError
from plannerd.services.codec.run import encode_error
from plannerd.services.context import CallContext
from plannerd.services.failures import failure_of
from plannerd.services.run import Answer
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.services import Serving

Work: TypeAlias = Callable[[Any], Awaitable[planner_pb2.RunResponse | bytes]]


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation that answers by a function, and refuses with the id alone or with an error."""

    work: Work
    last: Callable[[Any], bool] = lambda request: False

    async def answer(self, request: Any) -> Answer:
        reply = await self.work(request)
        raw = reply if isinstance(reply, bytes) else reply.SerializeToString()
        return Answer(raw, "Talk", "", self.last(request))

    def refuse(self, request: Any, error: PlannerdError | None = None) -> Answer:
        if error is not None:
            return Answer(encode_error(request.id, failure_of(error, None)), "Talk", "")
        refused = planner_pb2.RunResponse(id=request.id, error=planner_pb2.RunError(message="refused"))
        return Answer(refused.SerializeToString(), "Talk", "")


def talking(work: Work, last: Callable[[Any], bool] = lambda request: False) -> Callable[[CallContext], Talk]:
    """An implementation of Run whose requests are answered by `work`."""
    return lambda call: Talk(work, last)


async def echo(request: Any) -> planner_pb2.RunResponse:
    """The id of the request."""
    return planner_pb2.RunResponse(id=request.id)


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something holds, which it must within a time that only a hanging test ever needs."""
    for _ in range(round(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come about")


class RunClient:
    """A stream Run: requests get ids in turn, and what is inside an answer comes back."""

    def __init__(self, running: Serving, timeout: float | None = None, metadata: Any = ()) -> None:
        self.call = running.planner.Run(timeout=timeout, metadata=metadata)
        self.ids = 0

    async def send(self, request: planner_pb2.RunRequest) -> int:
        """Send a request, with the next id; that id."""
        self.ids += 1
        request.id = self.ids
        await self.call.write(request)
        return self.ids

    async def receive(self) -> planner_pb2.RunResponse:
        """The next answer; it must be one."""
        response = await self.call.read()
        assert isinstance(response, planner_pb2.RunResponse), "the stream ended"
        return response

    async def ask(self, **request: Any) -> planner_pb2.RunResponse:
        """Send a request and get the answer with its id."""
        sent = await self.send(planner_pb2.RunRequest(**request))
        response = await self.receive()
        assert response.id == sent
        return response

    async def ended(self) -> grpc.StatusCode:
        """The status of the stream, which must have nothing more to say."""
        assert await self.call.read() is grpc.aio.EOF
        return await self.call.code()
