"""What a client sends beside its requests, and how it connects."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from plannerd_client import AsyncClient, Client, Router, Tls, agent
from plannerd_client.errors import ServerUnreachable
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.client.world import done, step


class Recorder(planner_pb2_grpc.PlannerServiceServicer):
    """Is done at once, and keeps the metadata of every request."""

    def __init__(self) -> None:
        self.metadata: list[tuple[str, dict[str, Any]]] = []
        self.limits: list[float | None] = []

    def _note(self, name: str, context: Any) -> None:
        self.metadata.append((name, dict(context.invocation_metadata())))
        self.limits.append(context.time_remaining())

    def Init(self, request: Any, context: Any) -> Any:
        self._note("Init", context)
        return planner_pb2.InitResponse()

    def NextAction(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    def ExecutionState(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    def Run(self, request_iterator: Any, context: Any) -> Any:
        raise NotImplementedError

    def FirstAction(self, request: Any, context: Any) -> Any:
        self._note("FirstAction", context)
        return planner_pb2.FirstActionResponse(step=step(1, done()))

    def End(self, request: Any, context: Any) -> Any:
        self._note("End", context)
        return planner_pb2.EndResponse()

    def ListPlanners(self, request: Any, context: Any) -> Any:
        self._note("ListPlanners", context)
        return planner_pb2.ListPlannersResponse()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def grpc_server(recorder: Recorder) -> Iterator[grpc.Server]:
    server = grpc.server(ThreadPoolExecutor(4))
    planner_pb2_grpc.add_PlannerServiceServicer_to_server(recorder, server)
    yield server
    server.stop(None).wait()


@pytest.fixture
def target(grpc_server: grpc.Server) -> str:
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    return f"127.0.0.1:{port}"


def run(kind: str, target: str, *, traceparent: str = "", **connection: Any) -> None:
    agents = [agent(name="one")(lambda: 1)]
    options: dict[str, Any] = {"traceparent": traceparent} if traceparent else {}
    if kind == "sync":
        with Client(target, **connection) as client:
            client.run(Router(), agents, {"request": "x"}, **options)
        return

    async def go() -> None:
        async with AsyncClient(target, **connection) as client:
            await client.run(Router(), agents, {"request": "x"}, **options)

    asyncio.run(go())


def test_every_request_carries_token_metadata_and_trace(kind: str, target: str, recorder: Recorder) -> None:
    """A token function is asked before each request; the trace context is the one that was given."""
    tokens = iter("abc")
    run(kind, target, stream=False, token=lambda: next(tokens), metadata=[("x-tenant", "t")], traceparent="00-1-2-01")
    sent = [(name, m["authorization"], m["x-tenant"], m["traceparent"]) for name, m in recorder.metadata]
    assert sent == [
        ("Init", "Bearer a", "t", "00-1-2-01"),
        ("FirstAction", "Bearer b", "t", "00-1-2-01"),
        ("End", "Bearer c", "t", "00-1-2-01"),
    ]


def test_the_current_span_is_the_parent(
    kind: str, target: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the program uses OpenTelemetry, its current trace context is sent; without it, none."""
    run(kind, target)
    assert "traceparent" not in recorder.metadata[0][1]
    propagate = types.ModuleType("opentelemetry.propagate")
    propagate.inject = lambda carrier: carrier.update(traceparent="00-9-9-01")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)
    run(kind, target, token="t")
    assert recorder.metadata[-1][1]["traceparent"] == "00-9-9-01"


def test_every_request_has_a_deadline(kind: str, target: str, recorder: Recorder) -> None:
    """The client's timeout limits each attempt."""
    run(kind, target, timeout=7)
    assert all(limit is not None and limit < 10 for limit in recorder.limits)


@pytest.fixture
def certificate(tmp_path: Path) -> Tls:
    """A certificate for localhost that trusts itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(
        [
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "1",
                "-subj",
                "/CN=localhost",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
            ],
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    return Tls(ca=tmp_path / "cert.pem", cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")


def test_tls_and_mtls(kind: str, grpc_server: grpc.Server, recorder: Recorder, certificate: Tls) -> None:
    """A client trusts the given certificates, shows its own, and reaches nobody without."""
    assert isinstance(certificate.ca, Path)
    assert isinstance(certificate.key, Path)
    pem, key = certificate.ca.read_bytes(), certificate.key.read_bytes()
    credentials = grpc.ssl_server_credentials([(key, pem)], pem, require_client_auth=True)
    target = f"localhost:{grpc_server.add_secure_port('localhost:0', credentials)}"
    grpc_server.start()
    run(kind, target, tls=certificate)
    assert [name for name, _ in recorder.metadata] == ["Init", "FirstAction", "End"]
    for tls in (None, Tls(ca=certificate.ca)):
        with Client(target, tls=tls) as client, pytest.raises(ServerUnreachable):
            client.list_planners()


def test_a_missing_certificate_is_an_error_of_its_file(tmp_path: Path) -> None:
    """It names the file, when the client is made."""
    with pytest.raises(FileNotFoundError, match="nothing"):
        Client("localhost:1", tls=Tls(ca=tmp_path / "nothing.pem"))


def test_a_channel_of_one_s_own_stays_open(target: str, recorder: Recorder) -> None:
    """A client that was given a channel does not close it."""
    with grpc.insecure_channel(target) as channel:
        for _ in range(2):
            with Client(channel=channel) as client:
                client.list_planners()
    assert len(recorder.metadata) == 2
