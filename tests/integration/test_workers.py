"""Several processes behind one port: real ones, of which some are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from plannerd.workers import Restarts, cores
from plannerd_client import Bdi, Client, Desire, RetryPolicy, agent
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.redis import running_redis
from tests.support.servers import ServerFailedError, ServerProcess, run_plannerd, running_server

HANGS = 60.0
STEPS = 30
PATIENT = RetryPolicy(attempts=50, total=60, first=0.05, longest=0.5)


@pytest.fixture(scope="module")
def two() -> Iterator[ServerProcess]:
    """A parent with two workers that tests leave alone."""
    with running_server("--workers", "2") as server:
        yield server


@contextmanager
def failing(*arguments: str, **options: Any) -> Iterator[ServerProcess]:
    """A parent that does not end with 0."""
    with suppress(ServerFailedError), running_server(*arguments, **options) as server:
        yield server
        server.stop()
        raise AssertionError("it ended with 0")


def children(server: ServerProcess) -> list[int]:
    """The processes of the workers."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(server.process.pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def wait_until(condition: Any) -> None:
    give_up = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < give_up, "it does not come about"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def serving_workers(server: ServerProcess) -> set[int]:
    return {event["worker"] for event in server.events() if event["event"] == "serving"}


def ask(target: str) -> None:
    """One call over a connection of its own."""
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        stub.ListPlanners(planner_pb2.ListPlannersRequest(), timeout=HANGS, wait_for_ready=True)


def planner(steps: int = STEPS, seconds: float = 0.05) -> tuple[Bdi, list[Any]]:
    def work(request: str) -> str:
        time.sleep(seconds)
        return "x"

    agents = [agent(name=f"a{number}", output_key=f"k{number}")(work) for number in range(steps)]
    desire = Desire(name="d", agents=agents, achievable="request", satisfied=f"k{steps - 1}")
    return Bdi([desire]), agents


def test_one_line_for_all(two: ServerProcess) -> None:
    """The parent prints one line when all workers serve on one port, and its log says which worker a line is of."""
    assert two.output.read_text() == f"listening on 127.0.0.1:{two.port}\n"
    assert serving_workers(two) == {1, 2}
    [line] = [event for event in two.events() if event["event"] == "workers_serving"]
    assert (line["workers"], line["targets"]) == (2, [two.target])
    assert {event["port"] for event in two.events() if event["event"] == "serving"} == {two.port}


def test_workers_without_a_store_are_warned_of(two: ServerProcess) -> None:
    """Without a shared store the log says what that means."""
    [line] = [event for event in two.events() if event["event"] == "workers_without_store"]
    assert line["level"] == "warning"


def test_all_workers_get_connections(two: ServerProcess) -> None:
    """Connections are spread over the workers."""

    def asked() -> set[int]:
        ask(two.target)
        return {event["worker"] for event in two.events() if event["event"] == "call"}

    wait_until(lambda: asked() == {1, 2})


def test_the_port_is_taken(two: ServerProcess) -> None:
    """A second server can't have the port, alone or with workers, and says so in one line."""
    for workers in ("1", "2"):
        second = run_plannerd("serve", "--port", str(two.port), "--workers", workers)
        assert second.returncode == 1
        [line] = [line for line in second.stderr.splitlines() if not line.startswith("{")]
        assert f":{two.port} is in use" in line


def test_a_signal_stops_all() -> None:
    """A signal to the parent stops every worker as gracefully as a server alone, and the parent ends with 0."""
    with running_server("--workers", "2") as server:
        pids = children(server)
        assert len(pids) == 2
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        assert all(map(gone, pids))
        assert [event["calls_cut"] for event in server.events() if event["event"] == "stopped"] == [0, 0]
        assert server.events()[-1]["event"] == "workers_stopped"


def test_a_second_signal_is_quick() -> None:
    """A second signal makes the workers quick."""
    config = {"server": {"drain_delay_seconds": 10_000.0}}
    with running_server("--workers", "2", config=config) as server:
        server.signal()
        wait_until(lambda: len([event for event in server.events() if event["event"] == "stopping"]) == 2)
        server.signal()
        assert server.wait() == 0


def test_workers_end_with_their_parent() -> None:
    """Workers whose parent was killed stop by themselves and leave the port."""
    with failing("--workers", "2") as server:
        pids, port = children(server), server.port
        server.process.kill()
        server.process.wait()
        wait_until(lambda: all(map(gone, pids)))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize(("stream", "shared"), [(True, False), (False, True)], ids=["stream-memory", "unary-store"])
def test_a_worker_that_is_killed_is_replaced(stream: bool, shared: bool) -> None:
    """With one worker killed in mid invocation all clients finish, each agent runs once, and the worker comes back."""
    ran: list[str] = []
    made, agents = planner()
    kill = threading.Event()

    def run(number: int, target: str) -> int:
        with Client(target, stream=stream, retry=PATIENT, options=[("grpc.use_local_subchannel_pool", 1)]) as client:
            result = client.run(made, agents, {"request": str(number)})
        kill.set()
        ran.extend(call for step in result.steps for call, _ in step.started)
        return len(result.steps)

    with running_redis() if shared else nullcontext() as redis:
        config = {"store": {"url": f"redis://127.0.0.1:{redis.port}"}} if redis is not None else {}
        with running_server("--workers", "2", config=config) as server, ThreadPoolExecutor(6) as pool:
            victim = children(server)[0]
            runs = [pool.submit(run, number, server.target) for number in range(6)]
            time.sleep(0.5)
            os.kill(victim, signal.SIGKILL)
            assert [future.result(HANGS) for future in runs] == [STEPS + 1] * 6
            assert len(ran) == len(set(ran)) == 6 * STEPS
            wait_until(lambda: len(children(server)) == 2)
            wait_until(lambda: "worker_back" in server.log())
            [died] = [event for event in server.events() if event["event"] == "worker_died"]
            assert (died["signal"], died["level"]) == ("SIGKILL", "error")
            ask(server.target)


def test_what_is_wrong_is_said_once() -> None:
    """Settings that a worker can't use end the parent with the worker's exit code, and one line says why."""
    environment = {"PLANNERD_HEALTH__REQUIRED_MODELS": '["nope"]'}
    ended = run_plannerd("serve", "--port", "0", "--workers", "3", environment=environment)
    assert ended.returncode == 2
    assert ended.stderr.count("health.required_models") == 1
    assert ended.stdout == ""


def test_workers_that_die_at_once_are_given_up(tmp_path: Path) -> None:
    """A parent whose worker can't be started again gives up with 1, and takes the others with it."""
    answers = tmp_path / "answers.yaml"
    answers.write_text("{}")
    config = {"decisions": {"models": {"a": {"provider": "fixed", "file": str(answers)}}}}
    with failing("--workers", "2", config=config) as server:
        pids = children(server)
        answers.write_text("nonsense: 1")
        os.kill(pids[0], signal.SIGKILL)
        assert server.wait() == 1
        assert all(map(gone, pids))
        lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        died = [line for line in lines if line["event"] == "worker_died"]
        assert [line["again_seconds"] for line in died] == [0.2, 0.4, 0.8, 1.6, 3.2, None]
        assert [line.get("exit_code") for line in died] == [None, 2, 2, 2, 2, 2]


def test_restarts_wait_longer_each_time() -> None:
    """A worker that dies soon is waited for longer each time, and given up; one that served for a while is forgiven."""
    restarts = Restarts()
    assert [restarts.wait(0.0) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 3.2, None]
    restarts = Restarts()
    assert [restarts.wait(0.0), restarts.wait(3600.0), restarts.wait(0.0)] == [0.2, 0.2, 0.4]


def test_none_means_one_for_each_core() -> None:
    """With 0 there is a worker for each core that the process may use."""
    assert cores() == len(os.sched_getaffinity(0))
    with running_server("--workers", "0") as server:
        [line] = [event for event in server.events() if event["event"] == "workers_serving"] or [{"workers": 1}]
        assert line["workers"] == cores()


async def test_the_port_is_kept_while_workers_are_away() -> None:
    """While every worker is away nobody else gets the port."""
    with running_server("--workers", "2") as server:
        for pid in children(server):
            os.kill(pid, signal.SIGSTOP)
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", server.port))
        for pid in children(server):
            os.kill(pid, signal.SIGKILL)
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", server.port))
        await asyncio.to_thread(wait_until, lambda: server.log().count("worker_back") == 2)
