"""The scheduler against a second writing of its rules: same questions, same choice, same stops."""

from __future__ import annotations

from hypothesis import given, settings

from plannerd_protos.planner.v1 import planner_pb2
from tests.support.scheduler_model import EmptyInputError, Expected, SchedulerModel
from tests.support.world import SEEDS, TAPES, World, grid_answers, schedulers, world


def compare(run: World, expected: Expected) -> None:
    """The last step that the client saw is as the rules have it."""
    seen = run.seen[-1]
    assert (seen.action, seen.result) == (expected.action, expected.result)
    assert list(seen.agents) == expected.agents
    assert list(seen.keys) == expected.keys
    assert list(seen.live) == expected.live
    assert [[name for name, _ in request] for request in seen.asked] == expected.asked
    assert [[name for name, _ in request] for request in seen.inputs] == expected.inputs


@settings(deadline=None)
@given(schedulers(), TAPES, SEEDS)
async def test_the_scheduler_follows_its_rules(request: planner_pb2.InitRequest, tape: list[int], seed: int) -> None:
    """Whatever the agents and the client do, each step asks, chooses, waits and stops as the rules say."""
    run = world(request, tape, seed)
    rules = SchedulerModel(request, grid_answers(seed))
    await run.begin()
    try:
        compare(run, rules.first(run.scope, run.beliefs))
        while not run.over:
            rules.issued(run.client.named if run.client.kind == "start" else [])
            event = await run.go_on()
            compare(run, rules.next(event.scope, event.removed, event.results, run.beliefs))
    except EmptyInputError:
        assert run.seen[-1].action == "refused EMPTY_DECISION_INPUT"
