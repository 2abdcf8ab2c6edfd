"""Rows 23 to 28 of the contract's state table: reports that do not fit, failures, and endings."""

from __future__ import annotations

import pytest

from plannerd.errors import Reason
from plannerd.values import Opaque
from plannerd_protos.planner.v1 import planner_pb2, step_pb2, value_pb2
from tests.support.builders import agent, failed, output, pending, router, scheduler, skipped, suspended, withheld
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
PARALLEL = router(
    agent("billing", "ticket", writes="bill"),
    agent("fetcher", "ticket", writes="page", async_=True),
    agent("approver", "ticket", writes="approval", human=True),
)
TICKET = {"ticket": "t1"}


async def running() -> Client:
    """Running `lookup`."""
    return await Server(answering(lookup=3, expert=3)).started(SYSTEM)


async def three_running() -> Client:
    """Running all agents of PARALLEL at the same time."""
    return await Server(answering(billing=0.9, fetcher=0.9, approver=0.9)).started(PARALLEL)


class Untouched:
    """Whatever is refused inside leaves position, calls, state and decisions as they were."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __aenter__(self) -> None:
        self.before = await self.client.where(), self.client.server.decisions

    async def __aexit__(self, *failure: object) -> None:
        if failure == (None, None, None):
            assert (await self.client.where(), self.client.server.decisions) == self.before


# ---- row 23: unknown ids, and ids that stand twice


@pytest.mark.parametrize(
    "wrong",
    ["", "x", "{b}", "{b}.1", "{b}.1.3", "{b}.2.0", "{b}.01.0", "{b}.1.00", "{b}.1.0 ", "{b}.\u0661.0", "o.1.0"],
    ids=ascii,
)
async def test_row_23_an_unknown_call_id_is_refused_and_nothing_applied(wrong: str) -> None:
    """A batch with an id that was never issued is refused with its path, and none of the other results counts."""
    client = await three_running()
    call_id = wrong.format(b=client.position.branch)
    async with Untouched(client):
        with refused(Reason.UNKNOWN_CALL) as caught:
            await client.next(
                output(client.call("billing"), "b1"), output(call_id, "x"), scope={"ticket": "t2", "page": "p"}
            )
        assert caught.fields == ["results[1].call_id"]
    await client.next(output(client.call("billing"), "b1"))


async def test_row_23_one_id_twice_in_a_batch_is_refused_and_nothing_applied() -> None:
    """A batch that reports one call twice is refused with the path of the second, and nothing of it counts."""
    client = await three_running()
    billing, fetcher = client.call("billing"), client.call("fetcher")
    async with Untouched(client):
        with refused(Reason.INVALID_REQUEST) as caught:
            await client.next(output(billing, "b1"), pending(fetcher), output(fetcher, "p1"))
        assert caught.fields == ["results[2].call_id"]
    await client.next(output(billing, "b1"), pending(fetcher))


async def test_row_23_a_call_of_another_invocation_is_unknown() -> None:
    """Two invocations of one system do not take each other's calls."""
    server = Server(answering(lookup=3))
    first = await server.started(SYSTEM, invocation_id="i1")
    second = await server.started(SYSTEM, invocation_id="i2")
    with refused(Reason.UNKNOWN_CALL):
        await second.next(output(first.call("lookup"), "f1"))


@pytest.mark.parametrize(
    "result",
    [
        planner_pb2.AgentResult(),
        planner_pb2.AgentResult(output=planner_pb2.Output()),
        planner_pb2.AgentResult(suspended=planner_pb2.Suspended()),
        planner_pb2.AgentResult(suspended=planner_pb2.Suspended(response_id="r" * 257)),
        planner_pb2.AgentResult(skipped=planner_pb2.Skipped(), recovered=True),
    ],
    ids=["no outcome", "no form of output", "no response id", "a long response id", "a recovered skip"],
)
async def test_a_malformed_result_is_refused_with_its_path(result: planner_pb2.AgentResult) -> None:
    """A result without an outcome, or with one that is incomplete, is refused with its path, and nothing is applied."""
    client = await three_running()
    result.call_id = client.call("fetcher")
    async with Untouched(client):
        with refused(Reason.INVALID_REQUEST) as caught:
            await client.next(output(client.call("billing"), "b1"), result)
        assert caught.fields[0].startswith("results[1]")


async def test_an_output_that_the_planner_must_read_can_not_be_withheld() -> None:
    """Where the value is needed, withholding it is refused, naming key and call; nothing is applied."""
    client = await running()
    call = client.call("lookup")
    async with Untouched(client):
        with refused(Reason.VALUE_REQUIRED) as caught:
            await client.next(withheld(call), scope={"ticket": "t2"})
        assert caught.metadata == {"key": "facts", "call_id": call}
    await client.next(output(call, "f1"))


async def test_an_output_whose_presence_matters_needs_a_tag() -> None:
    """Where presence and change matter, a tag is enough, and nothing at all is too little; null takes the key away."""
    system = scheduler(
        agent("lookup", "ticket", writes="facts"), agent("expert", "facts"), excluded_output_keys=["facts"]
    )
    client = await Server(answering(lookup=3, expert=3)).started(system)
    call = client.call("lookup")
    assert client.step.calls[0].output_need == value_pb2.NEED_PRESENCE
    async with Untouched(client):
        with refused(Reason.VALUE_REQUIRED):
            await client.next(withheld(call))
    await client.next(output(call, Opaque(b"v1")))
    assert client.agents == {"expert": "outstanding"}


async def test_an_output_of_which_nothing_is_needed_may_be_withheld() -> None:
    """Where a call says that nothing is needed of its output, it may stay with the client."""
    client = await three_running()
    needs = {client.agent_of(call.id): call.output_need for call in client.step.calls}
    assert needs["billing"] == value_pb2.NEED_NONE
    await client.next(withheld(client.call("billing")))
    assert client.kind == "no_op"


# ---- row 24: already reported


async def test_row_24_a_call_that_was_reported_is_refused_and_nothing_applied() -> None:
    """Reporting a finished call again from a new base is refused with its id, and nothing of the batch counts."""
    client = await three_running()
    billing, fetcher = client.call("billing"), client.call("fetcher")
    await client.next(output(billing, "b1"))
    async with Untouched(client):
        with refused(Reason.CALL_ALREADY_REPORTED) as caught:
            await client.next(output(fetcher, "p1"), output(billing, "b2"), scope={"page": "p"})
        assert caught.metadata["call_ids"] == billing
    await client.next(output(fetcher, "p1"))


async def test_row_24_all_reported_calls_of_a_batch_are_named() -> None:
    """The error names each call that was reported before, so that the client can leave them out at once."""
    client = await three_running()
    calls = [client.call(name) for name in ("billing", "fetcher", "approver")]
    await client.next(output(calls[0], "b1"), skipped(calls[1]))
    with refused(Reason.CALL_ALREADY_REPORTED) as caught:
        await client.next(*(output(call, "again") for call in calls))
    assert caught.metadata["call_ids"] == f"{calls[0]},{calls[1]}"


async def test_row_24_the_first_answer_of_a_suspended_call_stays() -> None:
    """Of two answers to one suspended call the first counts; the second is refused."""
    system = router(agent("a", writes="x", human=True), agent("b", writes="y", human=True))
    client = await Server(answering(a=0.9, b=0.9)).started(system)
    first = client.call("a")
    await client.next(suspended(first, "ra"), suspended(client.call("b"), "rb"))
    await client.next(output(first, "yes"))
    with refused(Reason.CALL_ALREADY_REPORTED):
        await client.next(output(first, "no"))


@pytest.mark.parametrize("report", [pending, suspended])
async def test_row_24_pending_or_suspended_twice_was_reported_already(report: object) -> None:
    """A call that is pending or suspended already can't become so again, and the first response id stays."""
    client = await three_running()
    call = client.call("approver")
    await client.next(report(call))  # type: ignore[operator]
    async with Untouched(client):
        with refused(Reason.CALL_ALREADY_REPORTED):
            await client.next(report(call))  # type: ignore[operator]


async def test_row_24_a_reported_call_is_known_after_a_resume() -> None:
    """A state remembers which calls were reported: on another replica they are still told from unknown ones."""
    client = await running()
    done = client.call("lookup")
    await client.next(output(done, "f1"))
    other = client.at(Server(answering()))
    await other.resume({"ticket": "t1", "facts": "f1"})
    with refused(Reason.CALL_ALREADY_REPORTED):
        await other.next(output(done, "f2"))
    with refused(Reason.UNKNOWN_CALL):
        await other.next(output(f"{client.position.branch}.2.1", "f2"))


# ---- row 25: failed


async def test_row_25_a_failed_call_ends_the_invocation() -> None:
    """A call that failed for good ends the invocation as given up, with a committed step and without a decision."""
    client = await running()
    await client.next(failed(client.call("lookup"), "TimeoutError", "the secret of the message"))
    give_up = client.step.action.give_up
    assert give_up.reason == step_pb2.GIVE_UP_REASON_AGENT_FAILED
    assert "lookup" in give_up.message
    assert "TimeoutError" in give_up.message
    assert "secret" not in give_up.message
    assert not client.step.calls
    assert client.position.revision == 2
    assert client.server.decisions == 1


async def test_row_25_late_results_of_siblings_are_refused() -> None:
    """After a failure the results of the siblings come too late: the invocation is finished."""
    client = await three_running()
    billing, fetcher = client.call("billing"), client.call("fetcher")
    await client.next(failed(fetcher))
    assert client.kind == "give_up"
    with refused(Reason.INVOCATION_FINISHED):
        await client.next(output(billing, "b1"))


@pytest.mark.parametrize("order", [("failed", "output"), ("output", "failed")])
async def test_row_25_a_failure_counts_wherever_it_stands_in_a_batch(order: tuple[str, str]) -> None:
    """A batch with a failure ends the invocation, whether the other results come before or after it."""
    client = await three_running()
    results = {"failed": failed(client.call("fetcher")), "output": output(client.call("billing"), "b1")}
    await client.next(*(results[item] for item in order))
    assert client.kind == "give_up"
    assert client.step.action.give_up.reason == step_pb2.GIVE_UP_REASON_AGENT_FAILED


async def test_row_25_nothing_is_decided_after_a_failure_in_the_same_batch() -> None:
    """Results that follow a failure in its batch lead to no decision."""
    system = scheduler(
        agent("fetcher", "ticket", writes="page", async_=True),
        agent("expert", "ticket", writes="advice"),
        excluded_output_keys=["page"],
    )
    client = await Server(answering(fetcher=3, expert=2)).started(system)
    await client.next(pending(client.call("fetcher")))
    decisions = client.server.decisions
    await client.next(failed(client.call("fetcher")), output(client.call("expert"), "a1"))
    assert client.kind == "give_up"
    assert client.server.decisions == decisions


async def test_row_25_a_suspended_or_pending_call_may_fail() -> None:
    """A failure of a call that was on its way or waited for somebody ends the invocation, too."""
    for report in (pending, suspended):
        client = await three_running()
        await client.next(report(client.call("approver")))
        await client.next(failed(client.call("approver")))
        assert client.kind == "give_up"


# ---- row 27: finished and ended


@pytest.mark.parametrize("ending", ["done", "gave up", "failed"])
async def test_row_27_a_step_after_the_end_of_an_invocation_is_refused(ending: str) -> None:
    """However an invocation ended, another step from its last position is refused; the last answer stays to be read."""
    system = scheduler(agent("lookup", "ticket", writes="facts"), output_key="facts")
    client = await Server(answering({"lookup": 3}, goal=1)).started(system)
    call = client.call("lookup")
    await client.next({"done": output(call, "f1"), "gave up": skipped(call), "failed": failed(call)}[ending])
    last = client.step
    async with Untouched(client):
        with refused(Reason.INVOCATION_FINISHED):
            await client.next(output(call, "f2"))
        with refused(Reason.INVOCATION_FINISHED):
            await client.next()
        with refused(Reason.INVOCATION_FINISHED):
            await client.first(TICKET)
    assert await client.where() == last


async def test_row_27_a_finished_state_can_be_resumed_but_not_continued() -> None:
    """The state of a finished invocation resumes as finished: its last action can be read, and no step be made."""
    client = await Server(answering(goal=1)).started(SYSTEM)
    assert client.kind == "done"
    other = client.at(Server(answering()))
    await other.init(client.state)
    assert (await other.where()).action == client.step.action
    with refused(Reason.INVOCATION_FINISHED):
        await other.first(TICKET)


async def test_row_27_an_ended_invocation_is_remembered_for_a_while() -> None:
    """After End each step, ExecutionState and Init of the id is told that it was ended, whatever it resumes from."""
    client = await running()
    await client.end()
    with refused(Reason.INVOCATION_ENDED):
        await client.next(output(client.call("lookup"), "f1"))
    with refused(Reason.INVOCATION_ENDED):
        await client.first(TICKET)
    with refused(Reason.INVOCATION_ENDED):
        await client.where()
    with refused(Reason.INVOCATION_ENDED):
        await client.init()
    with refused(Reason.INVOCATION_ENDED):
        await client.init(client.state)


# ---- row 28: End


async def test_row_28_end_works_in_every_state_and_again() -> None:
    """End releases an invocation whatever it is doing; again, and for an id that nobody knows, it succeeds, too."""
    unknown = Server().client(SYSTEM)
    await unknown.end()
    await unknown.end(step_pb2.Position(epoch=1, revision=3, branch="b"))
    ready = Server().client(SYSTEM)
    await ready.init()
    finished = await Server(answering(goal=1)).started(SYSTEM)
    for client in (ready, await running(), await three_running(), finished):
        await client.end(client.position)
        await client.end(client.position)
        await client.end()
        with refused(Reason.INVOCATION_ENDED):
            await client.where()


async def test_row_28_end_may_come_from_an_older_position_of_the_same_owner() -> None:
    """An owner who missed an answer may end its invocation from an older position of the same branch."""
    client = await running()
    old = step_pb2.Position()
    old.CopyFrom(client.position)
    await client.next(output(client.call("lookup"), "f1"))
    await client.end(old)
    with refused(Reason.INVOCATION_ENDED):
        await client.where()


async def test_row_28_a_fenced_owner_can_not_end_the_invocation() -> None:
    """End by whoever was taken over from is refused, and the invocation goes on."""
    client = await running()
    successor = client.at(client.server)
    await successor.resume(TICKET, take_over=True)
    with refused(Reason.OWNER_CHANGED):
        await client.end(client.position)
    await successor.next(output(successor.call("lookup"), "f1"))
    assert successor.agents == {"expert": "outstanding"}


async def test_row_28_the_owner_of_another_fork_can_not_end_the_invocation() -> None:
    """End with the position of another fork is refused."""
    first, second = await running(), await running()
    with refused(Reason.OWNER_CHANGED):
        await second.at(first.server).end(second.position)
    await first.next(output(first.call("lookup"), "f1"))
