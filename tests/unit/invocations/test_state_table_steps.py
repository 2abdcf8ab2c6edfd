"""Rows 18 to 22 of the contract's state table: what a report does."""

from __future__ import annotations

from plannerd.errors import Reason
from plannerd.values import PENDING
from tests.support.builders import agent, bdi, cascade, desire, output, pending, router, scheduler, skipped, suspended
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


# ---- row 18: output or skipped


async def test_row_18_an_output_is_written_and_the_planner_told() -> None:
    """An output is in the scope when the planner decides on it, its call is gone, and the next one is there."""
    client = await running()
    await client.next(output(client.call("lookup"), "f1"))
    assert input_of(client) == {"ticket": "t1", "facts": "f1"}
    assert client.agents == client.live == {"expert": "outstanding"}


async def test_row_18_a_null_output_removes_its_key() -> None:
    """An output of null takes its key out of the scope before the planner is told."""
    client = await Server(answering(lookup=3)).started(SYSTEM, {"ticket": "t1", "facts": "old"})
    await client.next(output(client.call("lookup"), None))
    assert input_of(client, 0) == {"ticket": "t1", "facts": "old"}
    assert client.server.decisions == 1, "with no facts, nobody can run"
    assert client.kind == "done"


async def test_row_18_a_skip_writes_nothing_and_the_planner_is_told() -> None:
    """A skipped call leaves the scope alone, counts as run, and the planner goes on."""
    client = await Server(answering(lookup=3, expert=2)).started(SYSTEM, {"ticket": "t1", "facts": "old"})
    await client.next(skipped(client.call("lookup")))
    assert input_of(client) == {"ticket": "t1", "facts": "old"}
    assert questions_of(client) == ["expert", "goal"]


async def test_row_18_while_others_run_there_is_nothing_new() -> None:
    """With other calls outstanding, an output is recorded and answered by a no-op that lists the other calls."""
    client = await three_running()
    await client.next(output(client.call("billing"), "b1"))
    assert client.kind == "no_op"
    assert client.live == {"fetcher": "outstanding", "approver": "outstanding"}


async def test_row_18_results_of_one_request_count_in_order() -> None:
    """Several results in one request are told one by one, and the last one of an activation ends it."""
    client = await three_running()
    billing, fetcher, approver = (client.call(name) for name in ("billing", "fetcher", "approver"))
    await client.next(output(approver, "yes"), skipped(billing), output(fetcher, "p1"))
    assert client.kind == "done"
    outputs = {item.name: item.call_id for item in client.step.action.done.result.outputs.outputs}
    assert outputs == {"fetcher": fetcher, "approver": approver}


async def test_row_18_the_client_s_changes_come_before_its_results() -> None:
    """Inside one request the scope's changes come first: an output overwrites them."""
    client = await running()
    await client.next(output(client.call("lookup"), "the output"), scope={"ticket": "t2", "facts": "the change"})
    assert input_of(client) == {"ticket": "t2", "facts": "the output"}


# ---- row 19: pending


async def test_row_19_the_planner_goes_on_beside_a_pending_output_it_does_not_need() -> None:
    """Where the decision does not read the pending key, the planner goes on, and the call stays live."""
    system = scheduler(
        agent("fetcher", "ticket", writes="page", async_=True),
        agent("expert", "ticket", writes="advice"),
        excluded_output_keys=["page"],
    )
    client = await running(system)
    await client.next(pending(client.call("fetcher"), external=True))
    assert client.agents == {"expert": "outstanding"}
    assert client.live == {"fetcher": "pending", "expert": "outstanding"}
    assert [call.external for call in client.step.calls] == [True, False]


async def test_row_19_the_planner_awaits_a_pending_output_that_it_needs() -> None:
    """Where the decision reads the pending key, the action is to await that key, by the call that writes it."""
    client = await awaiting()
    assert client.agents == client.live == {"fetcher": "pending"}
    assert list(getattr(client.step.action, "await").keys) == ["page"]
    assert client.server.decisions == 1


async def test_row_19_readers_of_a_pending_key_are_rearmed_once() -> None:
    """A pending report re-arms the readers of its key; the output that arrives later does not."""
    system = scheduler(
        agent("reader", "page?", writes="summary"),
        agent("fetcher", "ticket", writes="page", async_=True),
        excluded_output_keys=["page"],
    )
    client = await Server(answering({"reader": 3}, {"fetcher": 3}, {"reader": 3})).started(system)
    await client.next(output(client.call("reader"), "none"))
    await client.next(pending(client.call("fetcher")))
    assert client.agents == {"reader": "outstanding"}
    await client.next(output(client.call("fetcher"), "p1"))
    assert client.kind == "no_op"
    await client.next(output(client.call("reader"), "some"))
    assert client.kind == "done"
    assert client.server.decisions == 3


BESIDE = scheduler(
    agent("reader", "page", writes="summary"),
    agent("fetcher", "ticket", writes="page", async_=True),
    agent("other", "ticket", writes="x"),
    excluded_output_keys=["page"],
)
"""A system that goes on while `page` is on its way."""


async def other_beside_fetcher() -> Client:
    """Running `other`; `fetcher` is pending, and `reader` has run on the pending key."""
    client = await Server(answering({"fetcher": 3}, {"reader": 3}, {"other": 3})).started(BESIDE)
    await client.next(pending(client.call("fetcher")))
    await client.next(output(client.call("reader"), "s1"))
    assert client.live == {"fetcher": "pending", "other": "outstanding"}
    return client


async def test_row_19_an_output_that_arrives_through_the_scope_rearms_nobody_either() -> None:
    """A client may put a pending output into the scope itself; its readers were re-armed before."""
    client = await other_beside_fetcher()
    await client.next(output(client.call("other"), 1), scope={"page": "p1"})
    assert client.kind == "done"
    assert client.server.decisions == 3


async def test_row_19_a_change_after_the_arrival_counts() -> None:
    """Once a pending output has arrived, another value of its key is a change like any other."""
    client = await other_beside_fetcher()
    await client.next(output(client.call("fetcher"), "p1"))
    await client.next(output(client.call("other"), 1), scope={"page": "p2"})
    assert questions_of(client) == ["reader", "goal"]


async def test_row_19_the_planner_hears_of_a_pending_call_once() -> None:
    """A call that was pending, then suspended, and is pending again, is nothing new to the planner."""
    client = await other_beside_fetcher()
    await client.next(suspended(client.call("fetcher")))
    await client.next(pending(client.call("fetcher")), scope={"ticket": "t2"})
    assert client.kind == "no_op"
    assert client.live == {"fetcher": "pending", "other": "outstanding"}
    assert client.server.decisions == 3


async def test_row_19_a_pending_key_counts_as_present() -> None:
    """An agent whose mandatory argument is pending is a candidate."""
    system = scheduler(
        agent("fetcher", "ticket", writes="page", async_=True), agent("expert", "page"), excluded_output_keys=["page"]
    )
    client = await running(system)
    await client.next(pending(client.call("fetcher")))
    assert client.agents == {"expert": "outstanding"}


async def test_row_19_a_skip_after_all_is_no_answer() -> None:
    """A call that was pending and is then skipped is left out of a router's result, and passed over by a cascade."""
    routed = await three_running()
    await routed.next(output(routed.call("billing"), "b1"), pending(routed.call("fetcher")))
    await routed.next(output(routed.call("approver"), "yes"))
    assert routed.agents == {"fetcher": "pending"}
    await routed.next(skipped(routed.call("fetcher")))
    assert [item.name for item in routed.step.action.done.result.outputs.outputs] == ["billing", "approver"]

    tiers = cascade(agent("small", writes="page", async_=True), agent("large"))
    tried = await Server(answering()).started(tiers)
    await tried.next(pending(tried.call("small")))
    await tried.next(skipped(tried.call("small")))
    assert tried.agents == {"large": "outstanding"}
    assert tried.server.decisions == 0


# ---- row 20: suspended


async def test_row_20_the_planner_is_not_told_of_a_suspension() -> None:
    """A suspended call makes no decision: the action is to suspend, with the id that the client gave."""
    client = await suspended_()
    assert client.server.decisions == 1
    assert client.agents == client.live == {"approver": "suspended"}
    assert client.step.calls[0].response_id == "r1"
    assert client.step.HasField("state")


async def test_row_20_while_others_run_a_suspension_is_a_no_op() -> None:
    """With other calls outstanding, a suspension is recorded; the action to suspend comes when they have answered."""
    client = await three_running()
    await client.next(suspended(client.call("approver")))
    assert client.kind == "no_op"
    await client.next(output(client.call("billing"), "b1"))
    assert client.kind == "no_op"
    await client.next(output(client.call("fetcher"), "p1"))
    assert client.kind == "suspend"
    assert client.agents == client.live == {"approver": "suspended"}


async def test_row_20_a_needed_pending_output_is_awaited_before_suspending() -> None:
    """With one call suspended and a needed output on its way, the client first awaits the output, then suspends."""
    client = await three_running()
    await client.next(output(client.call("billing"), "b1"), suspended(client.call("approver")))
    await client.next(pending(client.call("fetcher")))
    assert client.kind == "await"
    assert client.agents == {"fetcher": "pending"}
    await client.next(output(client.call("fetcher"), "p1"))
    assert client.kind == "suspend"
    assert client.agents == client.live == {"approver": "suspended"}


async def test_row_20_a_call_may_first_be_pending_and_then_suspended() -> None:
    """An output that was on its way and turns out to wait for somebody suspends the invocation."""
    client = await awaiting()
    await client.next(suspended(client.call("fetcher")))
    assert client.kind == "suspend"
    await client.next(output(client.call("fetcher"), "p1"))
    assert client.agents == {"expert": "outstanding"}


async def test_row_20_only_agents_with_an_output_key_can_answer_later() -> None:
    """A call without an output key can be neither pending nor suspended; nothing is applied."""
    client = await running(scheduler(agent("lookup", "ticket")))
    for report in (pending(client.call("lookup")), suspended(client.call("lookup"))):
        with refused(Reason.INVALID_REQUEST) as caught:
            await client.next(report)
        assert caught.fields[0].startswith("results[0]")
    assert (await client.where()).position == client.position


# ---- row 21: the output of a suspended call


async def test_row_21_the_answer_of_a_suspended_call_needs_no_init() -> None:
    """The answer of the last suspended call is told to the planner, which decides on it; no Init comes before."""
    client = await suspended_()
    await client.next(output(client.call("approver"), "granted"))
    assert input_of(client) == {"ticket": "t1", "approval": "granted"}
    assert client.agents == {"expert": "outstanding"}


async def test_row_21_the_answer_of_a_suspended_call_while_others_run() -> None:
    """A suspended call that is answered while others run is recorded like any other."""
    client = await three_running()
    await client.next(suspended(client.call("approver")))
    await client.next(output(client.call("approver"), "yes"))
    assert client.kind == "no_op"
    assert client.live == {"billing": "outstanding", "fetcher": "outstanding"}


async def test_row_21_answers_come_one_after_the_other() -> None:
    """With two suspended calls the first answer leaves the other suspended; the last one finishes."""
    system = router(agent("a", writes="x", human=True), agent("b", writes="y", human=True))
    client = await Server(answering(a=0.9, b=0.9)).started(system)
    await client.next(suspended(client.call("a"), "ra"), suspended(client.call("b"), "rb"))
    assert client.agents == {"a": "suspended", "b": "suspended"}
    await client.next(output(client.call("a"), "1"))
    assert client.kind == "suspend"
    assert client.agents == client.live == {"b": "suspended"}
    await client.next(output(client.call("b"), "2"))
    assert client.kind == "done"


async def test_row_21_what_the_client_changed_while_suspended_counts() -> None:
    """Keys that changed while somebody was waited for are decided on with the answer, and re-arm their readers."""
    client = await suspended_()
    await client.next(output(client.call("approver"), "granted"), scope={"ticket": "t2"})
    assert questions_of(client) == ["approver", "expert", "goal"]
    assert input_of(client) == {"ticket": "t2", "approval": "granted"}


# ---- row 22: asking again


async def test_row_22_asking_again_while_awaiting_gives_the_same_action() -> None:
    """A request without results after an await gives the same action with the same ids, and no decision."""
    client = await awaiting()
    before = client.step
    step = await client.next()
    assert step.action == before.action
    assert step.calls == before.calls
    assert client.server.decisions == 1


async def test_row_22_asking_again_while_suspended_gives_the_same_action() -> None:
    """A request without results after a suspend suspends again, with the same ids."""
    client = await suspended_()
    before = client.step
    step = await client.next(scope={"ticket": "t2"})
    assert step.action == before.action
    assert step.calls == before.calls
    assert client.server.decisions == 1


async def test_row_22_asking_again_decides_where_the_awaited_key_has_arrived() -> None:
    """Once the awaited key has its value, a request without results makes the decision that waited for it."""
    client = await awaiting()
    await client.next(scope={"page": "p1"})
    assert client.agents == {"expert": "outstanding"}
    assert input_of(client) == {"ticket": "t1", "page": "p1"}


async def test_row_22_asking_again_while_calls_run_is_out_of_order() -> None:
    """A request without results while a call runs, or after a no-op, is refused: there is nothing to tell."""
    client = await running()
    with refused(Reason.OUT_OF_ORDER):
        await client.next(scope={"ticket": "t2"})
    three = await three_running()
    await three.next(output(three.call("billing"), "b1"))
    with refused(Reason.OUT_OF_ORDER):
        await three.next()


async def test_row_22_a_key_that_the_client_waits_for_itself_is_awaited() -> None:
    """A decision waits for a key of its input that the client says is pending, also if no call will write it."""
    client = await Server(answering(lookup=3)).started(SYSTEM, {"ticket": PENDING})
    assert client.kind == "await"
    assert list(getattr(client.step.action, "await").keys) == ["ticket"]
    assert client.named == []
    await client.next(scope={"ticket": "t1"})
    assert client.agents == {"lookup": "outstanding"}


async def test_a_cascade_grades_the_answer_that_was_given_even_if_it_had_to_wait_for_its_input() -> None:
    """A tier's answer is what is graded, also when the grade had to wait for another key of the input."""
    client = await Server(answering({"answer-accepted": 0.9})).started(cascade(agent("small"), agent("large")))
    await client.next(output(client.call("small"), "42"), scope={"ticket": PENDING})
    assert client.kind == "await"
    await client.next(scope={"ticket": "t1"})
    assert input_of(client) == {"ticket": "t1", "candidateAnswer": "42"}


async def test_bdi_is_told_of_skips_and_pending_outputs() -> None:
    """Planners that ask no decision model go through the same states."""
    system = bdi(
        agent("a", writes="x", async_=True),
        agent("b"),
        desires=(desire("d", "a", "b", achievable="start", satisfied="end"),),
    )
    client = await Server().started(system, {"start": True})
    await client.next(pending(client.call("a")))
    assert client.live == {"a": "pending", "b": "outstanding"}
    await client.next(skipped(client.call("b")), scope={"end": True})
    assert client.kind == "done"
    assert client.server.decisions == 0
