"""A step happens once or not at all (row 26 of the contract's state table)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from plannerd.errors import Reason
from plannerd.invocations.engine import EngineLimits
from plannerd.invocations.record import Record
from plannerd.invocations.scope import ScopeLimits
from plannerd.invocations.stores import Kept, Key
from plannerd.values import Opaque
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import agent, output, pending, router, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import GatedModel, answering, settle, until

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}
DOWN = {"error": "DECISION_MODEL_UNAVAILABLE", "message": "down", "retry_after": 2.0}


@contextlib.asynccontextmanager
async def as_before(client: Client) -> AsyncIterator[None]:
    """Whatever happens inside, the invocation is afterwards where it was."""
    before = await client.where()
    yield
    assert await client.where() == before


async def failing_once(failure: object) -> Client:
    """Running `lookup`; the next decision fails, the one after it works."""
    return await Server(answering({"lookup": 3}, failure, expert=3)).started(SYSTEM)  # type: ignore[arg-type]


# ---- before the commit


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (DOWN, Reason.DECISION_MODEL_UNAVAILABLE),
        ({"error": "DECISION_MODEL_CREDENTIALS"}, Reason.DECISION_MODEL_CREDENTIALS),
        ({"error": "DECISION_QUEUE_FULL"}, Reason.DECISION_QUEUE_FULL),
        ({"expert": {"refuse": "no"}}, Reason.DECISION_REFUSED),
        ({"goal": {"refuse": "no"}}, Reason.DECISION_REFUSED),
        ({"expert": 17}, Reason.DECISION_INVALID_ANSWER),
        ({"goal": float("nan")}, Reason.DECISION_INVALID_ANSWER),
    ],
    ids=["down", "credentials", "queue", "refused", "goal refused", "out of range", "nan"],
)
async def test_a_failure_of_the_decision_model_leaves_the_invocation_as_it_was(
    failure: dict[str, object], reason: Reason
) -> None:
    """When the model fails, refuses or answers nonsense, the step did not happen, and the same request works later."""
    client = await failing_once(failure)
    request = output(client.call("lookup"), "f1")
    async with as_before(client):
        with refused(reason):
            await client.next(request, scope={"ticket": "t2"})
    await client.next(request, scope={"ticket": "t2"})
    assert client.agents == {"expert": "outstanding"}
    assert {field.name: field.value for field in client.server.model.asked[-1].input}["ticket"] == "t2"


async def test_a_failed_first_action_can_be_sent_again() -> None:
    """When the first decision fails, the invocation is still ready, and the same FirstAction works."""
    client = Server(answering(DOWN, lookup=3)).client(SYSTEM)
    await client.init()
    with refused(Reason.DECISION_MODEL_UNAVAILABLE):
        await client.first(TICKET)
    with refused(Reason.OUT_OF_ORDER):
        await client.where()
    await client.first(TICKET)
    assert client.position.revision == 1
    assert client.agents == {"lookup": "outstanding"}


async def test_of_several_results_none_counts_when_the_second_decision_fails() -> None:
    """A request whose results lead to two decisions is undone whole if the second one fails."""
    system = scheduler(
        agent("a", "ticket", writes="x", async_=True),
        agent("b", "ticket", writes="y", async_=True),
        agent("c", "x", "y", writes="z"),
        excluded_output_keys=["x", "y"],
    )
    model = answering({"a": 3}, {"b": 3}, {"error": "DECISION_MODEL_UNAVAILABLE"}, c=3)
    client = await Server(model).started(system)
    await client.next(pending(client.call("a")))
    a, b = client.call("a"), client.call("b")
    async with as_before(client):
        with refused(Reason.DECISION_MODEL_UNAVAILABLE):
            await client.next(output(a, 1), output(b, 2))
    await client.next(output(a, 1), output(b, 2))
    assert client.agents == {"c": "outstanding"}


async def test_a_failed_condition_leaves_the_invocation_as_it_was() -> None:
    """A belief that could not be evaluated fails the step, naming agent and condition; a sound one works."""
    system = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", when_believed="it rains"))
    client = Server(answering(lookup=3, expert=3)).client(system)
    await client.init()
    await client.first(TICKET, beliefs={"it rains": False})
    report = output(client.call("lookup"), "f1")
    async with as_before(client):
        with refused(Reason.CONDITION_FAILED) as caught:
            await client.next(report, beliefs={"it rains": None})
        assert caught.metadata == {"subject": "expert$1", "condition": "belief: it rains"}
    await client.next(report, beliefs={"it rains": True})
    assert client.agents == {"expert": "outstanding"}


async def test_a_missing_belief_leaves_the_invocation_as_it_was() -> None:
    """A step without a belief that Init asked for is refused, naming it; a missing belief is never false."""
    system = scheduler(agent("lookup", "ticket", writes="facts", when_believed="it rains"))
    client = Server(answering(lookup=3)).client(system)
    reply = await client.init()
    assert list(reply.beliefs) == ["it rains"]
    with refused(Reason.MISSING_BELIEF) as caught:
        await client.first(TICKET)
    assert caught.fields == ["beliefs[it rains]"]
    await client.first(TICKET, beliefs={"it rains": True})
    with refused(Reason.MISSING_BELIEF):
        await client.next(output(client.call("lookup"), "f1"), beliefs={"another": True})


async def test_an_unsupported_input_leaves_the_invocation_as_it_was() -> None:
    """Bytes and opaque values can't be decided on: the step is refused, naming the key; another value works."""
    client = await failing_once({"expert": 3})
    report = output(client.call("lookup"), "f1")
    async with as_before(client):
        with refused(Reason.UNSUPPORTED_INPUT) as caught:
            await client.next(report, scope={"ticket": {"inner": [b"raw"]}})
        assert caught.metadata["key"] == "ticket.inner[0]"
        with refused(Reason.VALUE_REQUIRED) as caught:
            await client.next(report, scope={"ticket": Opaque(b"tag")})
        assert caught.metadata["key"] == "ticket"
    await client.next(report, scope={"ticket": "t2"})


async def test_an_empty_input_fails_the_step() -> None:
    """With every argument left out and no output yet there is nothing to decide on; the client may add something."""
    system = scheduler(
        agent("lookup", "other?", writes="ticket"), agent("expert", writes="x"), excluded_output_keys=["ticket"]
    )
    client = Server(answering(expert=3)).client(system)
    await client.init()
    with refused(Reason.EMPTY_DECISION_INPUT):
        await client.first({"ticket": "t1"})
    await client.first({"ticket": "t1", "x": "there"})
    assert client.agents == {"expert": "outstanding"}


async def test_a_cancelled_step_leaves_the_invocation_as_it_was() -> None:
    """A call that is cancelled while the model thinks leaves nothing behind; the same request works afterwards."""
    model = GatedModel(answering(lookup=3, expert=3))
    model.gate.set()
    client = await Server(model).started(SYSTEM)
    model.gate.clear()
    model.entered.clear()
    report = output(client.call("lookup"), "f1")
    async with as_before(client):
        task = asyncio.create_task(client.next(report))
        await model.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.waiting == 0
    model.gate.set()
    await client.next(report)
    assert client.agents == {"expert": "outstanding"}


async def test_a_step_cancelled_while_it_waits_for_another_leaves_no_trace() -> None:
    """A call that is cancelled while it waits for its turn does not keep the next one from its own."""
    model = GatedModel(answering(lookup=3, expert=3))
    client = Server(model).client(SYSTEM)
    await client.init()
    first = asyncio.create_task(client.first(TICKET))
    await model.entered.wait()
    waiting = asyncio.create_task(client.at(client.server).first({"ticket": "t2"}))
    await settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    model.gate.set()
    await first
    await client.next(output(client.call("lookup"), "f1"))
    assert client.agents == {"expert": "outstanding"}


async def test_a_decision_that_takes_too_long_leaves_the_invocation_as_it_was() -> None:
    """A model that does not answer within the client's time-out is unavailable, and the step did not happen."""
    model = GatedModel(answering(lookup=3))
    client = Server(model).client(SYSTEM)
    request = client.init_request()
    request.decision.timeout.FromMilliseconds(1)
    client.request = request
    await client.init()
    with refused(Reason.DECISION_MODEL_UNAVAILABLE):
        await client.first(TICKET)
    assert model.waiting == 0
    model.gate.set()
    await client.first(TICKET)
    assert client.agents == {"lookup": "outstanding"}


@pytest.mark.parametrize(("of_server", "of_client"), [(4 << 20, 300), (300, 0), (300, 1 << 30)])
async def test_a_reply_too_large_is_found_before_the_commit(of_server: int, of_client: int) -> None:
    """A reply over the client's or the server's limit fails the step uncommitted, and says how large it would be."""
    client = Server(answering(lookup=3), limits=EngineLimits(max_reply_bytes=of_server)).client(SYSTEM)
    await client.init(max_reply_bytes=of_client)
    with refused(Reason.REPLY_TOO_LARGE) as caught:
        await client.first(TICKET)
    assert caught.metadata["allowed"] == "300"
    assert int(caught.metadata["requested"]) > 300
    with refused(Reason.OUT_OF_ORDER):
        await client.where()


async def test_a_large_explanation_is_left_out_before_the_step_fails() -> None:
    """A reply that fits without its explanation is sent without it, and says so."""
    full = Server(answering(lookup=3)).client(SYSTEM)
    await full.init(explain=planner_pb2.EXPLAIN_LEVEL_FULL, include_input=True)
    await full.first({"ticket": "t" * 5000})
    assert len(full.reply) > 5000
    assert full.step.explanation.decisions
    tight = Server(answering(lookup=3)).client(SYSTEM)
    await tight.init(explain=planner_pb2.EXPLAIN_LEVEL_FULL, include_input=True, max_reply_bytes=5000)
    await tight.first({"ticket": "t" * 5000})
    assert len(tight.reply) <= 5000
    assert tight.step.explanation.shortened
    assert not tight.step.explanation.decisions
    assert tight.step.explanation.outcome == full.step.explanation.outcome
    assert tight.agents == {"lookup": "outstanding"}


@pytest.mark.parametrize(
    ("limits", "name"),
    [(ScopeLimits(max_bytes=100), "max_scope_bytes"), (ScopeLimits(max_keys=1), "max_scope_keys")],
)
async def test_a_scope_over_the_limit_leaves_the_invocation_as_it_was(limits: ScopeLimits, name: str) -> None:
    """A step that would keep more scope than allowed is refused, naming the limit; less of it works."""
    server = Server(answering(lookup=3, expert=3), limits=EngineLimits(scope=limits))
    client = await server.started(scheduler(agent("lookup", "ticket", writes="facts")))
    report = output(client.call("lookup"), "x" * 200)
    async with as_before(client):
        with refused(Reason.LIMIT_EXCEEDED) as caught:
            await client.next(report)
        assert caught.metadata["limit"] == name
    await client.next(output(client.call("lookup"), None))
    assert client.kind == "done"


async def test_keys_that_nobody_reads_do_not_count_against_the_limit() -> None:
    """Only what the planner reads is kept, so only that is bounded."""
    server = Server(answering(lookup=3), limits=EngineLimits(scope=ScopeLimits(max_bytes=100, max_keys=2)))
    client = await server.started(SYSTEM, {"ticket": "t1", **{f"k{n}": "x" * 1000 for n in range(10)}})
    assert client.agents == {"lookup": "outstanding"}


async def test_a_store_that_fails_leaves_the_invocation_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose commit fails did not happen: no reply of it is repeated, and it is decided again."""
    client = await Server(answering(lookup=3, expert=3)).started(SYSTEM)
    report = output(client.call("lookup"), "f1")

    async def down(key: Key, record: Record, expected: Kept | None, state: object) -> bool:
        raise OSError

    async with as_before(client):
        with monkeypatch.context() as patch:
            patch.setattr(client.server.store, "put", down)
            with pytest.raises(OSError):  # noqa: PT011 - it has no message
                await client.next(report)
    await client.next(report)
    assert client.server.decisions == 3
    assert client.agents == {"expert": "outstanding"}


# ---- after the commit


async def test_after_the_commit_a_retry_gets_the_stored_bytes_even_if_the_model_is_down() -> None:
    """A retry of a committed step asks nobody: it is answered while the model is down."""
    client = await failing_once(DOWN)
    assert await client.send_raw(client.sent) == client.reply
    assert client.server.decisions == 1


async def test_a_call_that_is_cancelled_after_the_commit_counts() -> None:
    """A client that hangs up just after the commit finds its answer when it sends the request again."""
    client = await Server(answering(lookup=3, expert=3)).started(SYSTEM)
    request = planner_pb2.NextActionRequest(
        invocation_id="i1", base=client.position, results=[output(client.call("lookup"), "f1")]
    )
    task = asyncio.create_task(client.send_raw(request))
    while (await client.where()).position.revision == 1:
        await settle()
    task.cancel()
    decisions = client.server.decisions
    again = await client.send_raw(request)
    assert client.server.decisions == decisions == 2
    assert planner_pb2.NextActionResponse.FromString(again).step.position.revision == 2


async def test_only_committed_steps_are_observed() -> None:
    """Whoever watches the engine hears once of each step that happened, never of one that failed or was repeated."""
    seen: list[int] = []
    server = Server(
        answering({"lookup": 3}, DOWN, expert=3), observe=lambda event: seen.append(event.reply.position.revision)
    )
    client = await server.started(SYSTEM)
    report = output(client.call("lookup"), "f1")
    with refused(Reason.DECISION_MODEL_UNAVAILABLE):
        await client.next(report)
    await client.next(report)
    await client.send_raw(client.sent)
    with refused(Reason.CALL_ALREADY_REPORTED):
        await client.next(report)
    assert seen == [1, 2]


# ---- who waits for whom


async def test_different_invocations_do_not_wait_for_each_other() -> None:
    """While one invocation's decision takes its time, another one on the same engine goes all the way."""
    model = GatedModel(answering(lookup=3, expert=3))
    server = Server(model)
    slow = server.client(SYSTEM, "slow")
    await slow.init()
    task = asyncio.create_task(slow.first(TICKET))
    await model.entered.wait()
    quick = server.client(
        router(agent("only", "ticket"), agent("other", when_present="nothing"), threshold=None), "quick"
    )
    await quick.init()
    await quick.first(TICKET)
    await quick.next(output(quick.call("only"), "done"))
    assert quick.kind == "done"
    await quick.end()
    assert not task.done()
    model.gate.set()
    await task


async def test_decisions_of_different_invocations_run_side_by_side() -> None:
    """The model has the requests of several invocations at the same time."""
    model = GatedModel(answering(lookup=3))
    server = Server(model)
    clients = [server.client(SYSTEM, f"i{number}") for number in range(5)]
    for client in clients:
        await client.init()
    tasks = [asyncio.create_task(client.first(TICKET)) for client in clients]
    await until(lambda: model.waiting == 5)
    model.gate.set()
    await asyncio.gather(*tasks)


async def test_calls_for_one_invocation_are_serialised() -> None:
    """Of many different steps that come at once from one position exactly one is made, for exactly one decision."""
    model = GatedModel(answering(lookup=3))
    client = Server(model).client(SYSTEM)
    await client.init()
    racers = [client.at(client.server) for _ in range(8)]
    tasks = [asyncio.create_task(racer.first({"ticket": f"t{n}"})) for n, racer in enumerate(racers)]
    await until(lambda: model.waiting > 0)
    await settle()
    assert model.waiting == 1
    model.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert client.server.decisions == 1


async def test_init_waits_for_the_step_in_flight() -> None:
    """An Init that resumes while a step is decided does not slip in between: it is held against what the step made."""
    model = GatedModel(answering(lookup=3, expert=3))
    model.gate.set()
    client = await Server(model).started(SYSTEM)
    old = client.at(client.server)
    model.gate.clear()
    model.entered.clear()
    step = asyncio.create_task(client.next(output(client.call("lookup"), "f1")))
    await model.entered.wait()
    resume = asyncio.create_task(old.init(old.state))
    await settle()
    model.gate.set()
    await step
    with refused(Reason.STATE_OUTDATED):
        await resume
