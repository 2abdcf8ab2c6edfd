"""A server and what it depends on: start, readiness, liveness, and an end in time whatever the others do."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd.app import build
from plannerd.settings import Settings
from plannerd.transport.server import _BEYOND_SECONDS
from plannerd_protos.planner.v1 import decision_pb2, decision_pb2_grpc, planner_pb2, planner_pb2_grpc
from tests.support.builders import agent, scheduler
from tests.support.http2 import Http2
from tests.support.redis import RedisProcess, free_port, running_redis
from tests.support.servers import ServerProcess, run_plannerd, running_server
from tests.support.services import service, serving

HANGS = 30.0
SOON = 20.0
"""Only a server that hangs takes longer than this on top of what its settings allow."""

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    """A server that tests may stop."""
    with running_redis() as server:
        yield server


def store_settings(redis: RedisProcess, **health: Any) -> dict[str, Any]:
    return {
        "store": {"url": f"redis://127.0.0.1:{redis.port}", "timeout_seconds": 1.0},
        "health": {"interval_seconds": 0.1, **health},
    }


def status(server: ServerProcess, name: str = "") -> int:
    with grpc.insecure_channel(server.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        return int(check(health_pb2.HealthCheckRequest(service=name), timeout=HANGS).status)


def wait_for(server: ServerProcess, wanted: int, name: str = "") -> None:
    give_up = time.monotonic() + HANGS
    while status(server, name) != wanted:
        assert time.monotonic() < give_up, f"{name!r} does not become {wanted}"
        time.sleep(0.05)


def ends_in_time(server: ServerProcess, patience: float) -> None:
    """The server, which was told to stop, ends with 0 before its patience and what stopping may take are over."""
    started = time.monotonic()
    assert server.wait() == 0
    assert time.monotonic() - started < patience + _BEYOND_SECONDS + SOON


# --- start


def test_a_store_that_is_away_stops_the_start() -> None:
    """A server whose store does not answer ends with 1 and one line that says where it looked, and with what result."""
    environment = {"PLANNERD_STORE__URL": f"redis://127.0.0.1:{free_port()}", "PLANNERD_STORE__TIMEOUT_SECONDS": "0.5"}
    ended = run_plannerd("serve", "--port", "0", environment=environment)
    assert ended.returncode == 1
    [line] = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith(f"plannerd: store.url: {environment['PLANNERD_STORE__URL']} can't be used: ")
    assert ended.stdout == ""


def test_a_wrong_password_stops_the_start() -> None:
    """A server that its store does not let in says so, without the password."""
    with running_redis("--requirepass", "tangerine") as redis:
        environment = {
            "PLANNERD_STORE__URL": f"redis://127.0.0.1:{redis.port}",
            "PLANNERD_STORE__PASSWORD": "clementine",
            "PLANNERD_STORE__TIMEOUT_SECONDS": "1",
        }
        ended = run_plannerd("serve", "--port", "0", environment=environment)
    assert ended.returncode == 1
    assert "store.url" in ended.stderr
    assert "clementine" not in ended.stderr


def test_required_models_must_exist() -> None:
    """A required model that is not configured is a wrong setting."""
    ended = run_plannerd("config", "check", environment={"PLANNERD_HEALTH__REQUIRED_MODELS": '["sparow"]'})
    assert ended.returncode == 2
    assert "health.required_models: 'sparow' is none of the models: sparrow" in ended.stderr


# --- readiness


def test_health_tells_about_the_store(redis: RedisProcess) -> None:
    """While the store is away it is NOT_SERVING, and after a while the whole server; the loop stays SERVING."""
    with running_server(config=store_settings(redis, store_away_seconds=0.5)) as server:
        wait_for(server, SERVING, "plannerd.store")
        redis.send(signal.SIGSTOP)
        wait_for(server, NOT_SERVING, "plannerd.store")
        wait_for(server, NOT_SERVING)
        assert status(server, "planner.v1.PlannerService") == NOT_SERVING
        assert status(server, "planner.v1.DecisionModelService") == SERVING
        assert status(server, "liveness") == SERVING
        redis.send(signal.SIGCONT)
        wait_for(server, SERVING)
        wait_for(server, SERVING, "plannerd.store")
        states = [event["event"] for event in server.events() if event["event"] in {"not_ready", "ready"}]
    assert states == ["not_ready", "ready"]


def test_readiness_without_the_store(redis: RedisProcess) -> None:
    """Where the operator wants that, a server without its store stays SERVING, and only the store is not."""
    with running_server(config=store_settings(redis, store_away_seconds=None)) as server:
        redis.send(signal.SIGSTOP)
        wait_for(server, NOT_SERVING, "plannerd.store")
        time.sleep(0.5)
        assert status(server) == SERVING
        redis.send(signal.SIGCONT)


@pytest.mark.parametrize("required", [False, True])
def test_health_tells_about_models(required: bool) -> None:
    """A model that failed is NOT_SERVING until it is due again; the whole server is so only if it is required."""
    config = {
        "decisions": {
            "models": {
                "away": {"provider": "grpc", "target": f"127.0.0.1:{free_port()}", "retries": 0},
                "sparrow": {"provider": "sparrow"},
            },
            "default": "sparrow",
        },
        "health": {
            "interval_seconds": 0.05,
            "model_down_seconds": 2.0,
            "required_models": ["away"] if required else [],
        },
    }
    with running_server(config=config) as server, grpc.insecure_channel(server.target) as channel:
        assert status(server, "plannerd.models/away") == SERVING
        request = decision_pb2.DecideRequest(model="away")
        request.input.add(name="ticket").value.string_value = "t"
        request.questions.add(name="q", text="Is it?").yes_no.SetInParent()
        with pytest.raises(grpc.RpcError) as caught:
            decision_pb2_grpc.DecisionModelServiceStub(channel).Decide(request, timeout=HANGS)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        wait_for(server, NOT_SERVING, "plannerd.models/away")
        assert status(server, "plannerd.models/sparrow") == SERVING
        assert status(server) == (NOT_SERVING if required else SERVING)
        wait_for(server, SERVING, "plannerd.models/away")
        wait_for(server, SERVING)


async def test_a_watcher_that_does_not_read_holds_nobody_up() -> None:
    """A client that watches health and takes nothing in delays neither the others nor the end of the server."""
    async with serving(service(), grace_period_seconds=0.1) as running, asyncio.timeout(HANGS):
        silent = await Http2.connect(running.server.port, window=0)
        silent.call("/grpc.health.v1.Health/Watch", b"")
        await silent.settle()
        watch = health_pb2_grpc.HealthStub(running.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        stopping = asyncio.ensure_future(running.server.stop())
        assert (await watch.read()).status == NOT_SERVING
        await stopping
        silent.close()


async def test_the_loop_is_alive_until_the_end() -> None:
    """While the server drains, the loop is SERVING and everything else is not."""
    async with serving(service(), drain_delay_seconds=10_000.0) as running:
        check = health_pb2_grpc.HealthStub(running.channel).Check
        hurry = asyncio.Event()
        stopping = asyncio.ensure_future(running.server.stop(hurry))
        while (await check(health_pb2.HealthCheckRequest())).status == SERVING:
            pass
        assert (await check(health_pb2.HealthCheckRequest(service="liveness"))).status == SERVING
        hurry.set()
        await stopping


# --- an end in time


def sample_server(grace: float = 0.3) -> Any:
    return running_server(config={"server": {"grace_period_seconds": grace}}, module="tests.support.sample_server")


def test_a_wedged_loop_fails_its_probe_and_ends() -> None:
    """A loop that is never given back lets the liveness probe time out, and the process still ends on a signal."""
    with sample_server() as server, grpc.insecure_channel(server.target) as channel:
        wedging = planner_pb2_grpc.PlannerServiceStub(channel).End.future(planner_pb2.EndRequest())
        check = health_pb2_grpc.HealthStub(channel).Check
        give_up = time.monotonic() + HANGS
        probe = check.future(health_pb2.HealthCheckRequest(service="liveness"), timeout=1.0)
        while (code := probe.code()) is grpc.StatusCode.OK and time.monotonic() < give_up:
            probe = check.future(health_pb2.HealthCheckRequest(service="liveness"), timeout=1.0)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert not wedging.done()
        server.signal()
        ends_in_time(server, 0.3)


def test_a_thread_that_never_ends_is_left_behind() -> None:
    """A thread that something left running does not keep the process from its end."""
    with sample_server() as server, grpc.insecure_channel(server.target) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        stub.ExecutionState(planner_pb2.ExecutionStateRequest(), timeout=HANGS)
        server.signal()
        ends_in_time(server, 0.3)


@pytest.mark.parametrize("again", [False, True])
def test_a_store_that_hangs_does_not_hold_up_the_end(redis: RedisProcess, again: bool) -> None:
    """With a step that waits for a store that hangs, the server ends in time; after a second signal soon."""
    config = store_settings(redis)
    config["store"]["timeout_seconds"] = 1000.0
    config["server"] = {"grace_period_seconds": 10_000.0 if again else 1.0}
    with running_server(config=config) as server, grpc.insecure_channel(server.target) as channel:
        request = scheduler(agent("lookup", "ticket", writes="facts"))
        request.invocation_id = "i1"
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        stub.Init(request, timeout=HANGS)
        redis.send(signal.SIGSTOP)
        request.invocation_id = "i2"
        call = stub.Init.future(request)
        with suppress(grpc.FutureTimeoutError):
            call.result(0.5)
        server.signal()
        if again:
            time.sleep(0.2)
            server.signal()
        ends_in_time(server, 1.0)
        assert call.code() is grpc.StatusCode.UNAVAILABLE
        redis.send(signal.SIGCONT)


async def test_readers_that_are_slow_do_not_hold_up_the_end() -> None:
    """Clients that take no answers in, unary or by stream, are cut when the grace period is over."""
    with running_server(config={"server": {"grace_period_seconds": 0.5}}) as server:
        async with asyncio.timeout(HANGS):
            clients = [await Http2.connect(server.port, window=0) for _ in range(8)]
            ask = planner_pb2.RunRequest(id=1)
            ask.end.invocation_id = "i1"
            for client in clients:
                client.call("/planner.v1.PlannerService/ListPlanners", b"")
                client.call("/planner.v1.PlannerService/Run", ask.SerializeToString(), end=False)
                await client.settle()
        server.signal()
        await asyncio.to_thread(ends_in_time, server, 0.5)
        for client in clients:
            client.close()


async def test_parts_that_do_not_let_go_are_left(tmp_path: Path) -> None:
    """A part that hangs while it is closed is given up after some seconds."""
    app = build(Settings())

    async def hang() -> None:
        await asyncio.Event().wait()

    object.__setattr__(app.store, "close", hang)
    async with asyncio.timeout(HANGS):
        await app.close()
