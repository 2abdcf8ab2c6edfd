"""Content stays out of telemetry unless settings ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plannerd_client import AgentFailed, Cascade, Client, Router, Scheduler, agent
from plannerd_protos.planner.v1 import decision_pb2, planner_pb2, step_pb2
from tests.support.otlp import Received, receiving
from tests.support.servers import running_server

SECRET = "tangerine-9431"


@agent(output_key="found")
def tells(question: str) -> str:
    """Answers a question."""
    return f"the answer is {SECRET}"


@agent(output_key="more")
def fails(found: str) -> str:
    """Fails with what it was given."""
    raise RuntimeError(f"could not handle {SECRET}")


def provoke(target: str, streams: tuple[bool, ...]) -> list[str]:
    """Put the secret into everything that a client can send, and return what clients see of errors."""
    said: list[str] = []

    def attempt(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 (all of them are looked at)
            said.append(f"{type(error).__name__}: {error}")

    arguments = {"question": f"what is {SECRET}?"}
    options: dict[str, Any] = {"scope": {"note": SECRET}, "explain": "full", "include_input": True}
    for stream in streams:
        with Client(
            target, stream=stream, metadata=[("x-note", SECRET), ("traceparent", SECRET), ("tracestate", SECRET)]
        ) as client:
            goal = Scheduler(goal=f"Find {SECRET}", goal_threshold=0.99, activation_threshold=0.01)
            client.run(goal, [tells], arguments, **options)
            client.run(Router(), [tells, fails], arguments, **options)
            criterion = Cascade(acceptance_threshold=0.5, acceptance_criterion=f"It says {SECRET}")
            client.run(criterion, [tells, tells.__class__(tells.function, name="other")], arguments, **options)
            with pytest.raises(AgentFailed):
                client.run(goal, [tells, fails], arguments, **options)
            bad = planner_pb2.NextActionRequest(invocation_id="none", base=step_pb2.Position(epoch=1, branch=SECRET))
            bad.scope.set["note"].string_value = SECRET
            attempt(lambda: client.next_action(bad))  # noqa: B023 (called at once)
            state = planner_pb2.InitRequest(invocation_id="state")
            state.bdi.SetInParent()
            state.agents.add(name="a")
            state.state.planner = "bdi"
            state.state.format_version = 1
            state.state.data = b'{"traceparent": "%s", "marks": {"x": "%s"}}' % (SECRET.encode(), SECRET.encode())
            attempt(lambda: client.init(state))  # noqa: B023
            decide = decision_pb2.DecideRequest()
            decide.input.add(name="text").value.string_value = SECRET
            decide.questions.add(name="q", text=f"Is it {SECRET}?", yes_no={})
            client.decide(decide)
            decide.questions.add(name="broken", text="", yes_no={})
            attempt(lambda: client.decide(decide))  # noqa: B023
    return said


def exported(collector: Received, config: dict[str, Any], *streams: bool) -> tuple[list[str], str]:
    """What clients were told of errors, and the log, after the server has exported everything."""
    with running_server(config=config, environment=collector.environment) as server:
        said = provoke(server.target, streams)
        server.stop()
        log = server.log()
    return said, log


def test_a_planted_secret_is_nowhere_by_default() -> None:
    """A secret in scope, goal, state, output, error and metadata is in no span, log line, metric or error."""
    with receiving() as collector:
        said, log = exported(collector, {"log": {"level": "debug"}}, True, False)
    assert len(said) == 6
    assert len(collector.spans) > 40
    assert SECRET not in collector.everything()
    assert SECRET not in log
    assert SECRET not in "\n".join(said)


@pytest.mark.parametrize(
    ("kind", "attribute"),
    [
        ("scope", "plannerd.content.scope"),
        ("inputs", "plannerd.content.input"),
        ("outputs", "plannerd.content.outputs"),
        ("goals", "plannerd.content.goal"),
        ("questions", "plannerd.content.questions"),
    ],
)
def test_each_kind_of_content_has_a_switch(kind: str, attribute: str) -> None:
    """With its switch, one kind of content is in spans, and no other; the log and the metrics never have any."""
    with receiving() as collector:
        _, log = exported(collector, {"telemetry": {"record": {kind: True}}}, True)
    found = {name for span in collector.spans for name, value in span.attributes.items() if SECRET in str(value)}
    assert found == {attribute}
    assert SECRET not in log
    assert SECRET not in "".join(repr(request) for request in collector.metrics)
