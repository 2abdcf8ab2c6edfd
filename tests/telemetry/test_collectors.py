"""Collectors that misbehave are never felt."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from benchmarks.step import a_report, a_system
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.support.otlp import QUICK, receiving
from tests.support.servers import ServerProcess, running_server

STEPS = 40
ROUNDS = 5
FLUSH = 0.5
SETTINGS = {"telemetry": {"flush_seconds": FLUSH}, "log": {"level": "info"}}


@contextmanager
def silent() -> Iterator[str]:
    """An endpoint that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def dead() -> Iterator[str]:
    """An endpoint where nobody is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def slow() -> Iterator[str]:
    """A collector that takes three seconds for each export."""
    over = threading.Event()
    with receiving(before=lambda: (over.wait(3.0), None)[1]) as collector:
        try:
            yield collector.endpoint
        finally:
            over.set()


@contextmanager
def dying() -> Iterator[str]:
    """A collector that answers once and is gone."""
    stack = ExitStack()
    collector = stack.enter_context(receiving())

    def go() -> None:
        collector.wait_for(lambda: bool(collector.traces), 60)
        stack.close()

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield collector.endpoint
    finally:
        thread.join(1)
        stack.close()


COLLECTORS = {"silent": silent, "dead": dead, "slow": slow, "dying": dying}


def variables(endpoint: str, protocol: str) -> Mapping[str, str]:
    return {
        **QUICK,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
    }


def one_round(server: ServerProcess, name: str) -> float:
    """The median time of a step, in seconds."""
    taken: list[float] = []
    with grpc.insecure_channel(server.target) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        position = stub.Init(a_system(name, STEPS)).position
        first = planner_pb2.FirstActionRequest(invocation_id=name, base=position)
        first.scope.set["request"].string_value = "r"
        reply = planner_pb2.NextActionResponse(step=stub.FirstAction(first).step)
        for _ in range(STEPS):
            request = a_report(reply, name)
            started = time.perf_counter()
            reply = stub.NextAction(request)
            taken.append(time.perf_counter() - started)
        stub.End(planner_pb2.EndRequest(invocation_id=name))
    return statistics.median(taken)


@pytest.fixture(scope="module")
def plain() -> Iterator[ServerProcess]:
    """A server without telemetry."""
    with running_server(config=SETTINGS) as server:
        yield server


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [(kind, "grpc") for kind in sorted(COLLECTORS)] + [("dead", "http/protobuf"), ("silent", "http/protobuf")],
)
def test_a_bad_collector_is_not_felt(kind: str, protocol: str, plain: ServerProcess) -> None:
    """Steps take as long as without telemetry, within noise, and the end is not later than the flush may take."""
    with (
        COLLECTORS[kind]() as endpoint,
        running_server(config=SETTINGS, environment=variables(endpoint, protocol)) as server,
    ):
        ratios = []
        for number in range(ROUNDS):
            ratios.append(one_round(server, f"a-{number}") / one_round(plain, f"{kind}-{protocol[:4]}-{number}"))
        started = time.monotonic()
        server.stop()
        seconds = time.monotonic() - started
        log = server.events()
    assert min(ratios) < 2.0, ratios
    assert seconds < FLUSH + 4.0, seconds
    outages = [line for line in log if line["event"] == "telemetry_unavailable"]
    assert len(outages) <= 2 * 2, outages
    if kind in ("dead", "dying"):
        assert outages
    assert not [line for line in log if line.get("logger", "").startswith("opentelemetry.exporter")]


def test_what_a_collector_does_not_take_is_dropped_and_counted() -> None:
    """A queue that is full drops spans; metrics, which still get through, say how many."""
    with silent() as endpoint, receiving() as collector:
        environment = {
            **variables(endpoint, "grpc"),
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": collector.endpoint,
        }
        with running_server(config=SETTINGS, environment=environment) as server:
            one_round(server, "many")
            one_round(server, "more")
            collector.wait_for(lambda: any(point.value > 0 for point in collector.points("plannerd.telemetry.dropped")))
            spans = 2 * (2 * (STEPS + 1) + 2)
            dropped = collector.points("plannerd.telemetry.dropped")[0].value
    assert 0 < dropped <= spans - 64
