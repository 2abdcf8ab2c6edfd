"""A real server process with decision models whose answers are written down, and ways to run against it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from plannerd_client import AsyncClient, Client, RunResult
from tests.support.servers import ServerFailedError, ServerProcess, running_server

MODELS: dict[str, dict[str, Any]] = {
    # Never sees the goal reached, finds everything useful: runs what can run.
    "keen": {"defaults": {"yes_no": 0.1, "scale": 3, "choice": "billing"}},
    # Sees every goal reached and every answer accepted.
    "content": {"defaults": {"yes_no": 0.9, "scale": 3, "choice": "refunds"}},
    # Finds nothing useful.
    "bored": {"defaults": {"yes_no": 0.1, "scale": 0, "choice": "billing"}},
    # Answers something that is no answer.
    "liar": {"defaults": {"yes_no": 7, "scale": 9, "choice": "nobody"}},
    # Is another one every time that it is asked.
    "moody": {
        "steps": [{"model": f"moody-{number}", "answers": {}} for number in range(100)],
        "defaults": {"yes_no": 0.1, "scale": 3},
    },
    # Takes one question at a time.
    "slow": {"limits": {"questions": 1}, "defaults": {"yes_no": 0.9, "scale": 3}},
    # Is down for its first two requests.
    "flaky": {
        "steps": [{"error": "DECISION_MODEL_UNAVAILABLE", "message": "down", "retry_after": 0.0}] * 2,
        "defaults": {"yes_no": 0.1, "scale": 3},
    },
}


class Plannerd:
    """A server with the models of `MODELS`, of which `keen` is the default. It may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self._config = {"decisions": {"models": _models(folder), "default": "keen"}}
        self._stack = contextlib.ExitStack()
        self._server: ServerProcess | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on the port that it had before."""
        self._server = self._stack.enter_context(running_server("--port", str(self.port), config=self._config))
        self.port = self._server.port

    def kill(self) -> None:
        """End it at once, with everything that it holds."""
        if self._server is not None:
            self._server.signal(signal.SIGKILL)
            with contextlib.suppress(ServerFailedError):
                self._stack.close()
            self._server = None

    def restart(self) -> None:
        """Kill it, and start another one in its place that knows nothing."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Ask it to stop."""
        self._stack.close()


def _models(folder: Path) -> dict[str, Any]:
    models = {}
    for name, script in MODELS.items():
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(script), encoding="utf-8")
        models[name] = {"provider": "fixed", "file": str(file)}
    return models


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plannerd]:
    """A server that all tests share."""
    process = Plannerd(tmp_path_factory.mktemp("plannerd"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Plannerd]]:
    """Starts servers that a test may kill."""
    started: list[Plannerd] = []

    def start() -> Plannerd:
        process = Plannerd(tmp_path_factory.mktemp("plannerd"))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


class Run(Protocol):
    """`run` of either client; both take the same arguments."""

    def __call__(self, planner: Any, agents: Any, arguments: Any = None, **options: Any) -> RunResult: ...


def runs(kind: str, **connection: Any) -> Run:
    """`run` of a `Client` or an `AsyncClient` with this connection."""

    def run(planner: Any, agents: Any, arguments: Any = None, **options: Any) -> RunResult:
        if kind == "sync":
            with Client(**connection) as client:
                return client.run(planner, agents, arguments, **options)

        async def go() -> RunResult:
            async with AsyncClient(**connection) as client:
                return await client.run(planner, agents, arguments, **options)

        return asyncio.run(go())

    return run


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which client."""
    return str(request.param)


@pytest.fixture(params=[True, False], ids=["stream", "unary"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether requests go over streams."""
    return bool(request.param)


@pytest.fixture
def run(kind: str, stream: bool, server: Plannerd) -> Run:
    """`run` of either client, either way, against the shared server."""
    return runs(kind, target=server.target, stream=stream)
