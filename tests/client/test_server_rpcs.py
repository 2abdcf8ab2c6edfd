"""One method for each RPC, in both clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from plannerd_client import AsyncClient, Client
from plannerd_client.errors import InvocationNotFound, OutOfOrder, ServerUnreachable
from plannerd_protos.planner.v1 import decision_pb2, planner_pb2, value_pb2
from tests.client.conftest import Plannerd

SERVICES = (planner_pb2.DESCRIPTOR.services_by_name, decision_pb2.DESCRIPTOR.services_by_name)
RENAMED = {"run": "stream"}  # `run` is the runner


def method_names() -> list[str]:
    names = [method.name for services in SERVICES for service in services.values() for method in service.methods]
    snake = [re.sub(r"(?<=.)([A-Z])", r"_\1", name).lower() for name in names]
    return [RENAMED.get(name, name) for name in snake]


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_rpc_has_a_method(client: type[Any]) -> None:
    """No RPC of the contract is missing from a client."""
    assert method_names()
    assert [name for name in method_names() if not callable(getattr(client, name, None))] == []


class Either:
    """The RPCs of either client, called the same way."""

    def __init__(self, kind: str, **connection: Any) -> None:
        self._kind, self._connection = kind, connection

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self._kind == "sync":
            with Client(**self._connection) as client:
                return getattr(client, method)(*arguments, **options)

        async def go() -> Any:
            async with AsyncClient(**self._connection) as client:
                return await getattr(client, method)(*arguments, **options)

        return asyncio.run(go())


@pytest.fixture
def call(kind: str, server: Plannerd) -> Either:
    return Either(kind, target=server.target)


def init_request(invocation_id: str) -> planner_pb2.InitRequest:
    request = planner_pb2.InitRequest(invocation_id=invocation_id)
    request.scheduler.goal = "g"
    request.scheduler.goal_threshold = request.scheduler.activation_threshold = 0.5
    request.planner_agent.arguments.add(name="request")
    request.agents.add(name="one").arguments.add(name="request")
    return request


def test_an_invocation_by_hand(call: Either, kind: str) -> None:
    """Init, FirstAction, ExecutionState, NextAction and End are the contract's own messages."""
    invocation_id = f"by-hand-{kind}"
    opened = call("init", init_request(invocation_id))
    assert dict(opened.reads)
    scope = value_pb2.ScopeUpdate(set={"request": value_pb2.Value(string_value="x")})
    first = call(
        "first_action",
        planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=opened.position, scope=scope),
    ).step
    state = call("execution_state", planner_pb2.ExecutionStateRequest(invocation_id=invocation_id))
    assert state.step.position == first.position
    report = planner_pb2.NextActionRequest(invocation_id=invocation_id, base=first.position)
    report.results.add(call_id=first.calls[0].id).output.withheld.SetInParent()
    second = call("next_action", report).step
    assert second.action.WhichOneof("kind") == "done"
    call("end", planner_pb2.EndRequest(invocation_id=invocation_id, base=second.position))


def test_planners_are_listed(call: Either) -> None:
    """Without a request, the first page."""
    names = {planner.name for planner in call("list_planners").planners}
    assert {"scheduler", "router", "cascade", "bdi"} <= names


def test_decision_models_can_be_asked(call: Either) -> None:
    """Decide asks a model of the server."""
    request = decision_pb2.DecideRequest(model="content")
    request.input.add(name="text").value.string_value = "x"
    request.questions.add(name="q", text="Is it?").yes_no.SetInParent()
    answer = call("decide", request).answers[0]
    assert answer.yes_no.probability == 0.9


def test_errors_of_rpcs_are_typed(call: Either, kind: str) -> None:
    """A failed RPC raises the class of its reason."""
    with pytest.raises(InvocationNotFound) as caught:
        call("execution_state", planner_pb2.ExecutionStateRequest(invocation_id="nobody"))
    assert caught.value.code is grpc.StatusCode.NOT_FOUND
    assert caught.value.metadata["invocation_id"] == "nobody"
    opened = call("init", init_request(f"order-{kind}"))
    with pytest.raises(OutOfOrder):
        call("next_action", planner_pb2.NextActionRequest(invocation_id=f"order-{kind}", base=opened.position))
    with pytest.raises(ServerUnreachable):
        Either(kind, target="127.0.0.1:1")("list_planners")


def test_a_stream_is_a_method_too(server: Plannerd, kind: str) -> None:
    """Run carries the same messages, each answered by its id; errors of a request come in band."""
    invocation_id = f"stream-{kind}"
    requests = [
        planner_pb2.RunRequest(id=1, init=init_request(invocation_id)),
        planner_pb2.RunRequest(id=2, execution_state=planner_pb2.ExecutionStateRequest(invocation_id=invocation_id)),
        planner_pb2.RunRequest(id=3, end=planner_pb2.EndRequest(invocation_id=invocation_id)),
    ]

    async def each() -> AsyncIterator[planner_pb2.RunRequest]:
        for request in requests:
            yield request

    async def go() -> list[planner_pb2.RunResponse]:
        async with AsyncClient(server.target) as client:
            return [response async for response in client.stream(each())]

    if kind == "sync":
        with Client(server.target) as client:
            answers = list(client.stream(requests))
    else:
        answers = asyncio.run(go())
    kinds = [(answer.id, answer.WhichOneof("response")) for answer in answers]
    assert kinds == [(1, "init"), (2, "error"), (3, "end")]
    assert answers[1].error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]


def test_a_client_needs_a_target() -> None:
    """Neither a target nor a channel is an error at once."""
    for client in (Client, AsyncClient):
        with pytest.raises(ValueError, match="target"):
            client()
