"""Rows 15 to 17 of the contract's state table: the first action, and attaching to what is under way."""

from __future__ import annotations

import pytest

from plannerd.errors import Reason
from plannerd.values import PENDING
from tests.support.builders import agent, output, pending, router, scheduler, suspended
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
FETCH = scheduler(agent("fetcher", "ticket", writes="page", async_=True), agent("expert", "page", writes="advice"))
ASK = scheduler(agent("approver", "ticket", writes="approval", human=True), agent("expert", "approval"))
PARALLEL = router(
    agent("billing", "ticket", writes="bill"),
    agent("fetcher", "ticket", writes="page", async_=True),
    agent("approver", "ticket", writes="approval", human=True),
)
TICKET = {"ticket": "t1"}


async def running(system: object = SYSTEM) -> Client:
    """Running the first agent of one of the systems above."""
    model = answering(lookup=3, fetcher=3, approver=3, expert=3)
    return await Server(model).started(system)  # type: ignore[arg-type]


async def awaiting() -> Client:
    """Awaiting the output of `fetcher`."""
    client = await running(FETCH)
    await client.next(pending(client.call("fetcher")))
    assert client.kind == "await"
    return client


async def suspended_() -> Client:
    """Suspended for the answer of `approver`."""
    client = await running(ASK)
    await client.next(suspended(client.call("approver")))
    assert client.kind == "suspend"
    return client


async def three_running() -> Client:
    """Running all agents of PARALLEL at the same time."""
    client = await Server(answering(billing=0.9, fetcher=0.9, approver=0.9)).started(PARALLEL)
    assert client.agents == {"billing": "outstanding", "fetcher": "outstanding", "approver": "outstanding"}
    return client


def input_of(client: Client, decision: int = -1) -> dict[str, object]:
    """The input of one of the decisions made so far."""
    return {field.name: field.value for field in client.server.model.asked[decision].input}


def questions_of(client: Client, decision: int = -1) -> list[str]:
    """The questions of one of the decisions made so far."""
    return [question.name for question in client.server.model.asked[decision].questions]


# ---- rows 15 and 16: READY


async def test_row_15_next_action_before_the_first_action_is_out_of_order() -> None:
    """A NextAction before the FirstAction is refused, and the FirstAction still works."""
    client = Server(answering(lookup=3)).client(SYSTEM)
    await client.init()
    with refused(Reason.OUT_OF_ORDER):
        await client.next()
    assert client.server.decisions == 0
    await client.first(TICKET)
    assert client.agents == {"lookup": "outstanding"}


async def test_row_15_next_action_before_a_resumed_client_gave_its_scope_is_out_of_order() -> None:
    """After a resume the scope must come first: a NextAction before it is refused."""
    client = await running()
    other = client.at(Server(answering(expert=3)))
    await other.init(client.state)
    with refused(Reason.OUT_OF_ORDER):
        await other.next(output(client.call("lookup"), "f1"))
    await other.first(TICKET)
    await other.next(output(client.call("lookup"), "f1"))
    assert other.agents == {"expert": "outstanding"}


async def test_execution_state_before_the_first_action_is_out_of_order() -> None:
    """There is no last step to tell before the first one was made."""
    client = Server().client(SYSTEM)
    await client.init()
    with refused(Reason.OUT_OF_ORDER):
        await client.where()


async def test_row_16_the_first_action_is_the_planner_s() -> None:
    """FirstAction on a fresh invocation asks the planner: one decision, and the call that came of it."""
    client = await running()
    assert client.kind == "start"
    assert client.agents == client.live == {"lookup": "outstanding"}
    assert client.position.revision == 1
    assert questions_of(client) == ["lookup", "goal"]
    assert input_of(client) == {"ticket": "t1"}


async def test_row_16_call_ids_say_where_they_were_issued() -> None:
    """A call id is the branch, the revision of the step that issued it, and its place there."""
    client = await three_running()
    here = client.position
    assert client.named == [f"{here.branch}.{here.revision}.{index}" for index in range(3)]


# ---- row 17: attach


@pytest.mark.parametrize("state", ["running", "awaiting", "suspended"])
async def test_row_17_first_action_on_a_live_invocation_attaches(state: str) -> None:
    """FirstAction on a live invocation decides nothing: it answers action, live calls and position as they are."""
    client = await {"running": running, "awaiting": awaiting, "suspended": suspended_}[state]()
    before, decisions = client.step, client.server.decisions
    step = await client.first({"ticket": "t2", "page": PENDING, "approval": PENDING})
    assert step.action == before.action
    assert step.calls == before.calls
    assert step.position == before.position
    assert client.server.decisions == decisions


async def test_row_17_attaching_may_be_repeated() -> None:
    """A client that attaches again and again, with the scope that the server knows, gets the very state that it had."""
    client = await running()
    await client.next(output(client.call("lookup"), "f1"))
    before = client.state
    for _ in range(3):
        step = await client.first({"ticket": "t1", "facts": "f1"})
        assert step.state == before
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "done"


async def test_row_17_the_last_of_two_snapshots_counts() -> None:
    """Each attach replaces the scope of the one before."""
    client = await running()
    await client.first({"ticket": "t2", "facts": "f0"})
    await client.first({"ticket": "t1"})
    await client.next(output(client.call("lookup"), None))
    assert client.kind == "done", "lookup has not changed, expert has no facts"
    assert client.server.decisions == 1


async def test_row_17_a_step_that_was_answered_can_be_repeated_after_an_attach() -> None:
    """Attaching does not lose the stored answer: the request before it is still a repeat."""
    client = await running()
    await client.next(output(client.call("lookup"), "f1"))
    request, reply = client.sent, client.reply
    await client.first({"ticket": "t1", "facts": "f1"})
    assert await client.send_raw(request) == reply


async def test_row_17_attach_answers_every_live_call() -> None:
    """The answer to an attach has the live calls that the current action does not name, too."""
    client = await three_running()
    await client.next(output(client.call("billing"), "b1"))
    await client.next(pending(client.call("fetcher")))
    assert client.kind == "no_op"
    await client.first(TICKET)
    assert client.live == {"fetcher": "pending", "approver": "outstanding"}


async def test_row_17_the_snapshot_replaces_every_key() -> None:
    """Keys that the snapshot of an attach leaves out are gone, others have its values."""
    system = scheduler(
        agent("lookup", "ticket", writes="facts"), agent("expert", "hint?"), arguments=("ticket", "hint")
    )
    client = await Server(answering(lookup=3)).started(system, {"ticket": "t1", "hint": "h1"})
    await client.first({"ticket": "t2"})
    await client.next(output(client.call("lookup"), "f1"))
    assert input_of(client) == {"ticket": "t2", "hint": None, "facts": "f1"}


async def test_row_17_a_key_that_changed_before_the_attach_counts_as_changed() -> None:
    """What differs in the snapshot from what the planner knew re-arms its readers, as any change does."""
    client = await running()
    await client.first({"ticket": "t2"})
    await client.next(output(client.call("lookup"), "f1"))
    assert questions_of(client) == ["lookup", "expert", "goal"]


async def test_row_17_a_key_that_is_as_it_was_does_not_count_as_changed() -> None:
    """A snapshot with the same values, if written otherwise, re-arms nobody."""
    system = scheduler(agent("lookup", "order", writes="facts"), agent("expert", "facts"), arguments=("ticket",))
    client = await Server(answering(lookup=3)).started(system, {"ticket": "t1", "order": {"id": 7, "lines": [1, 2]}})
    await client.first({"ticket": "t1", "order": {"lines": [1.0, 2.0], "id": 7.0}})
    await client.next(output(client.call("lookup"), "f1"))
    assert questions_of(client) == ["expert", "goal"]


async def test_row_17_an_awaited_output_that_came_with_the_snapshot_is_decided_on_at_the_next_step() -> None:
    """An attach does not decide even if what was awaited is in its snapshot; asking again does."""
    client = await awaiting()
    await client.first({"ticket": "t1", "page": "p1"})
    assert client.kind == "await"
    assert client.server.decisions == 1
    await client.next()
    assert client.agents == {"expert": "outstanding"}
    assert input_of(client) == {"ticket": "t1", "page": "p1"}


async def test_row_17_an_output_on_its_way_stays_pending_where_the_snapshot_says_so() -> None:
    """A snapshot that has an awaited key as pending changes nothing: it is still awaited, by the same call."""
    client = await awaiting()
    await client.first({"ticket": "t1", "page": PENDING})
    await client.next()
    assert client.kind == "await"
    assert client.live == {"fetcher": "pending"}


async def test_row_17_a_snapshot_removes_nothing_by_name() -> None:
    """FirstAction has a snapshot, so keys to remove are refused."""
    client = await running()
    request = client.sent
    assert request is not None
    request.base.CopyFrom(client.position)
    request.scope.removed.append("facts")
    with refused(Reason.INVALID_REQUEST) as caught:
        await client.send(request)
    assert caught.fields == ["scope.removed"]
