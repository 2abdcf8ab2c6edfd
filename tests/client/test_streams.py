"""Runs over streams: real servers, both clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from plannerd.errors import PlannerdError, Reason
from plannerd.services.context import CallContext
from plannerd.transport.handlers import Service
from plannerd_client import AsyncClient, Bdi, Client, Desire, RetryPolicy, RunResult, RunStatus, agent, human
from plannerd_client.errors import AgentFailed, DeadlineExceeded, ServerUnreachable
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.client.conftest import Plannerd, runs
from tests.client.story import PATIENT, REQUEST, SCHEDULER, Log
from tests.client.test_connection import Recorder, grpc_server, recorder, target
from tests.client.world import done, step
from tests.support.engine import Server
from tests.support.models import GatedModel, answering
from tests.support.services import PLANNER_SERVICE, Serving, service, serving
from tests.support.streams import until

__all__ = ["grpc_server", "recorder", "target"]

HANGS = 60.0
PLANNER = "/planner.v1.PlannerService"
Servers = Callable[[], Plannerd]


@asynccontextmanager
async def plannerd(**settings: Any) -> AsyncIterator[Serving]:
    """A server in this process whose log can be read."""
    async with serving(Service(PLANNER_SERVICE, Server().service), log_level="debug", **settings) as running:
        yield running


def planner(*agents: Any) -> Bdi:
    """Runs `agents` one after the other."""
    satisfied = getattr(agents[-1], "output_key", "never")
    return Bdi([Desire(name="d", agents=list(agents), achievable="request", satisfied=satisfied)])


async def run_in(kind: str, running: Serving, agents: list[Any], **options: Any) -> RunResult:
    """Run agents against a server of this loop, by either client."""
    connection = {name: options.pop(name) for name in ("stream", "timeout", "retry") if name in options}
    arguments = None if "resume" in options else {"request": "x"}
    if kind == "async":
        async with AsyncClient(running.server.targets[0], **connection) as client:
            return await client.run(planner(*agents), agents, arguments, **options)

    def go() -> RunResult:
        with Client(running.server.targets[0], **connection) as client:
            return client.run(planner(*agents), agents, arguments, **options)

    return await asyncio.to_thread(go)


def over_streams(running: Serving) -> list[bool]:
    """Of each call in the log, whether it was one of a stream."""
    return [bool(line.get("stream")) for line in running.events("call")]


def threads() -> int:
    """How many threads there are, apart from those that run_in runs in."""
    return len([thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")])


# --- one stream, and its end


@pytest.mark.parametrize("stream", [None, True, False])
async def test_a_run_has_one_stream(kind: str, stream: bool | None) -> None:
    """By default and by choice all requests of a run go over one stream; without, all are unary calls."""
    log = Log()
    options = {} if stream is None else {"stream": stream}
    async with plannerd() as running:
        result = await run_in(kind, running, [log.agent("one", "request"), log.agent("two", "one")], **options)
        await until(lambda: running.server.calls == 0)
    assert log.calls == ["one", "two"]
    assert len(result.steps) >= 2
    used = stream is not False
    assert over_streams(running) == [used] * len(running.events("call"))
    assert [line["code"] for line in running.events("stream_ended")] == ["OK"] * used


async def test_nothing_is_left_of_a_stream(kind: str) -> None:
    """Whether a run ends, fails or is cancelled: its stream ends, with the thread that sent over it."""

    @agent(output_key="k")
    async def broken(request: str) -> None:
        raise ValueError

    async with plannerd() as running:
        before = len(asyncio.all_tasks())
        await run_in(kind, running, [Log().agent("one", "request")])
        started = threads() + 1  # gRPC's own, for the first client of the process
        for _ in range(5):
            await run_in(kind, running, [Log().agent("one", "request")])
            with pytest.raises(AgentFailed):
                await run_in(kind, running, [broken])
        await until(lambda: running.server.calls == 0)
        await until(lambda: len(asyncio.all_tasks()) <= before)
        await until(lambda: threads() <= started)


async def test_a_cancelled_run_lets_go_of_its_stream() -> None:
    """The server sees it end at once."""
    began = asyncio.Event()

    @agent(output_key="k")
    async def endless(request: str) -> None:
        began.set()
        await asyncio.Event().wait()

    async with plannerd() as running:
        task = asyncio.ensure_future(run_in("async", running, [endless]))
        await began.wait()
        assert running.server.calls == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: running.server.calls == 0)


async def test_an_idle_end_is_no_failure(kind: str) -> None:
    """While an agent works longer than a stream may idle, the server ends it; the report goes over another one."""

    def slow() -> None:
        time.sleep(0.5)

    log = Log()
    agents = [log.agent("one", "request", slow), log.agent("two", "one", slow), log.agent("three", "two")]
    async with plannerd(stream_idle_seconds=0.2) as running:
        result = await run_in(kind, running, agents)
        await until(lambda: running.server.calls == 0)
    assert log.calls == ["one", "two", "three"]
    assert [(step.retries, step.restores) for step in result.steps] == [(0, 0)] * len(result.steps)
    assert [line["code"] for line in running.events("stream_ended")] == ["OK"] * 3
    assert over_streams(running) == [True] * len(running.events("call"))


async def test_a_suspended_run_holds_no_stream(kind: str) -> None:
    """It is released with the suspension, and the answer of the human goes over another one."""
    agents = [human("ask", output_key="asked", arguments=["request"]), Log().agent("one", "asked")]
    async with plannerd() as running:
        first = await run_in(kind, running, agents)
        assert first.status is RunStatus.SUSPENDED
        await until(lambda: running.server.calls == 0)
        assert first.snapshot is not None
        answers = {first.suspensions[0].response_id: "yes"}
        last = await run_in(kind, running, agents, resume=first.snapshot, answers=answers)
        assert last.scope["one"] == "one of yes"
        await until(lambda: running.server.calls == 0)
    assert {line["code"] for line in running.events("stream_ended")} == {"OK"}
    assert over_streams(running) == [True] * len(running.events("call"))


# --- streams that end


async def test_a_server_without_streams_gets_unary_calls(kind: str) -> None:
    """A server of an older version is asked for a stream once a client; nothing is a failure."""
    real = Server().service
    asked: list[CallContext] = []

    def run(call: CallContext) -> Any:
        asked.append(call)
        raise PlannerdError(Reason.NOT_IMPLEMENTED, "not in this version")

    methods = {name: getattr(real, name) for name in ("Init", "FirstAction", "NextAction", "End")}
    async with serving(service(Run=run, **methods)) as running:
        result = await run_in(kind, running, [Log().agent("one", "request")])
    assert [step.retries for step in result.steps] == [0] * len(result.steps)
    # A write that meets the end of the stream hides its status, and then it is asked once more.
    assert 1 <= len(asked) <= 4
    assert over_streams(running).count(True) == 0


async def test_too_many_streams_are_made_up_for(kind: str) -> None:
    """Where the server takes no more streams a run goes on by unary calls, without a failure."""
    began, release = asyncio.Event(), threading.Event()

    def wait() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait(HANGS)

    loop = asyncio.get_running_loop()
    async with plannerd(max_streams=1) as running:
        holding = asyncio.ensure_future(run_in(kind, running, [Log().agent("one", "request", wait)]))
        await began.wait()
        try:
            result = await run_in(kind, running, [Log().agent("one", "request")])
        finally:
            release.set()
        await holding
    assert [step.retries for step in result.steps] == [0] * len(result.steps)
    assert False in over_streams(running)
    assert True in over_streams(running)


@pytest.mark.parametrize("gracefully", [True, False])
def test_a_broken_stream_goes_on_on_another_replica(kind: str, own_servers: Servers, gracefully: bool) -> None:
    """When its server drains or is killed in the middle, the run continues on the other one; no agent runs twice."""
    first, second = own_servers(), own_servers()
    log = Log()

    def end() -> None:
        if gracefully:
            first.stop()
        else:
            first.kill()

    agents = [log.agent("one", "request"), log.agent("two", "one", end), log.agent("three", "two")]
    run = runs(kind, target=f"ipv4:{first.target},{second.target}", retry=PATIENT)
    result = run(SCHEDULER, agents, REQUEST, output_key="three")
    assert result.result == "three of two of one of Where is my order?"
    assert log.calls == ["one", "two", "three"]
    assert sum(step.restores for step in result.steps) >= 1


class Proxy(Recorder):
    """Lets unary calls through and spoils streams."""

    def __init__(self, spoil: Callable[[Any], None]) -> None:
        super().__init__()
        self.spoil = spoil
        self.streams = 0

    def Run(self, request_iterator: Any, context: Any) -> Any:
        self.streams += 1
        self.spoil(context)
        yield from ()

    def names(self) -> list[str]:
        return [name for name, _ in self.metadata]


def refusing(context: Any) -> None:
    context.abort(grpc.StatusCode.UNAVAILABLE, "upstream error")


def ending(context: Any) -> None:
    """Ends with OK at once."""


@pytest.fixture
def proxied() -> Iterator[Callable[[Proxy], str]]:
    """Serves a proxy; its address."""
    servers: list[grpc.Server] = []

    def serve(proxy: Proxy) -> str:
        server = grpc.server(ThreadPoolExecutor(8))
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(proxy, server)
        servers.append(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return f"127.0.0.1:{port}"

    yield serve
    for server in servers:
        server.stop(None).wait()


def two_runs(kind: str, address: str, **connection: Any) -> None:
    agents = [agent(name="one")(lambda: 1)]
    if kind == "sync":
        with Client(address, **connection) as client:
            for _ in range(2):
                client.run(planner("one"), agents, {"request": "x"})
        return

    async def go() -> None:
        async with AsyncClient(address, **connection) as client:
            for _ in range(2):
                await client.run(planner("one"), agents, {"request": "x"})

    asyncio.run(go())


@pytest.mark.parametrize("spoil", [refusing, ending])
def test_where_streams_break_unary_calls_take_over(
    kind: str, proxied: Callable[[Proxy], str], spoil: Callable[[Any], None]
) -> None:
    """A proxy that lets no stream through costs some retries once, and then nothing."""
    proxy = Proxy(spoil)
    two_runs(kind, proxied(proxy), retry=RetryPolicy(first=0.01))
    assert proxy.names() == ["Init", "FirstAction", "End"] * 2
    assert 3 <= proxy.streams <= 12


def test_where_streams_hang_unary_calls_take_over(kind: str, proxied: Callable[[Proxy], str]) -> None:
    """A proxy that keeps what a stream sends costs one time limit, and then nothing."""
    release = threading.Event()

    def hang(context: Any) -> None:
        release.wait(HANGS)

    proxy = Proxy(hang)
    address = proxied(proxy)
    started = time.monotonic()
    try:
        two_runs(kind, address, timeout=0.5, retry=RetryPolicy(first=0.01))
    finally:
        release.set()
    assert time.monotonic() - started >= 0.5
    assert proxy.names() == ["Init", "FirstAction", "End"] * 2
    assert proxy.streams == 1


class Mute(Proxy):
    """Answers Init over a stream, and nothing after it on the first one."""

    def Run(self, request_iterator: Any, context: Any) -> Any:
        self.streams += 1
        for request in request_iterator:
            kind = request.WhichOneof("request")
            if kind == "first_action" and self.streams == 1:
                continue
            self._note(kind, context)
            response = planner_pb2.RunResponse(id=request.id)
            if kind == "first_action":
                response.first_action.step.CopyFrom(step(1, done()))
            else:
                getattr(response, kind).SetInParent()
            yield response


def test_an_answer_that_does_not_come_is_asked_for_again(kind: str, proxied: Callable[[Proxy], str]) -> None:
    """After the time limit the stream is dropped, and the request repeated over another one."""
    proxy = Mute(ending)
    agents = [agent(name="one")(lambda: 1)]
    result = runs(kind, target=proxied(proxy), timeout=0.5, retry=RetryPolicy(first=0.01))(
        planner("one"), agents, {"request": "x"}
    )
    assert proxy.names() == ["init", "first_action", "end"]
    assert proxy.streams == 2
    assert [step.retries for step in result.steps] == [1]


async def test_a_slow_decision_is_told_by_the_server(kind: str) -> None:
    """A decision that takes longer than the time limit fails in band; the stream and the invocation are as before."""
    model = GatedModel(answering(one=3))
    async with serving(Service(PLANNER_SERVICE, Server(model).service), log_level="debug") as running:

        async def let_go() -> None:
            await until(lambda: any(line["code"] == "DEADLINE_EXCEEDED" for line in running.events("call")))
            model.gate.set()

        going = asyncio.ensure_future(let_go())
        agents = [Log().agent("one", "request")]
        options: dict[str, Any] = {"timeout": 0.5, "retry": RetryPolicy(first=0.01)}
        if kind == "async":
            async with AsyncClient(running.server.targets[0], **options) as client:
                result = await client.run(SCHEDULER, agents, REQUEST)
        else:

            def go() -> RunResult:
                with Client(running.server.targets[0], **options) as client:
                    return client.run(SCHEDULER, agents, REQUEST)

            result = await asyncio.to_thread(go)
        await going
        await until(lambda: running.server.calls == 0)
    assert result.steps[0].retries >= 1
    assert len(running.events("stream_ended")) == 1


def test_a_server_that_is_not_there_uses_up_the_budget(kind: str) -> None:
    """Streams and unary calls are tried in turn, and then the error is that of a server which can't be reached."""
    run = runs(kind, target="127.0.0.1:1", retry=RetryPolicy(attempts=5, first=0.01))
    with pytest.raises((ServerUnreachable, DeadlineExceeded)):
        run(SCHEDULER, [Log().agent("one", "request")], REQUEST)


# --- what goes with a stream


def test_a_stream_carries_token_metadata_and_trace(kind: str, proxied: Callable[[Proxy], str]) -> None:
    """The token function is asked once a stream; the trace context is told with each request as well."""
    proxy = Mute(ending)
    proxy.streams = 1
    tokens = iter("abc")
    run = runs(kind, target=proxied(proxy), token=lambda: next(tokens), metadata=[("x-tenant", "t")])
    run(planner("one"), [agent(name="one")(lambda: 1)], {"request": "x"}, traceparent="00-1-2-01")
    sent = [(name, m["authorization"], m["x-tenant"], m["traceparent"]) for name, m in proxy.metadata]
    assert sent == [(name, "Bearer a", "t", "00-1-2-01") for name in ("init", "first_action", "end")]
