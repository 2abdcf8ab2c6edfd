"""Connections that reach their age: they move to other servers, and no caller sees an error."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plannerd_client import Bdi, Desire, agent
from tests.client.conftest import runs
from tests.support.redis import running_redis
from tests.support.servers import ServerProcess, running_server

AGE = 0.4
STEPS = 25


@contextmanager
def replicas(one_port: bool, folder: Path) -> Iterator[list[ServerProcess]]:
    """Two servers with one store, on one port or on two, whose connections grow old quickly."""
    with ExitStack() as stack:
        redis = stack.enter_context(running_redis())
        config: dict[str, Any] = {
            "server": {
                "reuse_port": one_port,
                "max_connection_age_seconds": AGE,
                "max_connection_age_grace_seconds": 2.0,
            },
            "store": {"url": f"redis://127.0.0.1:{redis.port}"},
        }
        first = stack.enter_context(running_server(config=config))
        port = str(first.port) if one_port else "0"
        yield [first, stack.enter_context(running_server("--port", port, config=config))]


def planner() -> tuple[Bdi, list[Any]]:
    """A planner of many short steps, and its agents."""

    def work(request: str) -> str:
        time.sleep(0.05)
        return "x"

    agents = [agent(name=f"a{number}", output_key=f"k{number}")(work) for number in range(STEPS)]
    desire = Desire(name="d", agents=agents, achievable="request", satisfied=f"k{STEPS - 1}")
    return Bdi([desire]), agents


def steps_served(server: ServerProcess) -> int:
    return len([event for event in server.events() if event.get("method", "").endswith("/NextAction")])


def test_connections_move_without_an_error(kind: str, stream: bool, tmp_path: Path) -> None:
    """A run over connections that are closed all the time has no failed request, and its steps reach both servers."""
    one_port = kind == "sync"
    made, agents = planner()
    with replicas(one_port, tmp_path) as servers:
        name = servers[0].target if one_port else "ipv4:" + ",".join(server.target for server in servers)
        options = () if one_port else (("grpc.lb_policy_name", "round_robin"),)
        run = runs(kind, target=name, stream=stream, options=options)
        for _ in range(8):
            result = run(made, agents, {"request": "x"})
            assert [(step.retries, step.restores) for step in result.steps] == [(0, 0)] * (STEPS + 1)
            if all(steps_served(server) for server in servers):
                break
        else:
            pytest.fail("every connection led to the same server")
        for server in servers:
            # A client that has its last answer hangs up.
            codes = {"OK", "CANCELLED"}
            failed = [event for event in server.events() if event["event"] == "call" and event["code"] not in codes]
            assert not failed, json.dumps(failed[:3])
