"""Conditions on present keys and on beliefs, as they decide which agents may run."""

from __future__ import annotations

import pytest

from plannerd.errors import Reason
from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text
from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.support.builders import Beliefs, agent, bdi, desire, output, router, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

GUARDED = scheduler(agent("guarded", "ticket", when_present="key"), agent("other", "ticket"))
BELIEVED = scheduler(agent("believer", "ticket", writes="facts", when_believed="it rains"), agent("other", "ticket"))


def asked(client: Client) -> list[str]:
    """The questions of the last decision."""
    return [question.name for question in client.server.model.asked[-1].questions]


async def believing(holds: bool | None) -> Client:
    client = Server(answering(other=3)).client(BELIEVED)
    await client.init()
    await client.first({"ticket": "t1"}, beliefs={"it rains": holds})
    return client


@pytest.mark.parametrize(
    ("value", "present"),
    [
        (None, False), ("", False), (" \u2003", False), (Text("\t"), False), ("x", True), (0, True), (False, True),
        ([], True), ({}, True), (b"", True), (Image("image/png", b"x"), True), (Opaque(b""), True), (PENDING, True),
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
async def test_a_key_is_present_when_its_value_is_neither_null_nor_blank(value: ScopeValue, present: bool) -> None:
    """An agent that runs only where a key is present is a candidate for every value but null and blank text."""
    client = await Server(answering(other=3)).started(GUARDED, {"ticket": "t1", "key": value})
    assert asked(client) == (["guarded", "other", "goal"] if present else ["other", "goal"])


async def test_an_absent_key_is_not_present() -> None:
    """A key that was never sent, or was removed, is not present."""
    client = await Server(answering(other=3)).started(GUARDED)
    assert asked(client) == ["other", "goal"]
    call = client.call("other")
    await client.next(output(call, None), scope={"key": "there", "ticket": "t2"})
    assert asked(client) == ["guarded", "other", "goal"]
    await client.next(output(client.call("other"), None), removed=("key",), scope={"ticket": "t3"})
    assert asked(client) == ["other", "goal"]


async def test_a_condition_that_changes_rearms_nobody() -> None:
    """An agent that ran is not a candidate again only because its condition went from true to false and back."""
    client = await Server(answering({"guarded": 3})).started(GUARDED, {"ticket": "t1", "key": "there"})
    await client.next(output(client.call("guarded"), None), scope={"key": "changed"})
    assert asked(client) == ["other", "goal"]


async def test_init_names_each_belief_once() -> None:
    """Init names every belief that a condition needs, once, whoever needs it."""
    system = bdi(
        agent("a", when_believed="it rains"),
        agent("b", when_believed="it rains"),
        desires=(desire("d", "a", "b", achievable="go", satisfied="end"),),
    )
    system.bdi.desires[0].satisfied.belief = "it is done"
    reply = await Server().client(system).init()
    assert sorted(reply.beliefs) == ["it is done", "it rains"]


async def test_a_belief_decides_whether_an_agent_is_a_candidate() -> None:
    """An agent whose belief holds is asked about, one whose belief does not hold is not."""
    assert asked(await believing(True)) == ["believer", "other", "goal"]
    assert asked(await believing(False)) == ["other", "goal"]


async def test_a_belief_counts_as_it_was_at_each_step() -> None:
    """Beliefs are those that came with the request: nothing is remembered of earlier ones."""
    client = await believing(False)
    await client.next(
        output(client.call("other"), None), scope={"ticket": "t2"}, beliefs={"it rains": True, "another": None}
    )
    assert asked(client) == ["believer", "other", "goal"]


async def test_a_failed_belief_fails_the_step_and_is_named() -> None:
    """A belief that could not be evaluated is neither true nor false: the step fails, naming agent and belief."""
    with refused(Reason.CONDITION_FAILED) as caught:
        await believing(None)
    assert caught.metadata == {"subject": "believer$0", "condition": "belief: it rains"}


async def test_a_failed_belief_of_an_agent_that_can_not_run_anyway_does_not_matter() -> None:
    """A condition is evaluated only where it matters: an agent without its arguments is no candidate anyway."""
    system = scheduler(agent("believer", "missing", when_believed="it rains"), agent("other", "ticket"))
    client = Server(answering(other=3)).client(system)
    await client.init()
    await client.first({"ticket": "t1"}, beliefs={"it rains": None})
    assert asked(client) == ["other", "goal"]


@pytest.mark.parametrize("found", [{}, {"it rains": 0}, {"it rains": 9}], ids=["missing", "unspecified", "unknown"])
async def test_a_belief_that_says_nothing_is_refused(found: dict[str, int]) -> None:
    """A belief that is missing, unspecified or of an unknown value is refused, never taken as false."""
    client = await believing(True)
    request = planner_pb2.NextActionRequest(
        invocation_id="i1", base=client.position, results=[output(client.call("other"), None)]
    )
    for name, value in found.items():
        request.beliefs[name] = value  # type: ignore[assignment]
    with refused(Reason.MISSING_BELIEF, Reason.INVALID_REQUEST) as caught:
        await client.send(request)
    assert caught.fields == ["beliefs[it rains]"]


async def test_full_explanations_say_what_conditions_came_to() -> None:
    """A full explanation has each condition that was evaluated with its outcome, and no value of the scope."""
    client = Server(answering(other=3)).client(GUARDED)
    await client.init(explain=planner_pb2.EXPLAIN_LEVEL_FULL)
    await client.first({"ticket": "t1", "key": "a secret"})
    (found,) = client.step.explanation.conditions
    assert found == step_pb2.ConditionOutcome(subject="guarded$0", condition="present: key", holds=True)


async def test_a_router_offers_only_active_agents() -> None:
    """Inactive agents are no options; with one active agent nothing is asked, with none the router gives up."""

    async def options(scope: dict[str, ScopeValue]) -> Client:
        system = router(
            agent("a", when_present="x"), agent("b", when_present="y"), agent("c", when_present="y"), threshold=None
        )
        return await Server(answering({"decision-agent": "b"})).started(system, {"ticket": "t1", **scope})

    both = await options({"y": 1})
    assert both.agents == {"b": "outstanding"}
    assert [option.name for option in both.server.model.asked[0].questions[0].options] == ["b", "c"]  # type: ignore[union-attr]
    alone = await options({"x": 1})
    assert alone.agents == {"a": "outstanding"}
    assert alone.server.decisions == 0
    assert (await options({})).kind == "give_up"


async def test_desires_are_pursued_by_beliefs() -> None:
    """A desire whose conditions are beliefs is pursued while they say so."""
    system = bdi(agent("a"), agent("b"), desires=(desire("d", "a", "b", achievable="go", satisfied="end"),))
    system.bdi.desires[0].achievable.belief = "can"
    system.bdi.desires[0].satisfied.belief = "did"

    def beliefs(can: bool | None, did: bool | None) -> Beliefs:
        return {"can": can, "did": did}

    client = Server().client(system)
    await client.init()
    with refused(Reason.CONDITION_FAILED) as caught:
        await client.first({}, beliefs=beliefs(None, False))
    assert caught.metadata == {"subject": "d", "condition": "belief: can"}
    await client.first({}, beliefs=beliefs(True, False))
    assert client.agents == {"a": "outstanding"}
    await client.next(output(client.call("a"), None), beliefs=beliefs(True, True))
    assert client.kind == "done"
