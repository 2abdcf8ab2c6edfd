"""An execution state is data from outside: whatever comes, it is restored or refused for a known reason."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plannerd.errors import PlannerdError, Reason
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2
from tests.golden.states import first_action, resuming, state_of
from tests.support.builders import failed, output, pending, skipped, suspended
from tests.support.engine import Client
from tests.support.state_mutations import (
    broken_bytes,
    encoded,
    mutated,
)
from tests.support.states import DOCUMENTS, STATES, attempt, resumed
from tests.support.world import BELIEF, SEEDS, TAPES, Tape, bdis, cascades, routers, schedulers, world

NAMES = st.sampled_from(sorted(DOCUMENTS))


async def survives(client: Client, attach: planner_pb2.FirstActionRequest, tape: Tape) -> None:
    """What was restored answers every further request by a step that makes sense or by a known error."""
    try:
        before = await client.where()
    except PlannerdError:
        before = step_pb2.Step()
    attach.base.CopyFrom(client.position)
    try:
        await client.send(attach)
    except PlannerdError as error:
        if error.reason is Reason.INTERNAL:
            raise
        return
    makes_sense(client)
    if before.HasField("action"):
        assert client.step.action == before.action
    for _ in range(6):
        if client.kind in ("done", "give_up"):
            break
        await restorable(client)
        calls = [call.id for call in client.step.calls]
        results = [report(call, tape) for call in calls[: 1 + tape.below(3)]]
        if client.kind in ("await", "suspend") and tape.chance(3):
            results = []
        try:
            await client.next(*results, scope={"ticket": "changed"} if tape.chance(2) else {})
        except PlannerdError as error:
            if error.reason in (Reason.INTERNAL, Reason.UNKNOWN_CALL, Reason.OUT_OF_ORDER):
                raise
            if error.reason is not Reason.INVALID_REQUEST:
                break
        else:
            makes_sense(client)


def report(call: str, tape: Tape) -> planner_pb2.AgentResult:
    match tape.below(8):
        case 0:
            return pending(call)
        case 1:
            return suspended(call)
        case 2:
            return skipped(call)
        case 3 if tape.chance(2):
            return failed(call)
        case _:
            return output(call, "answer")


def makes_sense(client: Client) -> None:
    """Each call that the action names is live; and unless it is over, something is left that can move it on."""
    step = client.step
    live = {call.id for call in step.calls}
    assert len(live) == len(step.calls)
    assert set(client.named) <= live
    if client.kind in ("start", "suspend"):
        assert client.named
    if client.kind == "no_op":
        assert live


async def restorable(client: Client) -> None:
    """The state that was just written is restored on another server, at the same position."""
    other = resuming_as(client)
    reply = await other.init(client.state)
    assert reply.position == client.position


def resuming_as(client: Client) -> Client:
    """The same client at a fresh server."""
    return client.at(type(client.server)())


# ---- random damage


@settings(deadline=None)
@given(NAMES, st.data())
async def test_damaged_bytes_are_refused(name: str, data: st.DataObject) -> None:
    """A state whose bytes were cut, extended, flipped or encoded otherwise is refused for a known reason."""
    original = DOCUMENTS[name]["state"]["data"].encode()
    damaged = data.draw(broken_bytes(original))
    if await attempt(name, damaged):
        # One digit or letter of an id, a text or a count may have become another: still a state, if not the same.
        assert len(damaged) == len(original)
        assert json.loads(damaged)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(NAMES, st.data(), TAPES, SEEDS)
async def test_a_changed_state_is_refused_or_goes_on(
    name: str, data: st.DataObject, numbers: list[int], seed: int
) -> None:
    """A state with parts deleted, replaced, moved or taken from others is refused, or leads to sensible steps."""
    document = DOCUMENTS[name]
    alike = [STATES[other] for other in STATES if other.split("-")[0] == name.split("-", maxsplit=1)[0]]
    state = state_of(document)
    state.data = encoded(data.draw(mutated(STATES[name], alike)))
    client = resuming(document)
    if await resumed(client, state):
        await survives(client, first_action(document, client), Tape(numbers, seed))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(schedulers(), routers(), cascades(), bdis()), st.data(), TAPES, SEEDS)
async def test_a_changed_state_of_a_random_invocation_is_refused_or_goes_on(
    request: planner_pb2.InitRequest, data: st.DataObject, numbers: list[int], seed: int
) -> None:
    """The same holds for states of random invocations, crossed with earlier states of their own."""
    run = world(request, numbers, seed)
    await run.begin()
    states: list[dict[str, Any]] = []
    while not run.over and len(states) < 6:
        states.append(json.loads(run.client.state.data))
        await run.go_on()
    if run.seen[-1].action.startswith("refused"):
        return
    states.append(json.loads(run.client.state.data))
    client = resuming_as(run.client)
    state = step_pb2.ExecutionState()
    state.CopyFrom(run.client.state)
    state.data = encoded(data.draw(mutated(states[-1], states)))
    if await resumed(client, state):
        attach = planner_pb2.FirstActionRequest(
            invocation_id=client.invocation_id, beliefs={BELIEF: agent_pb2.BELIEF_TRUE}
        )
        await survives(client, attach, Tape(numbers, seed))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([schedulers(unique_names=True), routers(), cascades(), bdis()]), st.data(), TAPES, SEEDS)
async def test_a_state_taken_over_by_another_configuration_stays_restorable(
    kind: st.SearchStrategy[planner_pb2.InitRequest], data: st.DataObject, numbers: list[int], seed: int
) -> None:
    """A true state is taken by any configuration that has its live agents, and what follows can be restored again."""
    run = world(data.draw(kind), numbers, seed)
    await run.begin()
    for _ in range(data.draw(st.integers(0, 3))):
        if not run.over:
            await run.go_on()
    if run.seen[-1].action.startswith("refused"):
        return
    client = resuming_as(run.client)
    client.request = data.draw(kind)
    try:
        await client.init(run.client.state)
    except PlannerdError as error:
        if error.reason is not Reason.LIVE_AGENT_MISSING:
            raise
        return
    beliefs = {BELIEF: agent_pb2.BELIEF_TRUE}
    attach = planner_pb2.FirstActionRequest(invocation_id=client.invocation_id, beliefs=beliefs)
    await survives(client, attach, Tape(numbers, seed))
