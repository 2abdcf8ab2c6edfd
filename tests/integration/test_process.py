"""The server as a process: signals, ports, settings that are wrong, and what it prints."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.errors import SeenError, seen
from tests.support.servers import ROOT, ServerFailedError, ServerProcess, run_plannerd, running_server

HANGS = 30.0
FOR_EVER = 10_000.0

Stub: TypeAlias = "planner_pb2_grpc.PlannerServiceAsyncStub"


@contextmanager
def sample_server(**settings: float) -> Iterator[ServerProcess]:
    """A server whose Init waits for SIGUSR1."""
    with running_server(config={"server": settings}, module="tests.support.sample_server") as server:
        yield server


@asynccontextmanager
async def held_call(server: ServerProcess) -> "AsyncIterator[tuple[Stub, asyncio.Future[planner_pb2.InitResponse]]]":
    """A stub, and an Init that is under way."""
    async with grpc.aio.insecure_channel(server.target) as channel, asyncio.timeout(HANGS):
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        call = asyncio.ensure_future(_init(stub))
        while (await stub.ListPlanners(planner_pb2.ListPlannersRequest())).server_version != "1":
            pass
        yield stub, call


async def _init(stub: Stub) -> planner_pb2.InitResponse:
    return await stub.Init(planner_pb2.InitRequest())


async def draining(stub: Stub) -> SeenError:
    """Call until the server drains."""
    while True:
        try:
            await stub.ListPlanners(planner_pb2.ListPlannersRequest())
        except grpc.aio.AioRpcError as error:
            return seen(error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(number: signal.Signals) -> None:
    """On a signal new calls get DRAINING, the one under way is answered, and the process ends with 0."""
    with sample_server(grace_period_seconds=FOR_EVER) as server:
        async with held_call(server) as (stub, call):
            server.signal(number)
            answer = await draining(stub)
            assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
            server.signal(signal.SIGUSR1)
            assert (await call).model == "released"
        assert server.wait() == 0
        assert [event["event"] for event in server.events() if event["event"] != "call"] == [
            "serving",
            "stopping",
            "stopped",
        ]


async def test_a_second_signal_is_quick() -> None:
    """A second signal cuts what is under way; its client gets DRAINING, and the process ends with 0."""
    with sample_server(grace_period_seconds=FOR_EVER) as server:
        async with held_call(server) as (stub, call):
            server.signal()
            await draining(stub)
            server.signal()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
        answer = seen(caught.value)
        assert (answer.code, answer.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert server.wait() == 0


async def test_the_grace_period_ends() -> None:
    """A call that outlasts the grace period is cut, and the process ends with 0 all the same."""
    with sample_server(grace_period_seconds=0.05) as server:
        async with held_call(server) as (_, call):
            server.signal()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
        assert seen(caught.value).reason == "DRAINING"
        assert server.wait() == 0
        assert server.events()[-1]["calls_cut"] == 1


def test_a_server_without_calls_ends_at_once() -> None:
    """Without calls under way there is nothing to wait for."""
    with sample_server(grace_period_seconds=FOR_EVER) as server:
        server.stop()
        assert server.events()[-1]["calls_cut"] == 0


def test_the_chosen_port_is_told(plannerd: ServerProcess) -> None:
    """With port 0 the free port is printed and logged, and it is the one that serves."""
    [started] = [event for event in plannerd.events() if event["event"] == "serving"]
    assert started["port"] == plannerd.port > 0
    assert started["targets"] == [f"127.0.0.1:{plannerd.port}"]
    assert plannerd.output.read_text() == f"listening on 127.0.0.1:{plannerd.port}\n"
    with grpc.insecure_channel(plannerd.target) as channel:
        reply = planner_pb2_grpc.PlannerServiceStub(channel).ListPlanners(planner_pb2.ListPlannersRequest())
        assert "scheduler" in [planner.name for planner in reply.planners]
        for name in started["services"]:
            status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name)).status
            assert status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_used_port_is_an_error(plannerd: ServerProcess, host: str) -> None:
    """A second server on the port ends with 1 and one readable line; the first one goes on."""
    second = run_plannerd("serve", "--port", str(plannerd.port), "--host", host, "--allow-insecure")
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f":{plannerd.port} is in use" in second.stderr
    plannerd.wait_until_serving()


def test_ports_can_be_shared() -> None:
    """With reuse_port two servers share a port."""
    with (
        running_server(config={"server": {"reuse_port": True}}) as first,
        running_server("--port", str(first.port), config={"server": {"reuse_port": True}}) as second,
    ):
        assert first.port == second.port


def test_exposure_without_tls_is_refused() -> None:
    """Listening beyond loopback without TLS ends with 1 and a line that names the setting to think about."""
    refused = run_plannerd("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "server.allow_insecure" in refused.stderr


def test_exposure_without_tls_can_be_allowed() -> None:
    """Where the operator insists the server starts, and says in the log what that means."""
    with running_server("--host", "0.0.0.0", "--allow-insecure") as server:
        assert [event["level"] for event in server.events() if event["event"] == "insecure"] == ["warning"]
        [started] = [event for event in server.events() if event["event"] == "serving"]
        assert started["reflection"] is False


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("server: {prot: 1}", "server.prot: there is no such setting (in {file})"),
        ("server: {port: '1'}", "server.port: Input should be a valid integer (in {file})"),
        ("decisions: {models: {a: {provider: sparrow, model: nope}}}", "decisions.models.a: no bundled sparrow model"),
        ("decisions: {models: {a: {provider: fixed, file: /}}}", "decisions.models.a.file: Path does not point to a"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "config check"])
def test_wrong_settings_are_an_error(tmp_path: Path, config: str, line: str, command: str) -> None:
    """Wrong settings end with 2 and one readable line that has the path of the setting."""
    file = tmp_path / "config.yaml"
    file.write_text(config)
    ended = run_plannerd(*command.split(), "--config", str(file))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"plannerd: {line.format(file=file)}")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_a_server_that_can_not_start_fails_its_user() -> None:
    """The helper that starts servers says why one did not start."""
    with pytest.raises(ServerFailedError, match="exit code 2") as caught, running_server("--log-level", "nonsense"):
        pass
    assert "log.level" in "".join(caught.value.__notes__)


def test_the_log_can_be_for_people() -> None:
    """In console format lines are text."""
    with running_server("--log-format", "console") as server:
        assert "serving" in server.log()
        assert "{" not in server.log()


def test_a_log_that_nobody_reads_does_not_stop_the_server() -> None:
    """A server whose standard output and error are closed goes on serving."""
    process = subprocess.Popen(
        [sys.executable, "-m", "plannerd", "serve", "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("PLANNERD_")},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        target = process.stdout.readline().decode().split()[-1]
        process.stdout.close()
        process.stderr.close()
        with grpc.insecure_channel(target) as channel:
            stub = planner_pb2_grpc.PlannerServiceStub(channel)
            for _ in range(3):
                stub.ListPlanners(planner_pb2.ListPlannersRequest(), timeout=HANGS)
        process.terminate()
        assert process.wait(HANGS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
