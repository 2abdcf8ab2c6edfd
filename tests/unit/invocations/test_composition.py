"""What the engine makes of several moves: calls > await > suspend > done with result > done > no-op.

The planners of this server make few of these combinations; a scripted planner makes them all.
"""

from __future__ import annotations

import pytest

from plannerd.planners.moves import (
    Action,
    Await,
    Done,
    GiveUp,
    GiveUpReason,
    NoOp,
    OutputOf,
    OutputsOf,
    ResultValue,
    Start,
)
from plannerd_protos.planner.v1 import step_pb2
from tests.support.builders import agent, output, pending, scheduler, skipped, suspended
from tests.support.engine import Client, Server
from tests.support.models import answering
from tests.support.scripted_planner import scripted, scripted_request

A, B, C, D = range(4)
SYSTEM = scripted_request(
    agent("a", writes="x", async_=True),
    agent("b", writes="y", human=True),
    agent("c", writes="z"),
    agent("d", writes="w"),
)


async def started(*actions: Action) -> Client:
    """At the first of these moves; the others come with the reports."""
    return await Server(plugins=[scripted(*actions)]).started(SYSTEM, {})


def result_of(client: Client) -> step_pb2.Result:
    """The result of the last action, which is done."""
    assert client.kind == "done"
    return client.step.action.done.result


async def test_calls_of_several_moves_are_joined() -> None:
    """Two reports in one request that each start calls answer one action with all of them, in order."""
    client = await started(Start((A, B)), Start((C,)), Start((D, A)))
    before = client.named
    await client.next(output(before[0], 1), output(before[1], 2))
    assert [client.agent_of(call) for call in client.named] == ["c", "d", "a"]
    assert set(client.named).isdisjoint(before)


async def test_calls_come_before_an_ending_of_the_same_request() -> None:
    """Where one report starts a call and another one ends, the call is started first."""
    for moves in ((Start((C,)), Done(ResultValue(1))), (Done(ResultValue(1)), Start((C,)))):
        client = await started(Start((A, B)), *moves)
        await client.next(output(client.call("a"), 1), output(client.call("b"), 2))
        assert client.agents == {"c": "outstanding"}


async def test_an_await_comes_before_an_ending() -> None:
    """Where the planner waits for an output and has an ending, it waits first."""
    client = await started(Start((A, B)), Done(ResultValue(1)), Await(("x",)))
    await client.next(output(client.call("b"), 2))
    await client.next(pending(client.call("a")))
    assert client.kind == "await"
    assert client.agents == {"a": "pending"}


async def test_a_suspended_call_comes_before_an_ending() -> None:
    """An ending waits until a suspended sibling has its answer."""
    client = await started(Start((A, B)), Done(ResultValue(7)), NoOp())
    await client.next(suspended(client.call("b")))
    await client.next(output(client.call("a"), 1))
    assert client.kind == "suspend"
    assert client.agents == {"b": "suspended"}
    await client.next(output(client.call("b"), 2))
    assert result_of(client).value.int_value == 7


async def test_an_ending_is_held_back_while_others_run() -> None:
    """An ending that the planner has while calls are outstanding is told when the last one has answered."""
    client = await started(Start((A, B, C)), Done(ResultValue(7)), NoOp(), NoOp())
    await client.next(output(client.call("a"), 1))
    assert client.kind == "no_op"
    assert client.live == {"b": "outstanding", "c": "outstanding"}
    await client.next(output(client.call("b"), 2))
    assert client.kind == "no_op"
    await client.next(skipped(client.call("c")))
    assert result_of(client).value.int_value == 7


async def test_giving_up_is_held_back_while_others_run() -> None:
    """Giving up is an ending like any other: running siblings finish first."""
    client = await started(Start((A, C)), GiveUp(GiveUpReason.OTHER, "enough"), NoOp())
    await client.next(output(client.call("a"), 1))
    assert client.kind == "no_op"
    await client.next(output(client.call("c"), 2))
    assert client.step.action.give_up.message == "enough"


async def test_of_two_results_the_last_one_wins() -> None:
    """Where two moves end with a result, the later one is the result."""
    client = await started(Start((A, B)), Done(ResultValue(1)), Done(ResultValue(2)))
    await client.next(output(client.call("a"), 1))
    await client.next(output(client.call("b"), 2))
    assert result_of(client).value.int_value == 2


@pytest.mark.parametrize("moves", [(Done(ResultValue(1)), Done()), (Done(), Done(ResultValue(1)))])
async def test_an_ending_with_a_result_beats_one_without(moves: tuple[Action, Action]) -> None:
    """Where one move ends with a result and another without, whichever comes first, the result counts."""
    client = await started(Start((A, B)), *moves)
    await client.next(output(client.call("a"), 1))
    await client.next(output(client.call("b"), 2))
    assert result_of(client).value.int_value == 1


async def test_an_ending_beats_a_no_op() -> None:
    """A later move that has nothing new does not undo an ending."""
    client = await started(Start((A, B)), Done(), NoOp())
    await client.next(output(client.call("a"), 1), output(client.call("b"), 2))
    assert client.kind == "done"
    assert not client.step.action.done.HasField("result")


async def test_an_await_names_all_keys_and_the_calls_that_write_them() -> None:
    """An await for two keys names both and each pending call behind them, and no longer those that have arrived."""
    system = scripted_request(
        agent("a", writes="x", async_=True), agent("b", writes="y", async_=True), agent("c", writes="z", async_=True)
    )
    planner = scripted(Start((A, B, C)), NoOp(), NoOp(), Await(("x", "y")), Done())
    client = await Server(plugins=[planner]).started(system, {})
    await client.next(*(pending(call) for call in client.named))
    assert client.agents == {"a": "pending", "b": "pending"}
    assert list(getattr(client.step.action, "await").keys) == ["x", "y"]
    await client.next(output(client.call("b"), 1))
    assert client.agents == {"a": "pending"}
    assert list(getattr(client.step.action, "await").keys) == ["x"]
    await client.next(output(client.call("a"), 1))
    assert client.kind == "done"


async def test_an_output_is_awaited_while_others_run() -> None:
    """A planner that waits for a key while another call is outstanding awaits it: only calls come before that."""
    client = await started(Start((A, C)), Await(("x",)), NoOp(), Done())
    await client.next(pending(client.call("a")))
    assert client.kind == "await"
    assert client.live == {"a": "pending", "c": "outstanding"}
    await client.next(output(client.call("c"), 1))
    assert client.kind == "await"
    await client.next(output(client.call("a"), 1))
    assert client.kind == "done"


async def test_results_name_the_calls_whose_outputs_they_are() -> None:
    """A result names the latest call of an agent, or several in the planner's order, whoever answered first."""
    client = await started(Start((A, B)), NoOp(), Done(OutputsOf((("second", B), ("first", A)))))
    a, b = client.named
    await client.next(output(a, 1), output(b, 2))
    outputs = result_of(client).outputs.outputs
    assert [(item.name, item.call_id) for item in outputs] == [("second", b), ("first", a)]
    client = await started(Start((A,)), Start((A,)), Done(OutputOf(A)))
    await client.next(output(client.call("a"), 1))
    latest = client.call("a")
    await client.next(output(latest, 2))
    assert result_of(client).output_of == latest


async def test_the_last_call_says_that_no_other_will_follow() -> None:
    """A call that the planner starts as the final one is marked, and others are not."""
    client = await started(Start((A,)), Start((B,), final=True), Done())
    assert [call.final for call in client.step.calls] == [False]
    await client.next(output(client.call("a"), 1))
    assert [call.final for call in client.step.calls] == [True]


async def test_a_suspended_sibling_does_not_keep_a_scheduler_from_waiting_for_it() -> None:
    """A scheduler that reaches its goal beside a suspended call first suspends for the answer."""
    system = scheduler(
        agent("fetcher", "ticket", writes="page", async_=True),
        agent("expert", "ticket", writes="advice"),
        excluded_output_keys=["page"],
    )
    client = await Server(answering({"fetcher": 3, "goal": 0}, {"expert": 3, "goal": 0}, goal=1)).started(system)
    await client.next(pending(client.call("fetcher")))
    await client.next(suspended(client.call("fetcher")))
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "suspend"
    assert client.agents == {"fetcher": "suspended"}
