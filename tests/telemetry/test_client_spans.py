"""Spans of the Python client, in the same trace as those of the servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from plannerd_client import AgentFailed, AsyncClient, Client, agent
from tests.support.otlp import Received, SeenSpan, receiving
from tests.support.servers import ServerProcess, running_server
from tests.telemetry.systems import ARGUMENTS, SYSTEMS


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Received, ServerProcess]]:
    with receiving() as collector, running_server(environment=collector.environment) as server:
        yield collector, server


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the program's own tracer exports."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


@agent(output_key="category")
async def classify(ticket: str) -> str:
    """Finds out what the ticket is about."""
    return trace.get_current_span().get_span_context().trace_id.to_bytes(16, "big").hex()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_runs_and_agents_are_spans(
    world: tuple[Received, ServerProcess], made: InMemorySpanExporter, kind: str, stream: bool
) -> None:
    """A run is a span below the current one, its agents are below it, and so are the server's calls."""
    collector, server = world
    system = SYSTEMS["bdi"]()
    agents: list[Any] = [classify, system.agents[1]]
    with trace.use_span(trace.get_tracer("program").start_span("program"), end_on_exit=True):
        if kind == "threads":
            with Client(server.target, stream=stream) as client:
                begun = client.run(system.planner, agents, ARGUMENTS, **system.options)
        else:
            async with AsyncClient(server.target, stream=stream) as asynchronous:
                begun = await asynchronous.run(system.planner, agents, ARGUMENTS, **system.options)
    program, run = named(made, "program")[0], named(made, "plannerd.run")[0]
    ran = named(made, "agent classify$0")[0]
    assert run.parent is not None
    assert run.parent == program.context
    assert ran.parent == run.context
    assert run.attributes is not None
    assert ran.attributes is not None
    assert run.attributes["plannerd.run.status"] == "suspended"
    assert run.attributes["plannerd.planner"] == "bdi"
    assert ran.attributes["plannerd.call.id"] == begun.steps[0].message.calls[0].id
    assert begun.scope["category"] == ids(run)[0]
    trace_id, span_id = ids(run)

    def mine() -> list[SeenSpan]:
        return [span for span in collector.spans if span.trace_id == trace_id and span.kind == "server"]

    collector.wait_for(lambda: len(mine()) >= 3)
    assert {span.parent_id for span in mine()} == {span_id}


def test_a_resumed_run_is_in_the_invocations_trace(
    world: tuple[Received, ServerProcess], made: InMemorySpanExporter
) -> None:
    """A run that goes on elsewhere is in the trace that the invocation began with, and linked with the current span."""
    _, server = world
    system = SYSTEMS["bdi"]()
    with Client(server.target) as client:
        begun = client.run(system.planner, system.agents, ARGUMENTS, **system.options)
        with trace.use_span(trace.get_tracer("program").start_span("later"), end_on_exit=True):
            client.run(system.planner, system.agents, resume=begun.snapshot, answers={"answer": "ok"}, **system.options)
    first, second = named(made, "plannerd.run")
    assert ids(first)[0] == ids(second)[0]
    assert second.parent is not None
    assert f"{second.parent.span_id:016x}" == ids(first)[1]
    assert [link.context for link in second.links] == [named(made, "later")[0].context]
    assert second.attributes is not None
    assert second.attributes["plannerd.resumed"] is True
    assert second.attributes["plannerd.run.status"] == "completed"


def test_failures_have_types_and_no_messages(world: tuple[Received, ServerProcess], made: InMemorySpanExporter) -> None:
    """An agent that fails has a failed span with the type of its error, and nothing that it said."""
    _, server = world

    @agent(output_key="category")
    def classify(ticket: str) -> str:
        """Fails."""
        raise LookupError(f"no such thing: {ticket}")

    system = SYSTEMS["bdi"]()
    with Client(server.target) as client, pytest.raises(AgentFailed):
        client.run(system.planner, [classify, system.agents[1]], ARGUMENTS, **system.options)
    failed = named(made, "agent classify$0")[0]
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "LookupError"
    assert not failed.status.is_ok
    assert named(made, "plannerd.run")[0].attributes["plannerd.run.status"] == "AgentFailed"  # type: ignore[index]
    assert all("kettle" not in span.to_json() for span in made.get_finished_spans())


def test_without_opentelemetry_nothing_is_loaded(world: tuple[Received, ServerProcess]) -> None:
    """A program that does not use OpenTelemetry does not load it by running an invocation."""
    _, server = world
    program = (
        "import sys\n"
        "from plannerd_client import Bdi, Client, Desire, agent, present\n"
        "@agent(output_key='y')\n"
        "def work(x: str) -> str:\n"
        "    'Works.'\n"
        "    return x\n"
        "planner = Bdi(desires=[Desire(name='d', agents=['work'], achievable=present('x'), satisfied=present('y'))])\n"
        f"print(Client('{server.target}').run(planner, [work], {{'x': '1'}}, output_key='y').result)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["1", "[]"]
