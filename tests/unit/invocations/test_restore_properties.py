"""Moving an invocation to another server after every step makes no difference to what agents are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from plannerd.values import ScopeValue
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import failed
from tests.support.engine import Client, Server
from tests.support.models import FunctionModel
from tests.support.world import (
    SEEDS,
    TAPES,
    Hop,
    Seen,
    Tape,
    World,
    bdis,
    cascades,
    grid_answers,
    routers,
    schedulers,
    world,
)


def hop(order: Random | None = None) -> Hop:
    """Resume on a fresh server and attach; the state stays the same, and nothing is decided.

    Args:
        order: shuffles the declaration of the agents, if given.
    """

    async def move(client: Client, scope: Mapping[str, ScopeValue], beliefs: Mapping[str, bool]) -> Client:
        other = client.at(Server(client.server.model))
        if order is not None:
            agents = list(client.request.agents)
            order.shuffle(agents)
            other.request = planner_pb2.InitRequest()
            other.request.CopyFrom(client.request)
            del other.request.agents[:]
            other.request.agents.extend(agents)
        before, decisions = client.step, client.server.decisions
        await other.resume(scope, beliefs=beliefs)
        assert other.server.decisions == decisions
        assert other.position == client.position
        assert other.step.action == before.action
        if order is None:
            assert other.step.calls == before.calls
            assert other.state.data == before.state.data
        return other

    return move


async def check(request: planner_pb2.InitRequest, tape: Sequence[int], seed: int) -> None:
    """The run that moves after each step sees what the run that stays sees."""
    straight = await world(request, tape, seed).run()
    moving = await world(request, tape, seed).run(hop())
    assert moving == straight


@settings(deadline=None)
@given(schedulers(), TAPES, SEEDS)
async def test_a_scheduler_that_moves_after_each_step_does_the_same(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """Whatever its agents do, a scheduler restored after each step acts, asks and ends as one that stays."""
    await check(request, tape, seed)


@settings(deadline=None)
@given(routers(), TAPES, SEEDS)
async def test_a_router_that_moves_after_each_step_does_the_same(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """Whatever its agents do, a router restored after each step acts, asks and ends as one that stays."""
    await check(request, tape, seed)


@settings(deadline=None)
@given(cascades(), TAPES, SEEDS)
async def test_a_cascade_that_moves_after_each_step_does_the_same(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """Whatever its agents do, a cascade restored after each step acts, asks and ends as one that stays."""
    await check(request, tape, seed)


@settings(deadline=None)
@given(bdis(), TAPES, SEEDS)
async def test_a_bdi_planner_that_moves_after_each_step_does_the_same(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """Whatever its agents do, a BDI planner restored after each step acts and ends as one that stays."""
    await check(request, tape, seed)


def unordered(seen: list[Seen]) -> list[Seen]:
    """What was seen, without the orders that follow from the order of declaration."""
    return [
        replace(
            step,
            agents=tuple(sorted(step.agents)),
            keys=tuple(sorted(step.keys)),
            result=" ".join(sorted(step.result.split())),
            asked=tuple(tuple(sorted(request)) for request in step.asked),
            inputs=tuple(tuple(sorted(request)) for request in step.inputs),
        )
        for step in seen
    ]


@settings(deadline=None)
@given(schedulers(unique_names=True), TAPES, SEEDS)
async def test_a_scheduler_does_not_depend_on_the_order_of_declaration(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """With its agents shuffled before each restore, and no ties, a scheduler calls the same agents by name."""
    straight = await world(request, tape, seed, ties=False).run()
    shuffled = await world(request, tape, seed, ties=False).run(hop(Random(seed)))
    assert unordered(shuffled) == unordered(straight)


@settings(deadline=None)
@given(bdis(), TAPES, SEEDS)
async def test_a_bdi_planner_does_not_depend_on_the_order_of_declaration(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """With its agents shuffled before each restore, a BDI planner calls the same agents by name."""
    straight = await world(request, tape, seed, ties=False).run()
    shuffled = await world(request, tape, seed, ties=False).run(hop(Random(seed)))
    assert unordered(shuffled) == unordered(straight)


class Secretive(World):
    """A world in which every value, output and message of a failure is a secret."""

    def _value(self, key: str, need: int = 0) -> ScopeValue:
        return f"secret {self.tape.below(5)}"

    def _report(self, call_id: str, outcome: str, value: ScopeValue) -> planner_pb2.AgentResult:
        return failed(call_id, "Kind", "secret") if outcome == "failed" else super()._report(call_id, outcome, value)


@settings(deadline=None)
@given(st.one_of(schedulers(), routers(), cascades(), bdis()), TAPES, SEEDS)
async def test_nothing_of_the_scope_is_in_a_reply(request: planner_pb2.InitRequest, tape: list[int], seed: int) -> None:
    """Neither the state nor anything else of a reply has values or outputs, unless a client asks for inputs."""
    client = Server(FunctionModel(grid_answers(seed))).client(request)
    run = Secretive(client, Tape(tape, seed))
    await run.begin()
    assert b"secret" not in client.reply
    while not run.over:
        await run.go_on()
        assert b"secret" not in client.reply
