"""The stream Run of the real service: the same messages and guarantees as by unary calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import DecisionRequest
from plannerd.errors import PlannerdError, Reason, Violation
from plannerd.services.context import CallContext
from plannerd.services.planner_service import PlannerService
from plannerd.services.run import RunConversation
from plannerd.transport.handlers import Service
from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.support.builders import agent, output, scheduler, scope_update, suspended
from tests.support.engine import Server
from tests.support.errors import seen
from tests.support.models import GatedModel, answering, settle
from tests.support.services import PLANNER_SERVICE, Serving, service, serving
from tests.support.streams import RunClient, until
from tests.support.ways import in_band

HANGS = 30.0
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def system(invocation_id: str = "i1") -> planner_pb2.InitRequest:
    """A scheduler with two agents that run one after the other."""
    request = scheduler(agent("write", "ticket", writes="draft"), agent("send", "draft", writes="sent"))
    request.invocation_id = invocation_id
    return request


def useful() -> Any:
    """A model that finds every agent useful and no goal reached."""
    return answering(write=3, send=3)


@asynccontextmanager
async def running(server: Server, **settings: Any) -> AsyncIterator[Serving]:
    """Serve the service of `server` over a real connection."""
    async with serving(Service(PLANNER_SERVICE, server.service), **settings) as served:
        yield served


def first_request(base: step_pb2.Position, **scope: Any) -> planner_pb2.FirstActionRequest:
    return planner_pb2.FirstActionRequest(
        invocation_id="i1", base=base, scope=scope_update(scope or {"ticket": "the kettle leaks"})
    )


def report(step: step_pb2.Step, *results: planner_pb2.AgentResult, **scope: Any) -> planner_pb2.NextActionRequest:
    return planner_pb2.NextActionRequest(
        invocation_id="i1", base=step.position, scope=scope_update(scope), results=results
    )


async def begun(stream: RunClient, request: planner_pb2.InitRequest | None = None) -> step_pb2.Step:
    """The first step of an invocation."""
    opened = await stream.ask(init=request or system())
    return (await stream.ask(first_action=first_request(opened.init.position))).first_action.step


# --- the same as by unary calls


async def test_an_invocation_over_one_stream() -> None:
    """Init, steps, ExecutionState and End go over one stream, each answered by its id; End is the last."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        step = await begun(stream)
        assert [call.agent_id for call in step.calls] == ["write$0"]
        step = (await stream.ask(next_action=report(step, output(step.calls[0].id, "d")))).next_action.step
        where = await stream.ask(execution_state=planner_pb2.ExecutionStateRequest(invocation_id="i1"))
        assert where.execution_state.step == step
        step = (await stream.ask(next_action=report(step, output(step.calls[0].id, "s")))).next_action.step
        assert step.action.WhichOneof("kind") == "done"
        ended = await stream.ask(end=planner_pb2.EndRequest(invocation_id="i1", base=step.position))
        assert ended.HasField("end")
        assert await stream.ended() is grpc.StatusCode.OK
    lines = [(line["method"].rpartition("/")[2], line["invocation_id"]) for line in served.events("call")]
    names = ["Init", "FirstAction", "NextAction", "ExecutionState", "NextAction", "End"]
    assert lines == [(name, "i1") for name in names]


async def test_stored_answers_are_the_same_bytes_either_way() -> None:
    """A step is answered with the same bytes by a stream, by a repetition over another one, and by a unary call."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        step = await begun(stream)
        request = report(step, output(step.calls[0].id, "d"))
        raw = served.channel.stream_stream("/planner.v1.PlannerService/Run", bytes, bytes)
        unary = served.channel.unary_unary("/planner.v1.PlannerService/NextAction", bytes, bytes)
        found: list[tuple[int, Any]] = []
        for request_id in (0, 1, -1, 300, 2**63 - 1):
            call = raw()
            await call.write(planner_pb2.RunRequest(id=request_id, next_action=request).SerializeToString())
            found.append((request_id, await call.read()))
        stored = await unary(request.SerializeToString())
    for request_id, whole in found:
        response = planner_pb2.RunResponse.FromString(whole)
        assert response.id == request_id
        assert whole.endswith(stored)
        assert response == planner_pb2.RunResponse(
            id=request_id, next_action=planner_pb2.NextActionResponse.FromString(stored)
        )


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.INTERNAL])
async def test_every_error_is_told_in_band_as_in_a_status(reason: Reason) -> None:
    """Code, reason, text, metadata, bad fields and time to wait are those of a unary call, however long they are."""
    long = "\u20ac" * 3000
    error = PlannerdError(
        reason,
        f"what is wrong: {long}",
        metadata={"id": "7", "long": long},
        violations=[Violation("agents[2].name", "must not be blank"), Violation(long, long)] * 3,
        retry_after=1.5,
    )

    async def end(request: object, call: CallContext) -> bytes:
        raise error

    def run(call: CallContext) -> RunConversation:
        return RunConversation(implementation, call, max_reply_bytes=1 << 20)

    failing = service(End=end, Run=run)
    implementation = failing.implementation
    async with serving(failing) as served:
        request = planner_pb2.EndRequest(invocation_id="i1")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.planner.End(request)
        stream = RunClient(served)
        response = await stream.ask(end=request)
        assert in_band(response.error) == seen(caught.value)
        assert in_band((await stream.ask(end=request)).error) == seen(caught.value)
    [unary, first, second] = [dict(line) for line in served.events("call")]
    for line in (unary, first, second):
        del line["timestamp"], line["duration_ms"]
    assert first == second == {**unary, "stream": True}


async def test_refusals_of_the_real_service_do_not_end_the_stream() -> None:
    """Errors of each kind come in band, as by unary calls, and the stream goes on after them."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        opened = await stream.ask(init=system())
        bad = system()
        bad.scheduler.goal_threshold = 7
        early = planner_pb2.NextActionRequest(invocation_id="i1", base=opened.init.position)
        ahead = first_request(step_pb2.Position(epoch=1, revision=3, branch="other"))
        for kind, method, request, reason in (
            ("init", served.planner.Init, bad, "INVALID_CONFIGURATION"),
            ("execution_state", served.planner.ExecutionState, early, "OUT_OF_ORDER"),
            ("next_action", served.planner.NextAction, early, "OUT_OF_ORDER"),
            ("first_action", served.planner.FirstAction, first_request(step_pb2.Position()), "INVALID_REQUEST"),
        ):
            inner: Any = request
            if kind == "execution_state":
                inner = planner_pb2.ExecutionStateRequest(invocation_id="i1")
            told = in_band((await stream.ask(**{kind: inner})).error)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(inner)
            assert (told, told.reason) == (seen(caught.value), reason)
        assert in_band((await stream.ask(first_action=ahead)).error).reason == "REPLICA_BEHIND"
        assert in_band((await stream.ask(next_action=early)).error).reason == "INVOCATION_NOT_FOUND"
        assert (await begun(stream)).action.WhichOneof("kind") == "start"


async def test_a_bug_is_answered_in_band_and_logged() -> None:
    """Its client gets a correlation id, under which the log has the cause, and the stream goes on."""

    errors = [RuntimeError("tangerine"), asyncio.CancelledError("tangerine")]

    class Broken:
        provider, limits, asked, repeatable = "fixed", answering().limits, (), True

        async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
            raise errors.pop(0)

        async def close(self) -> None: ...

    async with running(Server(Broken())) as served:
        stream = RunClient(served)
        opened = await stream.ask(init=system())
        answers = [
            in_band((await stream.ask(first_action=first_request(opened.init.position))).error) for _ in range(2)
        ]
    for answer, line in zip(answers, served.events("unexpected_error"), strict=True):
        assert (answer.code, answer.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
        assert answer.metadata["correlation_id"] == line["correlation_id"]
        assert line["method"] == "/planner.v1.PlannerService/FirstAction"
    assert "tangerine" not in served.log()


async def test_the_reply_limit_holds_in_a_stream() -> None:
    """A reply that is too large fails its request alone, as by a unary call."""
    request = scheduler(*[agent(f"agent-{number}", f"key-{number}") for number in range(200)])
    request.invocation_id = "i1"
    small = PlannerService(Server(useful()).engine, version="1", max_request_bytes=1 << 20, retained_seconds=1.0)

    def run(call: CallContext) -> RunConversation:
        return RunConversation(small, call, max_reply_bytes=1024)

    async with serving(service(Init=small.Init, Run=run), max_reply_bytes=1024) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.planner.Init(request)
        stream = RunClient(served)
        told = in_band((await stream.ask(init=request)).error)
        assert (told, told.reason) == (seen(caught.value), "LIMIT_EXCEEDED")
        assert (await stream.ask()).HasField("error")


# --- one stream, one invocation


async def test_a_stream_is_of_one_invocation() -> None:
    """A request for another one is refused by name of the field and has no effect; one without any, too."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        await begun(stream)
        for request in (
            {"init": system("i2")},
            {"end": planner_pb2.EndRequest(invocation_id="i2")},
            {"end": planner_pb2.EndRequest()},
        ):
            told = in_band((await stream.ask(**request)).error)
            assert told.reason == "INVALID_REQUEST"
            assert [field for field, _ in told.violations or ()] == ["invocation_id"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.planner.ExecutionState(planner_pb2.ExecutionStateRequest(invocation_id="i2"))
        assert seen(caught.value).reason == "INVOCATION_NOT_FOUND"
        assert (await stream.ask(execution_state={"invocation_id": "i1"})).HasField("execution_state")


async def test_a_request_must_be_one() -> None:
    """A message without a request is refused in band, and so is a timeout that is none."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        assert (in_band((await stream.ask()).error).violations or [("", "")])[0][0] == "request"
        for timeout in ({"seconds": -1}, {"seconds": 10**11}):
            told = in_band((await stream.ask(end=planner_pb2.EndRequest(invocation_id="i1"), timeout=timeout)).error)
            assert [field for field, _ in told.violations or ()] == ["timeout"]


async def test_a_second_request_is_out_of_order_while_the_first_decides() -> None:
    """It is refused at once with its own id (row 14), has no effect, and the first one is answered as if alone."""
    model = GatedModel(useful())
    async with running(Server(model)) as served, asyncio.timeout(HANGS):
        stream = RunClient(served)
        opened = await stream.ask(init=system())
        await stream.send(planner_pb2.RunRequest(first_action=first_request(opened.init.position)))
        await model.entered.wait()
        for _ in range(3):
            told = in_band((await stream.ask(end=planner_pb2.EndRequest(invocation_id="i1"))).error)
            assert (told.code, told.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "OUT_OF_ORDER")
        model.gate.set()
        answer = await stream.receive()
        assert (answer.id, answer.first_action.step.position.revision) == (2, 1)


async def test_half_closing_is_not_the_end() -> None:
    """The stream ends with OK; the invocation is there as before, for another stream."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        step = await begun(stream)
        await stream.call.done_writing()
        assert await stream.ended() is grpc.StatusCode.OK
        again = RunClient(served)
        where = await again.ask(execution_state=planner_pb2.ExecutionStateRequest(invocation_id="i1"))
        assert where.execution_state.step == step


async def test_a_suspended_invocation_releases_its_stream() -> None:
    """After an answer that says to suspend the server ends the stream with OK; the answer comes over another one."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        step = await begun(stream)
        response = await stream.ask(next_action=report(step, suspended(step.calls[0].id)))
        step = response.next_action.step
        assert step.action.WhichOneof("kind") == "suspend"
        assert await stream.ended() is grpc.StatusCode.OK
        later = RunClient(served)
        asked = await later.ask(execution_state=planner_pb2.ExecutionStateRequest(invocation_id="i1"))
        assert asked.execution_state.step == step
        answered = await later.ask(next_action=report(step, output(step.calls[0].id, "d")))
        assert answered.next_action.step.action.WhichOneof("kind") == "start"


# --- deadlines, cancellation, shutdown


async def unchanged(served: Serving, model: GatedModel, base: step_pb2.Position) -> None:
    """The invocation is where it was before its first step, and can make it."""
    model.gate.set()
    stream = RunClient(served)
    answer = await stream.ask(first_action=first_request(base))
    assert answer.first_action.step.position.revision == base.revision + 1
    assert len(model.asked) == 1


@pytest.mark.parametrize("timeout", [0.0, 0.05])
async def test_each_request_has_a_time_limit(timeout: float) -> None:
    """When it is over the request fails in band, uncommitted, and the stream goes on."""
    model = GatedModel(useful())
    async with running(Server(model)) as served, asyncio.timeout(HANGS):
        stream = RunClient(served)
        opened = await stream.ask(init=system())
        request = planner_pb2.RunRequest(first_action=first_request(opened.init.position))
        request.timeout.FromMicroseconds(round(timeout * 1e6))
        await stream.send(request)
        told = in_band((await stream.receive()).error)
        assert (told.code, told.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        assert model.waiting == 0
        model.gate.set()
        request.timeout.FromSeconds(20)
        await stream.send(request)
        assert (await stream.receive()).first_action.step.position.revision == 1
        await stream.ask(execution_state=planner_pb2.ExecutionStateRequest(invocation_id="i1"))
    assert len(model.asked) == 1


async def test_the_deadline_of_the_stream_holds_too() -> None:
    """When it passes the step is cancelled before its commit, and the stream ends with DEADLINE_EXCEEDED."""
    model = GatedModel(useful())
    async with running(Server(model)) as served, asyncio.timeout(HANGS):
        opened = await served.planner.Init(system())
        stream = RunClient(served, timeout=0.3)
        request = planner_pb2.RunRequest(first_action=first_request(opened.position))
        request.timeout.FromSeconds(20)
        await stream.send(request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.receive()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await unchanged(served, model, opened.position)


@pytest.mark.parametrize("behind", [False, True])
async def test_a_cancelled_stream_leaves_the_invocation_as_it_was(behind: bool) -> None:
    """The step under way is cancelled before its commit; nothing of it stays, no lock and no task."""
    model = GatedModel(useful())
    server = Server(model)
    async with running(server) as served, asyncio.timeout(HANGS):
        opened = await served.planner.Init(system())
        for _ in range(20):
            stream = RunClient(served)
            await stream.send(planner_pb2.RunRequest(first_action=first_request(opened.position)))
            await model.entered.wait()
            if behind:
                await stream.ask(end=planner_pb2.EndRequest(invocation_id="i1"))
            stream.call.cancel()
            model.entered.clear()
        await until(lambda: served.server.calls == 0 and model.waiting == 0)
        assert server.engine._locks._locks == {}
        await unchanged(served, model, opened.position)


async def test_a_stream_that_drains_in_the_middle_of_a_step() -> None:
    """The step is committed and answered, then the stream ends with DRAINING."""
    model = GatedModel(useful())
    async with running(Server(model), grace_period_seconds=HANGS) as served, asyncio.timeout(HANGS):
        stream = RunClient(served)
        opened = await stream.ask(init=system())
        await stream.send(planner_pb2.RunRequest(first_action=first_request(opened.init.position)))
        await model.entered.wait()
        stopping = asyncio.ensure_future(served.server.stop())
        await settle()
        model.gate.set()
        assert (await stream.receive()).first_action.step.position.revision == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.receive()
        assert seen(caught.value).reason == "DRAINING"
        await stopping


async def test_a_client_that_reads_slowly_holds_nothing_but_its_stream() -> None:
    """While its answer waits to be read, others use the same invocation."""
    system_with_input = system()
    system_with_input.explain = planner_pb2.EXPLAIN_LEVEL_FULL
    system_with_input.include_input = True
    async with running(Server(useful())) as served, asyncio.timeout(HANGS):
        opened = await served.planner.Init(system_with_input)
        deaf = RunClient(served)
        request = first_request(opened.position, ticket="x" * 2_000_000)
        await deaf.send(planner_pb2.RunRequest(first_action=request))
        where = planner_pb2.ExecutionStateRequest(invocation_id="i1")
        for _ in range(20):
            await deaf.send(planner_pb2.RunRequest(execution_state=where))
        await until(lambda: len(served.events("call")) > 1)
        step = (await served.planner.ExecutionState(where)).step
        assert step.ByteSize() > 2_000_000
        after = (await served.planner.NextAction(report(step, output(step.calls[0].id, "d")))).step
        assert after.position.revision == 2
        # The answers that were not read are not written, and the requests behind them not even looked at.
        assert len([line for line in served.events("call") if line.get("stream")]) < 15
        assert (await deaf.receive()).first_action.step == step


# --- traces


@pytest.mark.parametrize("inside", [True, False])
async def test_each_request_has_its_trace_context(inside: bool) -> None:
    """The context of a request is its own; without one it is that of the stream."""
    async with running(Server(useful())) as served:
        stream = RunClient(served)
        other = TRACE.replace("b7ad6b7169203331", "00f067aa0ba902b7")
        stream.call = served.planner.Run(metadata=[("traceparent", other if inside else TRACE)])
        opened = await stream.ask(init=system(), traceparent=TRACE if inside else "")
        step = (await stream.ask(first_action=first_request(opened.init.position))).first_action.step
        assert step.traceparent == TRACE
