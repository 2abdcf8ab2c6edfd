"""What survives: servers that die, invocations that move, processes that crash, humans who answer later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from plannerd_client import (
    AgentContext,
    AgentFailed,
    AsyncClient,
    Client,
    PlannerdError,
    RetryPolicy,
    Router,
    Snapshot,
    agent,
)
from plannerd_client.errors import InvocationEnded, OwnerChanged, RunTimedOut, ServerUnreachable, StateOutdated
from tests.client.conftest import Plannerd, Run, runs
from tests.client.story import PATIENT, REQUEST, SCHEDULER, Log

ROUTER = Router(activation_threshold=0.5)

Servers = Callable[[], Plannerd]


# --- servers


def test_a_run_survives_the_loss_of_its_server(kind: str, own_servers: Servers) -> None:
    """A server that is killed and replaced between any two steps costs no agent a second run."""
    server, log = own_servers(), Log()
    run = runs(kind, target=server.target, retry=PATIENT)
    agents = [
        log.agent("one", "request", server.restart),
        log.agent("two", "one", server.restart),
        log.agent("three", "two"),
    ]
    result = run(SCHEDULER, agents, REQUEST, output_key="three")
    assert result.result == "three of two of one of Where is my order?"
    assert log.calls == ["one", "two", "three"]
    assert [step.restores for step in result.steps] == [0, 1, 1, 0]


def test_a_server_that_stays_away_uses_up_the_budget(kind: str, own_servers: Servers) -> None:
    """Then the run ends with what it met last, and goes on from its snapshot when a server is back."""
    server, log = own_servers(), Log()
    run = runs(kind, target=server.target, retry=RetryPolicy(attempts=2, first=0.01))
    agents = [log.agent("one", "request", server.kill), log.agent("two", "one")]
    with pytest.raises(ServerUnreachable) as caught:
        run(SCHEDULER, agents, REQUEST, output_key="two")
    assert caught.value.snapshot is not None
    server.start()
    resumed = runs(kind, target=server.target, retry=PATIENT)
    snapshot = Snapshot.loads(caught.value.snapshot.dumps())
    assert resumed(SCHEDULER, agents, resume=snapshot).result == "two of one of Where is my order?"
    assert log.calls == ["one", "two"]


def test_parallel_and_async_agents_survive_it_too(kind: str, own_servers: Servers) -> None:
    """With calls running, pending and done, a lost server costs nothing either."""
    server, log = own_servers(), Log()
    run = runs(kind, target=server.target, retry=PATIENT)
    go = threading.Event()

    @agent(output_key="later", async_=True)
    def later(request: str) -> str:
        log.calls.append("later")
        assert go.wait(60)
        return "later"

    def lose() -> None:
        server.restart()
        go.set()

    agents = [log.agent("fast", "request"), later, log.agent("slow", "request", lose)]
    result = run(ROUTER, agents, REQUEST, model="content", output_type=dict)
    assert list(result.result) == ["fast", "later", "slow"]
    assert result.result["later"] == "later"
    assert sorted(log.calls) == ["fast", "later", "slow"]


class Alternating(grpc.Channel):
    """A channel that sends each request to the next of several servers."""

    def __init__(self, targets: list[str]) -> None:
        self._channels = [grpc.insecure_channel(target) for target in targets]
        self._turn = 0

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        methods = [channel.unary_unary(*args, **kwargs) for channel in self._channels]

        def call(*arguments: Any, **options: Any) -> Any:
            self._turn += 1
            return methods[(self._turn - 1) // 2 % len(methods)](*arguments, **options)

        return call

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _unsupported(self, *args: Any, **kwargs: Any) -> Any:
        return None

    unary_stream = stream_unary = stream_stream = subscribe = unsubscribe = _unsupported


def test_replicas_without_a_store_can_share_an_invocation(server: Plannerd, own_servers: Servers) -> None:
    """Whatever replica a unary call reaches, the invocation goes on there, and no agent runs twice."""
    log = Log()
    channel = Alternating([server.target, own_servers().target])
    agents = [log.agent("one", "request"), log.agent("two", "one"), log.agent("three", "two")]
    with Client(channel=channel, retry=PATIENT, stream=False) as client:
        result = client.run(SCHEDULER, agents, REQUEST, output_key="three")
    channel.close()
    assert result.result == "three of two of one of Where is my order?"
    assert log.calls == ["one", "two", "three"]
    assert sum(step.restores for step in result.steps) > 0


# --- clients


CRASHING = """
    import os, sys
    from plannerd_client import AgentContext, Client, Scheduler, agent

    @agent(output_key="draft")
    def write(request: str) -> str:
        print("write", flush=True)
        return "draft of " + request

    @agent(output_key="reply")
    def polish(draft: str, ctx: AgentContext) -> str:
        print("polish", ctx.call_id, flush=True)
        os._exit(9)

    def persist(snapshot):
        with open(sys.argv[2], "wb") as file:
            file.write(snapshot.dumps())

    planner = Scheduler(goal="The reply is written", goal_threshold=0.6, activation_threshold=0.3)
    Client(sys.argv[1]).run(
        planner, [write, polish], {"request": "x"}, output_key="reply", on_snapshot=persist
    )
"""


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_survives_the_crash_of_its_client(kind: str, own_servers: Servers, tmp_path: Path, lost: bool) -> None:
    """Another process goes on: only the call that had not answered runs again, with the same id."""
    server, file = own_servers(), tmp_path / "snapshot"
    crashed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASHING), server.target, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert crashed.returncode == 9
    wrote, polished = crashed.stdout.splitlines()
    assert wrote == "write"
    if lost:
        server.restart()
    contexts: list[AgentContext] = []

    @agent(output_key="draft")
    def write(request: str) -> str:
        raise AssertionError("it ran before the crash")

    @agent(output_key="reply")
    def polish(draft: str, ctx: AgentContext) -> str:
        contexts.append(ctx)
        return draft.upper()

    run = runs(kind, target=server.target, retry=PATIENT)
    result = run(SCHEDULER, [write, polish], resume=Snapshot.loads(file.read_bytes()))
    assert result.result == "DRAFT OF X"
    assert [f"polish {ctx.call_id}" for ctx in contexts] == [polished]


def test_a_lost_reply_is_replayed(kind: str, server: Plannerd) -> None:
    """A request whose answer died with the client is sent again and answered from the store, without a new decision."""
    snapshots: list[bytes] = []
    log = Log()
    agents = [log.agent("one", "request"), log.agent("two", "one")]

    class Gone(Exception):  # noqa: N818
        """The client dies."""

    def persist(snapshot: Snapshot) -> None:
        snapshots.append(snapshot.dumps())
        if len(snapshots) == 3:  # the answer to the first report was just taken in, and is lost
            raise Gone

    run = runs(kind, target=server.target)
    with pytest.raises(Gone):
        run(SCHEDULER, agents, REQUEST, output_key="two", on_snapshot=persist)
    before = Snapshot.loads(snapshots[1])
    assert before.request
    result = run(SCHEDULER, agents, resume=before)
    assert result.result == "two of one of Where is my order?"
    assert log.calls == ["one", "two"]
    assert result.steps[0].action == "start"


def test_whoever_takes_over_fences_the_other(kind: str, server: Plannerd) -> None:
    """The former owner's next request is refused, and it stops without setting the invocation up again."""
    log = Log()
    run = runs(kind, target=server.target)
    snapshots: list[Snapshot] = []
    stolen: list[Any] = []

    def steal() -> None:
        if len(log.calls) == 1:
            stolen.append(run(SCHEDULER, agents, resume=snapshots[-1], take_over=True))

    agents = [log.agent("one", "request", steal), log.agent("two", "one")]
    with pytest.raises((OwnerChanged, InvocationEnded)):
        run(SCHEDULER, agents, REQUEST, output_key="two", on_snapshot=snapshots.append)
    assert stolen[0].result == "two of one of Where is my order?"
    assert log.calls == ["one", "one", "two"]


def test_a_failed_run_can_be_taken_over(run: Run) -> None:
    """From the snapshot of its error, with take_over: what had ended does not run again, what failed does."""
    log = Log()
    mended: list[bool] = []

    @agent(output_key="two")
    def fragile(one: str) -> str:
        if not mended:
            raise ValueError
        return f"two of {one}"

    agents = [log.agent("one", "request"), fragile]
    with pytest.raises(AgentFailed) as caught:
        run(SCHEDULER, agents, REQUEST, output_key="two")
    mended.append(True)
    result = run(SCHEDULER, agents, resume=caught.value.snapshot, take_over=True)
    assert result.result == "two of one of Where is my order?"
    assert log.calls == ["one"]


def test_an_old_snapshot_is_refused_while_the_invocation_goes_on(run: Run) -> None:
    """Without take_over nobody can go back behind what was decided since."""
    log = Log()
    snapshots: list[Snapshot] = []
    caught: list[PlannerdError] = []

    def rewind() -> None:
        try:
            run(SCHEDULER, agents, resume=snapshots[0])
        except StateOutdated as error:
            caught.append(error)

    agents = [log.agent("one", "request"), log.agent("two", "one", rewind)]
    run(SCHEDULER, agents, REQUEST, output_key="two", on_snapshot=snapshots.append)
    assert len(caught) == 1


def test_a_run_that_takes_too_long_can_be_continued(run: Run) -> None:
    """The limit abandons what runs; resumed, the same call runs again."""
    release = threading.Event()
    contexts: list[AgentContext] = []

    @agent(output_key="k")
    def slow(request: str, ctx: AgentContext) -> str:
        contexts.append(ctx)
        if len(contexts) == 1:
            release.wait(30)
        return "done"

    with pytest.raises(RunTimedOut) as caught:
        run(SCHEDULER, [slow], REQUEST, output_key="k", timeout=2)
    release.set()
    assert contexts[0].cancelled
    assert run(SCHEDULER, [slow], resume=caught.value.snapshot).result == "done"
    assert contexts[0].call_id == contexts[1].call_id


async def test_cancelling_an_async_run_cancels_its_agents(server: Plannerd) -> None:
    """The agents' tasks end with the run, and the run can be continued from what was persisted."""
    started, cancelled = asyncio.Event(), asyncio.Event()
    snapshots: list[Snapshot] = []

    async def keep(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)

    @agent(output_key="k")
    async def endless(request: str) -> str:
        if cancelled.is_set():
            return "done"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with AsyncClient(server.target) as client:
        task = asyncio.create_task(client.run(SCHEDULER, [endless], REQUEST, output_key="k", on_snapshot=keep))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()
        result = await client.run(SCHEDULER, [endless], resume=snapshots[-1])
    assert result.result == "done"


async def test_async_hooks_may_be_coroutines(server: Plannerd) -> None:
    """Handlers and hooks of AsyncClient may be async; those of Client may not."""
    from plannerd_client import Recover

    async def handler(ctx: AgentContext, error: Exception) -> Recover:
        await asyncio.sleep(0)
        return Recover("made up")

    @agent(output_key="k")
    async def broken(request: str) -> str:
        raise ValueError

    async with AsyncClient(server.target) as client:
        result = await client.run(SCHEDULER, [broken], REQUEST, output_key="k", on_error=handler)
    assert result.result == "made up"

    def in_thread() -> None:
        with Client(server.target) as client, pytest.raises(Exception, match="only AsyncClient"):
            client.run(SCHEDULER, [broken], REQUEST, output_key="k", on_error=handler)

    await asyncio.to_thread(in_thread)


async def test_many_runs_share_a_client(server: Plannerd) -> None:
    """Runs of one client do not disturb each other."""

    async def echo(request: str) -> str:
        await asyncio.sleep(0)
        return request

    agents = [agent(name="echo", output_key="reply")(echo)]
    async with AsyncClient(server.target) as client:
        results = await asyncio.gather(
            *(client.run(SCHEDULER, agents, {"request": str(n)}, output_key="reply") for n in range(50))
        )
    assert [result.result for result in results] == [str(n) for n in range(50)]
