"""Bugs inside the real parts: whatever breaks, no text of it reaches a client."""

import grpc
import grpc.aio
import pytest

from plannerd.app import build
from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import DecisionRequest
from plannerd.invocations.engine import Engine
from plannerd.services.failures import INTERNAL_TEXT
from plannerd.settings import Settings
from plannerd_protos.planner.v1 import agent_pb2, decision_pb2, decision_pb2_grpc, planner_pb2, step_pb2
from tests.support.errors import seen
from tests.support.services import Serving, serving

SECRET = "tangerine"


class BrokenModel:
    """A decision model with a bug."""

    provider = "broken"
    repeatable = False
    limits = ModelLimits()

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        raise RuntimeError(SECRET)

    async def close(self) -> None:
        pass


@pytest.fixture
def broken_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plannerd.app.build_model", lambda path, chosen: BrokenModel())


def check(error: grpc.aio.AioRpcError, running: Serving) -> None:
    """The client got nothing but an id, and the log has the cause under it, without its text."""
    answer = seen(error)
    assert (answer.code, answer.text, answer.reason) == (grpc.StatusCode.INTERNAL, INTERNAL_TEXT, "INTERNAL")
    assert SECRET not in repr(error)
    [logged] = running.events("unexpected_error")
    assert logged["correlation_id"] == answer.metadata["correlation_id"]
    assert "RuntimeError" in logged["exception"]
    assert SECRET not in running.log().replace(f"RuntimeError({SECRET!r})", "")


@pytest.mark.usefixtures("broken_model")
async def test_a_bug_in_a_model() -> None:
    """An unexpected error of a decision model becomes INTERNAL with a fixed text."""
    request = decision_pb2.DecideRequest(
        input=[decision_pb2.InputField(name="a")], questions=[decision_pb2.Question(name="q", text="?")]
    )
    request.input[0].value.string_value = "b"
    request.questions[0].yes_no.SetInParent()
    async with serving(*build(Settings()).services) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await decision_pb2_grpc.DecisionModelServiceStub(running.channel).Decide(request)
    check(caught.value, running)


@pytest.mark.usefixtures("broken_model")
async def test_a_bug_in_a_model_under_a_planner() -> None:
    """The same error inside a step becomes INTERNAL with a fixed text."""
    init = planner_pb2.InitRequest(
        invocation_id="x",
        planner_agent=agent_pb2.PlannerAgent(arguments=[agent_pb2.Argument(name="request")], output_key="result"),
        agents=[agent_pb2.Agent(name="writer", text="Writes.", output_key="result")],
    )
    init.scheduler.goal = "A letter is written"
    init.scheduler.goal_threshold = init.scheduler.activation_threshold = 0.5
    async with serving(*build(Settings()).services) as running:
        started = await running.planner.Init(init)
        first = planner_pb2.FirstActionRequest(invocation_id="x", base=started.position)
        first.scope.set["request"].string_value = "write"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.planner.FirstAction(first)
    check(caught.value, running)


@pytest.mark.usefixtures("broken_model")
async def test_a_bug_in_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error of the engine becomes INTERNAL with a fixed text."""

    async def first_action(self: Engine, *arguments: object) -> bytes:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(Engine, "first_action", first_action)
    async with serving(*build(Settings()).services) as running:
        request = planner_pb2.FirstActionRequest(invocation_id="x", base=step_pb2.Position(epoch=1, branch="b"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.planner.FirstAction(request)
    check(caught.value, running)
