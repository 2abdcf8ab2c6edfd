"""Cancellation: of the call by its client or deadline, and of a handler by anything else."""

import asyncio
import logging
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.errors import seen
from tests.support.services import service, serving
from tests.support.streams import RunClient, talking, until

HANGS = 30.0


class Waiting:
    """An Init that waits for ever, and says when it begins and how it ends."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def init(self, request: object, call: CallContext) -> bytes:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            self.ended.set_result(type(error).__name__)
            raise
        return b""


async def test_a_cancelled_call_cancels_its_handler() -> None:
    """A call that its client cancels is cancelled in the service, and counts as no error of the server."""
    waiting = Waiting()
    async with serving(service(Init=waiting.init)) as running:
        call = running.planner.Init(planner_pb2.InitRequest())
        await waiting.began.wait()
        call.cancel()
        assert await waiting.ended == "CancelledError"
    [line] = running.events("call")
    assert (line["code"], line["reason"], line["level"]) == ("CANCELLED", "CANCELLED", "info")
    assert not running.events("unexpected_error")


async def test_the_deadline_cancels_the_handler() -> None:
    """A call whose deadline passes is cancelled in the service, and its client sees DEADLINE_EXCEEDED."""
    waiting = Waiting()
    async with serving(service(Init=waiting.init)) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.planner.Init(planner_pb2.InitRequest(), timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await waiting.ended == "CancelledError"
    [line] = running.events("call")
    assert (line["code"], line["reason"], line["level"]) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "warning")
    assert not running.events("unexpected_error")


async def cancelled_future(request: object, call: CallContext) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


async def cancelled_task(request: object, call: CallContext) -> bytes:
    task = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task
    return b""


async def cancelled_self(request: object, call: CallContext) -> bytes:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()
    return b""


async def raised(request: object, call: CallContext) -> bytes:
    raise asyncio.CancelledError("tangerine")


@pytest.mark.parametrize("init", [cancelled_future, cancelled_task, cancelled_self, raised])
@pytest.mark.parametrize("timeout", [None, HANGS])
async def test_other_cancellations_are_answered(init: Any, timeout: float | None) -> None:
    """A CancelledError that does not come from the call is a bug: its client gets INTERNAL, not silence."""
    async with serving(service(Init=init)) as running, asyncio.timeout(HANGS):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.planner.Init(planner_pb2.InitRequest(), timeout=timeout)
    answer = seen(caught.value)
    assert (answer.code, answer.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    [logged] = running.events("unexpected_error")
    assert "CancelledError" in logged["exception"]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_cancelled_stream_ends_its_service(busy: bool) -> None:
    """A stream that its client cancels ends on the server, while it waits for a request or works."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def work(request: Any) -> planner_pb2.RunResponse:
        if request.id == 2:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return planner_pb2.RunResponse(id=request.id)

    async with serving(service(Run=talking(work)), log_level="debug") as running, asyncio.timeout(HANGS):
        stream = RunClient(running)
        await stream.ask()
        if busy:
            await stream.send(planner_pb2.RunRequest())
            await began.wait()
        stream.call.cancel()
        if busy:
            await ended.wait()
        await until(lambda: running.server.calls == 0)
    lines = [line for line in running.all_events() if line.get("method") == "/planner.v1.PlannerService/Run"]
    # To who waits for a request, grpc may show the cancellation as the end of the requests.
    expected = [("call", "CANCELLED")] if busy else [("stream_ended", "CANCELLED"), ("stream_ended", "OK")]
    assert len(lines) == 1
    assert (lines[0]["event"], lines[0]["code"]) in expected


async def test_a_bug_behind_a_cancelled_call_is_logged() -> None:
    """An unexpected error is logged even if its client went away before it could be answered."""
    began = asyncio.Event()

    async def init(request: object, call: CallContext) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError

    async with serving(service(Init=init)) as running:
        call = running.planner.Init(planner_pb2.InitRequest())
        await began.wait()
        call.cancel()
    [line] = running.events("call")
    [logged] = running.events("unexpected_error")
    assert line["correlation_id"] == logged["correlation_id"]
    assert not [event for event in running.all_events() if event.get("logger")]


async def test_of_what_grpc_complains_of_clients_that_left_are_left_out() -> None:
    """That a reply could not be sent to a client that left is kept out of the log; grpc's other errors are in it."""
    async with serving(service()) as running:
        for error in (cygrpc.ExecuteBatchError("gone"), RuntimeError("bug")):
            try:
                raise error
            except Exception:
                logging.getLogger("grpc._cython.cygrpc").exception("raised in core")
    assert [event["exception"].rpartition("\n")[2] for event in running.events("raised in core")] == ["RuntimeError"]


async def test_nobody_is_sent_an_answer_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose client left is not answered: each attempt would leave memory behind in grpc."""
    sent: list[str] = []
    monkeypatch.setattr("plannerd.transport.gate.status_of", lambda failure: sent.append(failure.reason))
    waiting = Waiting()
    async with serving(service(Init=waiting.init)) as running:
        call = running.planner.Init(planner_pb2.InitRequest())
        await waiting.began.wait()
        call.cancel()
        assert await waiting.ended == "CancelledError"
    assert sent == []
    [line] = running.events("call")
    assert line["code"] == "CANCELLED"


async def test_an_error_after_its_client_left_makes_no_noise() -> None:
    """A service that turns the cancellation into an error of its own is cancelled all the same, without noise."""
    began = asyncio.Event()

    async def init(request: object, call: CallContext) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise PlannerdError(Reason.STORE_UNAVAILABLE, "gone") from None
        return b""

    async with serving(service(Init=init)) as running:
        call = running.planner.Init(planner_pb2.InitRequest())
        await began.wait()
        call.cancel()
    [line] = running.events("call")
    assert line["reason"] == "STORE_UNAVAILABLE"
    assert {event["event"] for event in running.all_events()} == {"serving", "call", "stopping", "stopped"}
