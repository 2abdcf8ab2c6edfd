"""A confidence is recorded and never decides, however extreme it is."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.support.builders import agent, cascade, output, router, scheduler
from tests.support.engine import Client, Server
from tests.support.models import answering

CONFIDENCES = [None, 0.0, 1.0, -1.0, 1e300, sys.float_info.max, -sys.float_info.max, 5e-324]

LOOKUP, EXPERT = agent("lookup", "ticket", writes="facts"), agent("expert", "ticket", writes="advice")


def scale(mean: float, confidence: float | None) -> dict[str, Any]:
    return {"mean": mean, "confidence": confidence}


def yes(probability: float, confidence: float | None) -> dict[str, Any]:
    return {"probability": probability, "confidence": confidence}


async def run(request: planner_pb2.InitRequest, *steps: dict[str, Any]) -> list[step_pb2.Step]:
    """The steps of an invocation whose agents all answer the same."""
    client: Client = Server(answering(*steps)).client(request)
    await client.init(explain=planner_pb2.EXPLAIN_LEVEL_FULL)
    await client.first({"ticket": "t1"})
    found = [client.step]
    while client.kind == "start":
        await client.next(*[output(call_id, "out") for call_id in client.named])
        found.append(client.step)
    return found


def decided(steps: list[step_pb2.Step]) -> list[tuple[Any, ...]]:
    """What was decided, without ids."""
    return [
        (
            step.action.WhichOneof("kind"),
            [call.agent_id for call in step.calls],
            step.explanation.outcome,
            step.explanation.summary,
            list(step.explanation.agents),
            step.explanation.goal,
            len(step.action.done.result.outputs.outputs),
            list(step.warnings),
        )
        for step in steps
    ]


def recorded(steps: list[step_pb2.Step]) -> set[float | None]:
    """The confidences in the explanations."""
    found: set[float | None] = set()
    for answer in (answer for step in steps for record in step.explanation.decisions for answer in record.answers):
        kind = getattr(answer, str(answer.WhichOneof("kind")))
        found.add(kind.confidence if kind.HasField("confidence") else None)
    return found


@pytest.mark.parametrize("confidence", CONFIDENCES)
async def test_scheduler(confidence: float | None) -> None:
    """Neither the ranking of agents nor the judgement of the goal depends on a confidence."""

    def answers(sure: float | None) -> list[dict[str, Any]]:
        return [
            {"lookup": scale(2, sure), "expert": scale(1.9, sure), "goal": yes(0.59, sure)},
            {"lookup": scale(1.5, sure), "expert": scale(1.6, sure), "goal": yes(0.3, sure)},
            {"lookup": scale(3, sure), "expert": scale(3, sure), "goal": yes(0.6, sure)},
        ]

    system = scheduler(LOOKUP, EXPERT)
    steps = await run(system, *answers(confidence))
    assert decided(steps) == decided(await run(system, *answers(None)))
    assert steps[0].calls[0].agent_id == "lookup$0"
    assert recorded(steps) == {confidence}


@pytest.mark.parametrize("confidence", CONFIDENCES)
async def test_router_with_a_threshold(confidence: float | None) -> None:
    """Which agents reach the threshold does not depend on a confidence."""
    system = router(LOOKUP, EXPERT, threshold=0.5)
    steps = await run(system, {"lookup": yes(0.5, confidence), "expert": yes(0.49, confidence)})
    assert decided(steps) == decided(await run(system, {"lookup": yes(0.5, None), "expert": yes(0.49, None)}))
    assert [call.agent_id for call in steps[0].calls] == ["lookup$0"]
    assert recorded(steps) == {confidence}


@pytest.mark.parametrize("confidence", CONFIDENCES)
async def test_router_that_chooses(confidence: float | None) -> None:
    """The choice is the model's, however little it trusts it."""

    def choice(sure: float | None) -> dict[str, Any]:
        return {"value": "expert", "probabilities": {"lookup": 0.4, "expert": 0.6}, "confidence": sure}

    system = router(LOOKUP, EXPERT, threshold=None)
    steps = await run(system, {"decision-agent": choice(confidence)})
    assert decided(steps) == decided(await run(system, {"decision-agent": choice(None)}))
    assert [call.agent_id for call in steps[0].calls] == ["expert$1"]
    assert recorded(steps) == {confidence}


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("probability", [0.49, 0.5])
async def test_cascade(probability: float, confidence: float | None) -> None:
    """Whether an answer is accepted does not depend on a confidence."""
    system = cascade(LOOKUP, EXPERT, threshold=0.5)
    steps = await run(system, {"answer-accepted": yes(probability, confidence)})
    assert decided(steps) == decided(await run(system, {"answer-accepted": yes(probability, None)}))
    assert steps[1].action.WhichOneof("kind") == ("done" if probability == 0.5 else "start")
    assert recorded(steps) == {confidence}
