"""What operators see and do: permissions, filters, pages, explanations within bounds, and no content."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.commands import StepEvent
from plannerd.invocations.history import History
from plannerd.invocations.operations import Operations
from plannerd.services.context import CallContext
from plannerd.services.operator_service import OperatorService
from plannerd_protos.planner.v1 import operator_pb2, planner_pb2, step_pb2
from tests.support.builders import agent, output, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
OPERATOR = CallContext("ops", operator=True)
SECRET = "tangerine-4711"

List, Get, End = (
    operator_pb2.ListInvocationsRequest,
    operator_pb2.GetInvocationRequest,
    operator_pb2.EndInvocationRequest,
)


class World:
    """A server with operators."""

    def __init__(self, each: int = 5, max_bytes: int = 1 << 20, *, content: bool = False) -> None:
        self.history = History(each, max_bytes, content=content)
        self.server = Server(answering(lookup=3, expert=3), observe=self.history.note)
        operations = Operations(self.server.engine, self.server.store, self.history)
        self.service = OperatorService(operations, content=content)

    async def started(self, invocation_id: str = "i1", identity: str = "me", **options: Any) -> Client:
        """An invocation whose first agent runs."""
        request = planner_pb2.InitRequest()
        request.CopyFrom(SYSTEM)
        for name, value in options.items():
            setattr(request, name, value)
        client = self.server.client(request, invocation_id, identity)
        await client.init()
        await client.first({"ticket": SECRET})
        return client

    async def listed(self, call: CallContext = OPERATOR, **wanted: Any) -> list[str]:
        """The ids of all pages."""
        request = List(filter=operator_pb2.InvocationFilter(**wanted), page_size=2)
        found: list[str] = []
        while True:
            page = await self.service.ListInvocations(request, call)
            found += [summary.invocation_id for summary in page.invocations]
            request.page_token = page.next_page_token
            if not request.page_token:
                return sorted(found)

    async def shown(self, invocation_id: str = "i1", identity: str = "me") -> operator_pb2.GetInvocationResponse:
        return await self.service.GetInvocation(Get(identity=identity, invocation_id=invocation_id), OPERATOR)


async def reason_of(call: Any) -> Reason:
    with pytest.raises(PlannerdError) as caught:
        await call
    return caught.value.reason


async def test_only_operators_may() -> None:
    """Who is no operator may not list, show or end anything, not even what is theirs."""
    world = World()
    await world.started()
    me, key = CallContext("me"), {"identity": "me", "invocation_id": "i1"}
    assert await reason_of(world.service.ListInvocations(List(), me)) is Reason.PERMISSION_DENIED
    assert await reason_of(world.service.GetInvocation(Get(**key), me)) is Reason.PERMISSION_DENIED
    assert await reason_of(world.service.EndInvocation(End(reason="x", **key), me)) is Reason.PERMISSION_DENIED
    assert await world.listed() == ["i1"]


async def test_it_can_be_off() -> None:
    """A server without operators says that the service is switched off, to everybody."""
    service = OperatorService(None, everybody=True)
    assert await reason_of(service.ListInvocations(List(), OPERATOR)) is Reason.SWITCHED_OFF


async def test_filters() -> None:
    """Each filter lets through what is like that, and nothing else."""
    world = World()
    await world.started("order-1", "a")
    await (await world.started("order-2", "b")).end()
    other = world.server.client(SYSTEM, "ticket-1", "")
    await other.init()
    running, ready = operator_pb2.INVOCATION_STATUS_RUNNING, operator_pb2.INVOCATION_STATUS_READY
    assert await world.listed() == ["order-1", "order-2", "ticket-1"]
    assert await world.listed(statuses=[running]) == ["order-1"]
    assert await world.listed(statuses=[running, ready]) == ["order-1", "ticket-1"]
    assert await world.listed(statuses=[operator_pb2.INVOCATION_STATUS_ENDED]) == ["order-2"]
    assert await world.listed(identity="") == ["ticket-1"]
    assert await world.listed(identity="b") == ["order-2"]
    assert await world.listed(invocation_id_prefix="order-") == ["order-1", "order-2"]
    assert await world.listed(planner="scheduler", model="test") == ["order-1", "order-2", "ticket-1"]
    assert await world.listed(planner="router") == []
    assert await world.listed(model="other") == []
    request = List()
    request.filter.min_age.seconds = 3600
    assert not (await world.service.ListInvocations(request, OPERATOR)).invocations


async def test_pages_are_bounded() -> None:
    """However many invocations a filter keeps out, a page ends after a bounded number of them, with a next one."""
    world = World()
    for number in range(2500):
        await world.server.client(SYSTEM, f"i{number}").init()
    page = await world.service.ListInvocations(
        List(filter=operator_pb2.InvocationFilter(planner="router"), page_size=500), OPERATOR
    )
    assert not page.invocations
    assert page.next_page_token


@pytest.mark.parametrize(
    "request_",
    [
        List(page_token="tangerine"),
        List(page_token="WzEsIngiLCJ5Il0"),
        List(page_size=-1),
        List(page_size=501),
        List(filter=operator_pb2.InvocationFilter(statuses=[99])),  # type: ignore[list-item]
    ],
    ids=["no token", "of another filter", "negative", "too many", "no status"],
)
async def test_bad_lists_are_refused(request_: operator_pb2.ListInvocationsRequest) -> None:
    """A token that nobody gave out, or a filter that means nothing, is an invalid request."""
    assert await reason_of(World().service.ListInvocations(request_, OPERATOR)) is Reason.INVALID_REQUEST


async def test_tokens_belong_to_their_replica() -> None:
    """A token of one replica's memory is refused by another one."""
    here, there = World(), World()
    for number in range(3):
        await here.started(f"i{number}")
    page = await here.service.ListInvocations(List(page_size=1), OPERATOR)
    request = List(page_size=1, page_token=page.next_page_token)
    assert await reason_of(there.service.ListInvocations(request, OPERATOR)) is Reason.INVALID_REQUEST


async def test_an_invocation_is_shown_with_its_reasons() -> None:
    """One sees where it stands, what is live, and the scores of its last steps."""
    world = World()
    client = await world.started()
    shown = await world.shown()
    assert shown.summary.status == operator_pb2.INVOCATION_STATUS_RUNNING
    assert [(call.agent_id, call.status) for call in shown.calls] == [
        ("lookup$0", step_pb2.CALL_STATUS_OUTSTANDING),
    ]
    [step] = shown.steps
    assert step.position == client.position
    assert step.explanation.outcome == step_pb2.STEP_OUTCOME_CALLED
    assert step.explanation.agents[0].score == 1.0
    assert shown.summary.began_at.ToSeconds() > 0


async def test_nothing_of_the_content_is_shown() -> None:
    """With everything explained to the client, operators see no value, question, answer or input, and none is kept."""
    world = World()
    await world.started(explain=planner_pb2.EXPLAIN_LEVEL_FULL, include_input=True)
    shown = await world.shown()
    assert SECRET not in str(shown)
    [step] = shown.steps
    assert step.explanation.decisions
    for decision in step.explanation.decisions:
        assert not [*decision.questions, *decision.answers, *decision.input]
    assert SECRET not in repr(world.history.of(("me", "i1")))


async def test_content_can_be_shown() -> None:
    """Where the operator wants it, and the client asked for it, questions and inputs are there."""
    world = World(content=True)
    await world.started(explain=planner_pb2.EXPLAIN_LEVEL_FULL, include_input=True)
    assert SECRET in str(await world.shown())
    world = World(content=True)
    await world.started(explain=planner_pb2.EXPLAIN_LEVEL_SUMMARY)
    assert SECRET not in str(await world.shown())


async def test_the_last_step_of_another_replica_is_shown_without_content() -> None:
    """Where this replica remembers nothing, the last step comes from what is kept, without content."""
    world = World(each=0)
    await world.started(explain=planner_pb2.EXPLAIN_LEVEL_FULL, include_input=True)
    shown = await world.shown()
    assert len(shown.steps) == 1
    assert shown.steps[0].explanation.agents
    assert SECRET not in str(shown)


async def test_only_the_last_explanations_are_kept() -> None:
    """Of one invocation as many as set are kept, and of all as many as fit into the bytes."""
    world = World(each=2)
    client = await world.started()
    await client.next(output(client.call("lookup"), "f"))
    await client.next(output(client.call("expert"), "a"))
    notes = world.history.of(("me", "i1"))
    assert [note.reply.position.revision for note in notes] == [2, 3]
    small = World(each=2, max_bytes=4000)
    for number in range(20):
        await small.started(f"i{number}")
    assert small.history.bytes <= 4000
    assert small.history.of(("me", "i19"))
    assert not small.history.of(("me", "i0"))


def a_system(agents: int) -> planner_pb2.InitRequest:
    return scheduler(*(agent(f"agent-{number}", "ticket", writes=f"k{number}") for number in range(agents)))


@pytest.mark.parametrize("agents", [3, 50])
async def test_explanations_are_reckoned_about_right(agents: int) -> None:
    """What explanations are taken to need is what they need, within a factor of two and a half."""
    events: list[StepEvent] = []
    server = Server(answering(**{f"agent-{number}": 1 for number in range(agents)}), observe=events.append)
    history = History(100, 1 << 30)
    for number in range(40):  # once, so that everything shared is there
        await server.started(a_system(agents), invocation_id=f"warm{number}")
    events.clear()
    tracemalloc.start()
    try:
        for number in range(200):
            await server.started(a_system(agents), invocation_id=f"i{number}")
            history.note(events.pop())
            await server.store.drop(("me", f"i{number}"), (await server.store.get(("me", f"i{number}"))))  # type: ignore[arg-type]
        with_notes = tracemalloc.get_traced_memory()[0]
        reckoned = history.bytes
        history._notes.clear()
        needed = with_notes - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 1 / 2.5 < reckoned / needed < 2.5, (reckoned, needed, sys.version)


async def test_an_operator_ends_an_invocation() -> None:
    """Its client is told, with the reason, at its next request; whoever looks sees who ended it, and why."""
    world = World()
    client = await world.started()
    request = End(identity="me", invocation_id="i1", reason="it loops")
    ended = await world.service.EndInvocation(request, OPERATOR)
    assert ended.previous_status == operator_pb2.INVOCATION_STATUS_RUNNING
    with refused(Reason.INVOCATION_ENDED) as caught:
        await client.next(output(client.call("lookup"), "f"))
    assert "by an operator (it loops)" in str(caught.error)
    assert caught.metadata["ended_by"] == "operator"
    shown = await world.shown()
    assert (shown.summary.ending.by_operator, shown.summary.ending.operator) == (True, "ops")
    assert shown.summary.ending.message == "it loops"
    again = await world.service.EndInvocation(request, OPERATOR)
    assert again.previous_status == operator_pb2.INVOCATION_STATUS_ENDED


@pytest.mark.parametrize("reason", ["", "  ", "a\nb", "x" * 501])
async def test_a_reason_is_needed(reason: str) -> None:
    """Who ends an invocation says why, in a line."""
    request = End(identity="me", invocation_id="i1", reason=reason)
    assert await reason_of(World().service.EndInvocation(request, OPERATOR)) is Reason.INVALID_REQUEST


async def test_what_is_not_there_is_not_found() -> None:
    """An invocation of another identity, or of none, is not found."""
    world = World()
    await world.started()
    for key in ({"identity": "you", "invocation_id": "i1"}, {"identity": "me", "invocation_id": "i2"}):
        assert await reason_of(world.service.GetInvocation(Get(**key), OPERATOR)) is Reason.INVOCATION_NOT_FOUND
        request = End(reason="x", **key)
        assert await reason_of(world.service.EndInvocation(request, OPERATOR)) is Reason.INVOCATION_NOT_FOUND


async def test_how_a_client_ended_it_is_shown() -> None:
    """The outcome that a client gives is shown; its message only where content is."""
    for content in (False, True):
        world = World(content=content)
        world.server.engine._keep_messages = content
        await world.started()
        request = planner_pb2.EndRequest(
            invocation_id="i1", outcome=planner_pb2.END_OUTCOME_FAILED, message=f"because of {SECRET}"
        )
        await world.server.service.End(request, CallContext("me"))
        ending = (await world.shown()).summary.ending
        assert ending.outcome == planner_pb2.END_OUTCOME_FAILED
        assert (SECRET in ending.message) is content
