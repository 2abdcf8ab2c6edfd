"""A step happens once or not at all, over the wire: whatever ends a call before the commit, its repetition works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio
import pytest

from plannerd.app import build
from plannerd.settings import load
from plannerd.transport.server import Server
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc, step_pb2, value_pb2
from tests.support.builders import agent, output, scheduler, scope_update
from tests.support.errors import seen
from tests.support.models import GatedModel, answering, until
from tests.support.services import captured_log

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
ASK = planner_pb2.ExecutionStateRequest(invocation_id="i")


@dataclass(slots=True)
class Running:
    """A server whose decision model waits until it is let go, and an invocation that runs its first agent."""

    server: Server
    stub: planner_pb2_grpc.PlannerServiceAsyncStub
    model: GatedModel
    before: step_pb2.Step

    @property
    def report(self) -> planner_pb2.NextActionRequest:
        """What the invocation reports next."""
        facts = value_pb2.Value(map_value=value_pb2.MapValue(entries={name: text(name) for name in "abc"}))
        return planner_pb2.NextActionRequest(
            invocation_id="i", base=self.before.position, results=[output(self.before.calls[0].id, facts)]
        )

    async def where(self) -> step_pb2.Step:
        """Where the invocation is."""
        return (await self.stub.ExecutionState(ASK)).step


def text(value: str) -> value_pb2.Value:
    return value_pb2.Value(string_value=value)


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch, *answers: object, **server: object) -> AsyncIterator[Running]:
    """As above; the model gives these answers after its first one."""
    model = GatedModel(answering({"lookup": 3}, *answers, expert=3))  # type: ignore[arg-type]
    model.gate.set()
    monkeypatch.setattr("plannerd.app.build_model", lambda path, chosen: model)
    settings = load(overrides={"server": {"port": 0, **server}})
    app = build(settings)
    try:
        with captured_log():
            async with (
                Server(settings.server, app.services) as here,
                grpc.aio.insecure_channel(here.targets[0]) as channel,
            ):
                stub: planner_pb2_grpc.PlannerServiceAsyncStub = planner_pb2_grpc.PlannerServiceStub(channel)
                init = planner_pb2.InitRequest(invocation_id="i")
                init.MergeFrom(SYSTEM)
                first = planner_pb2.FirstActionRequest(
                    invocation_id="i", base=(await stub.Init(init)).position, scope=scope_update({"ticket": "t1"})
                )
                yield Running(here, stub, model, (await stub.FirstAction(first)).step)
    finally:
        await app.close()


async def goes_on(it: Running, decisions: int = 2) -> None:
    """The invocation is where it was, and the same request works now, and is repeated byte for byte after that."""
    it.model.gate.set()
    assert await it.where() == it.before
    raw = it.stub.NextAction
    reply = await raw(it.report)
    assert reply.step.position.revision == it.before.position.revision + 1
    assert [call.agent_id for call in reply.step.calls] == ["expert$1"]
    assert (await raw(it.report)).SerializeToString() == reply.SerializeToString()
    assert len(it.model.asked) == decisions


async def under_way(
    it: Running, timeout: float | None = None
) -> grpc.aio.UnaryUnaryCall[planner_pb2.NextActionRequest, planner_pb2.NextActionResponse]:
    """A report whose decision is being made."""
    it.model.gate.clear()
    it.model.entered.clear()
    call = it.stub.NextAction(it.report, timeout=timeout)
    await it.model.entered.wait()
    return call


async def test_a_model_that_fails_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the model is down the client is told so, and when to come back; the invocation is as it was."""
    down = {"error": "DECISION_MODEL_UNAVAILABLE", "message": "down", "retry_after": 2.0}
    async with running(monkeypatch, down) as it:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.NextAction(it.report)
        answer = seen(caught.value)
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DECISION_MODEL_UNAVAILABLE")
        assert answer.retry_after == 2.0
        await goes_on(it, decisions=3)


async def test_a_cancelled_step_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that cancels while the model thinks finds its invocation as it was, and the model is not kept busy."""
    async with running(monkeypatch) as it:
        call = await under_way(it)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not it.model.waiting)
        await goes_on(it)


async def test_a_step_whose_deadline_passes_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that passes while the model thinks leaves the invocation as it was."""
    async with running(monkeypatch) as it:
        call = await under_way(it, timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: not it.model.waiting)
        await goes_on(it)


async def test_a_reply_that_is_too_large_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose reply the client does not take did not happen; with a larger limit the same request works."""
    async with running(monkeypatch) as it:
        init = planner_pb2.InitRequest(
            invocation_id="i", state=it.before.state, max_reply_bytes=it.before.state.ByteSize()
        )
        init.MergeFrom(SYSTEM)
        await it.stub.Init(init)
        attach = planner_pb2.FirstActionRequest(
            invocation_id="i", base=it.before.position, scope=scope_update({"ticket": "t1"})
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await it.stub.FirstAction(attach)
        assert seen(caught.value).reason == "REPLY_TOO_LARGE"
        init.max_reply_bytes = 0
        await it.stub.Init(init)
        step = (await it.stub.FirstAction(attach)).step
        assert (step.position, step.calls) == (it.before.position, it.before.calls)
        reply = await it.stub.NextAction(it.report)
        assert [call.agent_id for call in reply.step.calls] == ["expert$1"]


async def test_a_step_cut_by_the_shutdown_can_be_made_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stops while the model thinks says DRAINING; another one goes on from the state of the client."""
    async with running(monkeypatch, grace_period_seconds=0.1) as it:
        call = await under_way(it)
        stopping = asyncio.ensure_future(it.server.stop())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        answer = seen(caught.value)
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        await stopping
        assert it.model.waiting == 0
        assert len(it.model.asked) == 1
    async with running(monkeypatch) as other:
        init = planner_pb2.InitRequest(invocation_id="i", state=it.before.state, take_over=True)
        init.MergeFrom(SYSTEM)
        base = (await other.stub.Init(init)).position
        attach = planner_pb2.FirstActionRequest(invocation_id="i", base=base, scope=scope_update({"ticket": "t1"}))
        other.before = (await other.stub.FirstAction(attach)).step
        assert other.before.calls == it.before.calls
        reply = await other.stub.NextAction(other.report)
        assert [call.agent_id for call in reply.step.calls] == ["expert$1"]


async def test_a_repetition_may_order_its_maps_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same request with the keys of its maps in another order on the wire is answered by the stored bytes."""
    async with running(monkeypatch) as it:
        raw = it.stub.NextAction
        reply = await raw(it.report)
        parts = [
            value_pb2.MapValue(entries={name: text(name)}).SerializeToString() for name in ("c", "a", "b")
        ]  # a map on the wire is its entries one after the other
        turned = it.report
        turned.results[0].output.value.map_value.ParseFromString(b"".join(parts))
        assert turned == it.report
        again = await raw(turned)
        assert again.SerializeToString() == reply.SerializeToString()
        assert len(it.model.asked) == 2
