"""Traces of real invocations over two real servers, as a collector gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from plannerd_client import Client, Step
from plannerd_protos.planner.v1 import decision_pb2, planner_pb2, planner_pb2_grpc, step_pb2
from tests.support.otlp import Received, SeenPoint, SeenSpan, receiving, receiving_http
from tests.support.redis import running_redis
from tests.support.servers import ServerProcess, running_server
from tests.telemetry.systems import ARGUMENTS, SYSTEMS, run_over_two

SERVICE = "planner.v1.PlannerService"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True, slots=True)
class World:
    """Two replicas that export to one collector."""

    collector: Received
    first: ServerProcess
    second: ServerProcess

    def trace_of(self, invocation_id: str) -> list[SeenSpan]:
        """The spans of an invocation, once all calls that the logs of both replicas name are among them."""
        logged = {
            line["span_id"]: line["trace_id"]
            for server in (self.first, self.second)
            for line in server.events()
            if line.get("invocation_id") == invocation_id and "span_id" in line
        }
        self.collector.wait_for(lambda: logged.keys() <= {span.span_id for span in self.collector.spans})
        return [span for span in self.collector.spans if span.trace_id in logged.values()]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with receiving() as collector:
        environment = collector.environment
        with running_server(environment=environment) as first, running_server(environment=environment) as second:
            yield World(collector, first, second)


def parents(spans: list[SeenSpan]) -> dict[str, SeenSpan]:
    by_id = {span.span_id: span for span in spans}
    return {span.span_id: by_id[span.parent_id] for span in spans if span.parent_id in by_id}


def numbers_of(message: Message) -> Iterator[float]:
    """Every measured number inside a message: not those of enums, which are words, nor flags."""
    if isinstance(message, Duration):
        yield message.seconds + message.nanos / 1e9
        return
    for field, value in message.ListFields():
        repeated = (
            isinstance(value, str | bytes) is False and hasattr(value, "__len__") and not isinstance(value, Message)
        )
        values = list(value.values()) if hasattr(value, "values") else list(value) if repeated else [value]
        for item in values:
            if isinstance(item, Message):
                yield from numbers_of(item)
            elif field.enum_type is None and isinstance(item, int | float) and not isinstance(item, bool):
                yield float(item)


def numbers_in(spans: list[SeenSpan]) -> list[float]:
    """Every number in attributes and events."""
    found: list[float] = []
    for attributes in [a for s in spans for a in (s.attributes, *(event.attributes for event in s.events))]:
        for value in attributes.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, int | float):
                    found.append(float(item))
    return found


def below(spans: list[SeenSpan], top: SeenSpan) -> list[SeenSpan]:
    return [span for span in spans if span.parent_id == top.span_id]


def outcome_of(step: Step) -> str:
    name = step_pb2.StepOutcome.Name(step.message.explanation.outcome)
    return name.removeprefix("STEP_OUTCOME_").lower()


def step_span(spans: list[SeenSpan], step: Step) -> SeenSpan:
    position = step.message.position
    found = [
        span
        for span in spans
        if span.name == "plannerd.step"
        and span.attributes.get("plannerd.position.revision") == position.revision
        and span.attributes.get("plannerd.step.outcome") == outcome_of(step)
    ]
    assert found, (position, outcome_of(step), [span.attributes for span in spans])
    return found[0]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
@pytest.mark.parametrize("planner", sorted(SYSTEMS))
def test_an_invocation_over_two_replicas_is_one_trace(world: World, planner: str, stream: bool) -> None:
    """An invocation that begins on one replica and goes on on another is one tree: calls, steps, decisions."""
    begun, ended = run_over_two(planner, world.first.target, world.second.target, stream=stream)
    spans = world.trace_of(begun.invocation_id)
    above = parents(spans)

    assert len({span.trace_id for span in spans}) == 1
    assert len({span.instance for span in spans}) == 2
    roots = [span for span in spans if not span.parent_id]
    assert [span.name for span in roots] == [f"{SERVICE}/Init"]
    assert {span.parent_id for span in spans} - {""} <= {span.span_id for span in spans}
    for span in spans:
        if span.name == "plannerd.step":
            assert (span.kind, above[span.span_id].kind) == ("internal", "server")
            assert above[span.span_id].name.rpartition("/")[2] in {"FirstAction", "NextAction"}
        elif span.name.startswith("decide"):
            assert (span.kind, above[span.span_id].name) == ("client", "plannerd.step")
        else:
            assert span.kind == "server"
            assert not span.parent_id or above[span.span_id] is roots[0]
        within = above.get(span.span_id)
        if span.kind != "server" and within is not None:
            assert within.start <= span.start <= span.end <= within.end

    calls = Counter(span.name for span in spans if span.kind == "server")
    steps = [*begun.steps, *ended.steps]
    assert calls[f"{SERVICE}/Init"] == 2
    assert calls[f"{SERVICE}/End"] == 1
    assert calls[f"{SERVICE}/FirstAction"] + calls[f"{SERVICE}/NextAction"] == len(steps)
    asked = sum(len(step.message.explanation.decisions) for step in steps)
    assert sum(span.name == "decide sparrow" for span in spans) == asked
    assert asked > 0 or planner == "bdi"
    resumed = [span for span in spans if span.attributes.get("plannerd.resumed")]
    assert [span.name for span in resumed] == [f"{SERVICE}/Init"]


@pytest.mark.parametrize("planner", sorted(SYSTEMS))
def test_a_trace_has_every_number_of_the_explanations(world: World, planner: str) -> None:
    """What a step's explanation says in numbers, and whom it called, is in its span and those of its decisions."""
    begun, ended = run_over_two(planner, world.first.target, world.second.target, stream=True)
    spans = world.trace_of(begun.invocation_id)
    for step in [*begun.steps, *ended.steps]:
        span = step_span(spans, step)
        there = numbers_in([span, *below(spans, span)])
        for number in numbers_of(step.message.explanation):
            assert any(abs(number - other) < 1e-6 for other in there), (number, step.explanation.summary)
        explanation = step.message.explanation
        called = [found.agent_id for found in explanation.agents if found.called]
        if called and span.attributes["plannerd.step.action"] == "start":
            assert sorted(span.attributes["plannerd.step.called"]) == sorted(called)
        assert span.attributes["plannerd.step.reason"] == explanation.summary
        assert span.attributes["plannerd.planner"] == planner
        for found in explanation.agents:
            status = step_pb2.AgentStatus.Name(found.status).removeprefix("AGENT_STATUS_").lower()
            name = "candidates" if status == "candidate" else status
            assert found.agent_id in span.attributes[f"plannerd.step.{name}"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
def test_the_clients_own_context_is_the_parent(world: World, stream: bool) -> None:
    """The client's trace context is the parent of its calls, and what others do for the invocation is in its trace."""
    begun, _ = run_over_two("bdi", world.first.target, world.second.target, stream=stream, traceparent=CALLER)
    spans = world.trace_of(begun.invocation_id)
    _, trace_id, parent, _ = CALLER.split("-")
    assert {span.trace_id for span in spans} == {trace_id}
    mine = [
        s for s in spans if s.attributes.get("plannerd.invocation.id") == begun.invocation_id and s.kind == "server"
    ]
    assert {span.parent_id for span in mine} == {parent}
    assert begun.steps[0].message.traceparent == CALLER


def test_a_resume_from_another_trace_joins_the_invocations(world: World) -> None:
    """Calls that come from another trace than the invocation's are in the invocation's, linked with their caller."""
    other = "00-11111111111111111111111111111111-2222222222222222-01"
    system = SYSTEMS["bdi"]()
    with Client(world.first.target) as client:
        begun = client.run(system.planner, system.agents, ARGUMENTS, traceparent=CALLER, **system.options)
    channel = grpc.insecure_channel(world.second.target)
    with channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        assert begun.snapshot is not None
        state = step_pb2.ExecutionState.FromString(begun.snapshot.state)
        init = planner_pb2.InitRequest(invocation_id=begun.invocation_id, state=state)
        init.bdi.desires.add(name="answer", achievable={"present_key": "ticket"}, satisfied={"present_key": "reply"})
        init.bdi.desires[0].agent_types.extend(["classify", "approve"])
        init.planner_agent.arguments.add(name="ticket")
        for name, key in (("classify", "category"), ("approve", "reply")):
            agent = init.agents.add(name=name, output_key=key, human=name == "approve")
            agent.arguments.add(name="ticket")
        metadata = (("traceparent", other), ("tracestate", "vendor=1"))
        stub.Init(init, metadata=metadata)
        stub.End(planner_pb2.EndRequest(invocation_id=begun.invocation_id), metadata=metadata)
    spans = world.trace_of(begun.invocation_id)
    foreign = [span for span in spans if span.links == ["2222222222222222"]]
    assert [span.name for span in foreign] == [f"{SERVICE}/Init", f"{SERVICE}/End"]
    assert {span.trace_id for span in foreign} == {CALLER.split("-")[1]}
    assert {span.trace_state for span in foreign} == {""}


def test_a_repeated_request_is_no_step(world: World) -> None:
    """A request that comes again is a call that says so, without a step or a decision, and is counted."""
    with grpc.insecure_channel(world.first.target) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        init = planner_pb2.InitRequest(invocation_id="again")
        init.bdi.desires.add(
            name="d", achievable={"present_key": "x"}, satisfied={"present_key": "never"}, agent_types=["a", "a"]
        )
        init.planner_agent.arguments.add(name="x")
        init.agents.add(name="a", output_key="y")
        position = stub.Init(init).position
        first = planner_pb2.FirstActionRequest(invocation_id="again", base=position)
        first.scope.set["x"].int_value = 1
        step = stub.FirstAction(first).step
        report = planner_pb2.NextActionRequest(invocation_id="again", base=step.position)
        report.results.add(call_id=step.calls[0].id).output.value.int_value = 2
        once, twice = stub.NextAction(report), stub.NextAction(report)
        assert once == twice
        stub.End(planner_pb2.EndRequest(invocation_id="again"))
    spans = world.trace_of("again")
    calls = [span for span in spans if span.name == f"{SERVICE}/NextAction"]
    assert [span.attributes.get("plannerd.step.repeated", False) for span in calls] == [False, True]
    assert [len(below(spans, span)) for span in calls] == [1, 0]
    world.collector.wait_for(lambda: bool(world.collector.points("plannerd.steps.repeated")))


def test_failures_are_told_by_their_reason(world: World) -> None:
    """A call that fails has its status and reason in its span; only the server's own failures are errors."""
    with Client(world.first.target) as client, pytest.raises(Exception, match="no decision model"):
        client.decide(decision_pb2.DecideRequest(model="unknown"))
    nobody = planner_pb2.NextActionRequest(invocation_id="nobody", base=step_pb2.Position(epoch=1, branch="b"))
    with Client(world.first.target) as client, pytest.raises(Exception, match="nobody"):
        client.next_action(nobody)

    def found() -> list[SeenSpan]:
        return [s for s in world.collector.spans if s.attributes.get("error.type") == "INVOCATION_NOT_FOUND"]

    world.collector.wait_for(lambda: len(found()) == 1)
    span = found()[0]
    assert span.attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert (span.failed, span.parent_id) == (False, "")


def test_metrics_add_up(world: World) -> None:
    """Calls, steps, decisions and what is live are counted, by labels that no client chooses."""
    run_over_two("scheduler", world.first.target, world.second.target, stream=False)
    collector = world.collector

    def steps() -> list[SeenPoint]:
        return [p for p in collector.points("plannerd.steps") if p.attributes["plannerd.planner"] == "scheduler"]

    collector.wait_for(lambda: bool(steps()) and bool(collector.points("gen_ai.client.operation.duration")))
    for point in collector.points("rpc.server.call.duration"):
        assert point.attributes["rpc.system.name"] == "grpc"
        assert sum(point.buckets) == point.value
    known: set[str] = set()
    for request in list(collector.metrics):
        for text in ("invocation.id", "identity", "call.id"):
            assert text not in repr(request)
        known |= {m.name for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {"plannerd.invocations.live", "plannerd.invocations.evicted", "plannerd.decisions.open"} <= known


def test_lines_of_the_log_name_their_span(world: World) -> None:
    """The line of a call has the ids of its trace and span."""
    begun, _ = run_over_two("bdi", world.first.target, world.second.target, stream=True)
    spans = world.trace_of(begun.invocation_id)
    lines = [e for e in world.first.events() if e.get("invocation_id") == begun.invocation_id and e["event"] == "call"]
    assert lines
    by_id = {span.span_id: span for span in spans}
    for line in lines:
        assert by_id[line["span_id"]].trace_id == line["trace_id"]
        assert by_id[line["span_id"]].name == line["method"].removeprefix("/")


def test_unsampled_invocations_leave_no_spans() -> None:
    """What the sampler does not choose is not exported, on any replica; it still has a trace id, in the log too."""
    with receiving() as collector:
        environment = {**collector.environment, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
        environment["OTEL_TRACES_SAMPLER_ARG"] = "0"
        with running_server(environment=environment) as first, running_server(environment=environment) as second:
            begun, _ = run_over_two("bdi", first.target, second.target, stream=True)
            sampled, _ = run_over_two("bdi", first.target, second.target, stream=True, traceparent=CALLER)
            collector.wait_for(lambda: any(span.name.endswith("End") for span in collector.spans))
            ids = {event["trace_id"] for event in first.events() if event.get("invocation_id") == begun.invocation_id}
    assert {span.trace_id for span in collector.spans} == {CALLER.split("-")[1]}
    assert len(ids) == 1
    assert begun.steps[0].message.traceparent.endswith("-00")
    assert sampled.steps[0].message.traceparent == CALLER


def test_round_trips_to_the_store_are_spans() -> None:
    """Each round trip to the shared store is a span below its step or call, and measured; replicas share the trace."""
    with running_redis() as redis, receiving() as collector:
        config = {"store": {"url": f"redis://127.0.0.1:{redis.port}"}}
        environment = {**collector.environment, "OTEL_SERVICE_NAME": "planning"}
        with (
            running_server(config=config, environment=environment) as first,
            running_server(config=config, environment=environment) as second,
        ):
            begun, _ = run_over_two("scheduler", first.target, second.target, stream=True)
            collector.wait_for(lambda: bool(collector.points("db.client.operation.duration")))
    spans = [span for span in collector.spans if span.kind == "client" and span.name.startswith("store")]
    above = parents(collector.spans)
    assert {"store get", "store put"} <= {span.name for span in spans}
    assert {above[span.span_id].name for span in spans if span.name == "store put"} >= {"plannerd.step"}
    assert len({span.trace_id for span in collector.spans}) == 1
    assert {span.service for span in collector.spans} == {"planning"}
    assert begun.steps


def test_the_variables_of_opentelemetry_work() -> None:
    """Protocol, headers, resource attributes and limits come from the usual variables."""
    with receiving_http() as collector:
        environment = {
            **collector.environment,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=blue",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=named",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
        }
        with running_server(environment=environment) as server, Client(server.target) as client:
            client.list_planners()
            collector.wait_for(lambda: bool(collector.spans) and len(collector.metrics) > 2)
            points = collector.points("rpc.server.call.duration")
    assert {headers.get("x-tenant") for headers in collector.headers} == {"blue"}
    assert {span.service for span in collector.spans} == {"named"}
    assert collector.spans[0].attributes["rpc.system.name"] == "grp"
    assert [point.value for point in points] == [0]


@pytest.mark.parametrize(
    ("variables", "exporting"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, set()),
        ({"OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        ({"OTEL_METRICS_EXPORTER": "none"}, {"traces"}),
    ],
)
def test_signals_can_be_switched_off(variables: dict[str, str], exporting: set[str]) -> None:
    """Each signal, or all of them, can be switched off by the usual variables."""
    with receiving() as collector:
        environment = {**collector.environment, **variables}
        with running_server(environment=environment) as server, Client(server.target) as client:
            client.list_planners()
        got: dict[str, Any] = {"traces": collector.traces, "metrics": collector.metrics}
    assert {signal for signal, requests in got.items() if requests} == exporting
