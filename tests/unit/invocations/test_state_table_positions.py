"""Rows 9 to 13 of the contract's state table: where a request comes from, and which one of two counts."""

from __future__ import annotations

import pytest

from plannerd.errors import Reason
from plannerd.values import Opaque, Text, Value
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2
from tests.support.builders import agent, failed, output, pending, scheduler, skipped, suspended
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(
    agent("lookup", "ticket", writes="facts"),
    agent("expert", "facts", writes="advice"),
    agent("approver", "advice", writes="approval", human=True),
)
TICKET = {"ticket": "t1"}
ANSWERS = {"lookup": 3, "expert": 3, "approver": 3}


def server() -> Server:
    return Server(answering(**ANSWERS))


async def running_lookup() -> Client:
    """At revision 1."""
    return await server().started(SYSTEM)


async def running_expert() -> Client:
    """At revision 2."""
    client = await running_lookup()
    await client.next(output(client.call("lookup"), "f1"))
    return client


async def running_approver() -> Client:
    """At revision 3."""
    client = await running_expert()
    await client.next(output(client.call("expert"), "a1"))
    return client


def position(client: Client, epoch: int = 0, revision: int = 0, branch: str = "") -> step_pb2.Position:
    """The client's position, moved."""
    here = client.position
    return step_pb2.Position(epoch=here.epoch + epoch, revision=here.revision + revision, branch=branch or here.branch)


# ---- row 9: from the current position


async def test_row_09_each_step_adds_one_to_the_revision() -> None:
    """A step from the current position is applied: revision + 1, epoch and branch as they were."""
    client = await running_lookup()
    before = client.at(client.server).position
    await client.next(output(client.call("lookup"), "f1"))
    assert client.position == step_pb2.Position(epoch=before.epoch, revision=before.revision + 1, branch=before.branch)


async def test_row_09_the_reply_is_kept() -> None:
    """ExecutionState gives the last step as it was answered, as often as it is asked."""
    client = await running_expert()
    assert await client.where() == client.step
    assert await client.where() == client.step


async def test_row_09_a_request_without_a_base_is_refused() -> None:
    """A step must say where it comes from."""
    client = await running_lookup()
    request = planner_pb2.NextActionRequest(invocation_id="i1", results=[output(client.call("lookup"), "f1")])
    with refused(Reason.INVALID_REQUEST) as caught:
        await client.send(request)
    assert caught.fields == ["base"]


# ---- row 10: repeats


async def repeated(client: Client) -> None:
    """The client's last request is answered with the same bytes, without a decision and without a step."""
    decisions, now = client.server.decisions, await client.where()
    assert await client.send_raw(client.sent) == client.reply
    assert await client.send_raw(client.sent) == client.reply
    assert client.server.decisions == decisions
    assert await client.where() == now


async def test_row_10_a_repeated_first_action_gets_the_same_bytes() -> None:
    """A FirstAction whose answer was lost gets it again, byte for byte, without a second decision."""
    client = await running_lookup()
    assert client.server.decisions == 1
    await repeated(client)


async def test_row_10_a_repeated_next_action_gets_the_same_bytes() -> None:
    """A NextAction whose answer was lost gets it again, byte for byte, without a second decision."""
    client = await running_expert()
    assert client.server.decisions == 2
    await repeated(client)


@pytest.mark.parametrize("last", ["done", "gave up", "failed"])
async def test_row_10_a_repeated_last_step_gets_the_same_bytes(last: str) -> None:
    """The request that ended an invocation gets its answer again, however it ended."""
    system = scheduler(agent("lookup", "ticket", writes="facts"), output_key="facts")
    client = await Server(answering({"lookup": 3}, goal=1)).started(system)
    call = client.call("lookup")
    await client.next({"done": output(call, "f1"), "gave up": skipped(call), "failed": failed(call)}[last])
    assert client.kind == ("done" if last == "done" else "give_up")
    await repeated(client)


@pytest.mark.parametrize("outcome", ["output", "skipped", "pending", "suspended"])
async def test_row_10_a_repeat_is_known_whatever_it_reports(outcome: str) -> None:
    """Outputs, skips, pending and suspended reports are all known again."""
    client = await running_approver()
    call = client.call("approver")
    forms = {
        "output": output(call, {"granted": True}, recovered=True),
        "skipped": skipped(call),
        "pending": pending(call, external=True),
        "suspended": suspended(call, "r1"),
    }
    await client.next(forms[outcome], scope={"ticket": "t2"})
    await repeated(client)


async def test_row_10_the_order_of_a_map_s_entries_does_not_make_another_request() -> None:
    """A repeat whose maps and scope list their entries in another order is a repeat."""
    client = await running_lookup()
    call = client.call("lookup")
    keys = [f"k{number}" for number in range(30)]
    there: dict[str, Value] = {key: {key: 1, "n": [key]} for key in keys}
    back: dict[str, Value] = {key: {"n": [key], key: 1} for key in reversed(keys)}
    scope = {"ticket": there, "advice": None, "facts": "old"}
    await client.next(output(call, there), scope=scope)
    decisions, reply = client.server.decisions, client.reply
    other = client.at(client.server)
    base = position(client, revision=-1)
    await other.next(output(call, back), scope=dict(reversed({**scope, "ticket": back}.items())), base=base)
    assert other.reply == reply
    assert client.server.decisions == decisions


async def test_row_10_numbers_count_by_value() -> None:
    """A repeat that writes 2 as 2.0, as a client with one number type does, is a repeat."""
    client = await running_lookup()
    call, base = client.call("lookup"), position(client)
    await client.next(output(call, {"n": 2, "list": [0, -7]}), scope={"ticket": 3})
    reply = client.reply
    await client.next(output(call, {"n": 2.0, "list": [-0.0, -7.0]}), scope={"ticket": 3.0}, base=base)
    assert client.reply == reply


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, True),
        (0, False),
        (2, "2"),
        ("f", Text("f")),
        ("f", b"f"),
        (2, 3),
        (2, 2.5),
        (["a", "b"], ["b", "a"]),
        ([["a"], "b"], [["a", "b"]]),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": None}}),
        (None, ""),
        (None, []),
        ([], {}),
        (2**53, 2**53 + 1),
    ],
)
async def test_row_10_another_output_is_another_request(first: Value, second: Value) -> None:
    """Values that differ, if only in their types, make different requests."""
    client = await running_lookup()
    call, base = client.call("lookup"), position(client)
    await client.next(output(call, first))
    with refused(Reason.STALE_REVISION):
        await client.next(output(call, second), base=base)


@pytest.mark.parametrize("change", ["results", "outcome", "recovered", "scope", "removed", "belief", "order", "method"])
async def test_row_10_any_other_difference_makes_another_request(change: str) -> None:
    """A request that differs in results, their order, scope, removed keys, beliefs or method is no repeat."""
    system = scheduler(
        agent("lookup", "ticket", writes="facts", async_=True),
        agent("expert", "ticket", writes="advice"),
        agent("believer", "missing", when_believed="it rains"),
        excluded_output_keys=["facts"],
    )
    client = Server(answering({"lookup": 3}, expert=3)).client(system)
    await client.init()
    await client.first(TICKET, beliefs={"it rains": False})
    await client.next(pending(client.call("lookup")), beliefs={"it rains": False})
    base = position(client)
    lookup, expert = output(client.call("lookup"), "f1"), output(client.call("expert"), "a1")
    await client.next(lookup, expert, scope={"ticket": "t2"}, removed=("advice",), beliefs={"it rains": False})
    request = client.sent
    assert isinstance(request, planner_pb2.NextActionRequest)
    assert await client.send_raw(request) == client.reply
    other = planner_pb2.NextActionRequest()
    other.CopyFrom(request)
    match change:
        case "results":
            del other.results[1]
        case "outcome":
            other.results[1].CopyFrom(skipped(other.results[1].call_id))
        case "recovered":
            other.results[1].recovered = True
        case "scope":
            other.scope.set["other"].string_value = "x"
        case "removed":
            del other.scope.removed[:]
        case "belief":
            other.beliefs["it rains"] = agent_pb2.BELIEF_TRUE
        case "order":
            other.results.reverse()
    with refused(Reason.STALE_REVISION):
        if change == "method":
            await client.first(base=base)
        else:
            await client.send(other)


async def test_row_10_only_the_last_answer_is_kept() -> None:
    """The request before the last one is stale: its answer is gone, and nothing is decided on it again."""
    client = await running_lookup()
    old = client.sent
    await client.next(output(client.call("lookup"), "f1"))
    assert client.server.decisions == 2
    with refused(Reason.STALE_REVISION):
        await client.send_raw(old)
    assert client.server.decisions == 2


async def test_row_10_an_opaque_output_counts_by_its_tag() -> None:
    """A repeat with the same tag is a repeat, one with another tag is not."""
    system = scheduler(
        agent("lookup", "ticket", writes="facts"), agent("expert", "facts"), excluded_output_keys=["facts"]
    )
    client = await Server(answering(lookup=3, expert=3)).started(system)
    call, base = client.call("lookup"), position(client)
    await client.next(output(call, Opaque(b"v1")))
    reply = client.reply
    await client.next(output(call, Opaque(b"v1")), base=base)
    assert client.reply == reply
    with refused(Reason.STALE_REVISION):
        await client.next(output(call, Opaque(b"v2")), base=base)


# ---- row 11: from an older position


async def test_row_11_an_older_base_is_refused_with_the_current_position() -> None:
    """A step from an older revision of the same branch is refused, and the error says where the invocation is."""
    client = await running_approver()
    now = position(client)
    with refused(Reason.STALE_REVISION) as caught:
        await client.next(output(client.call("approver"), "yes"), base=position(client, revision=-2))
    assert caught.metadata == {"epoch": str(now.epoch), "revision": str(now.revision), "branch": now.branch}
    assert (await client.where()).position == now


async def test_row_11_the_loser_of_a_race_is_refused_and_nothing_of_it_is_applied() -> None:
    """Of two different steps from one position the first counts; the second leaves no trace, and pays no decision."""
    winner = await running_lookup()
    loser = winner.at(winner.server)
    call = winner.call("lookup")
    await winner.next(output(call, "from the winner"))
    decisions = winner.server.decisions
    with refused(Reason.STALE_REVISION):
        await loser.next(output(call, "from the loser"), scope={"ticket": "t2"})
    assert winner.server.decisions == decisions
    await winner.next(output(winner.call("expert"), "a1"))
    values = {field.name: field.value for field in winner.server.model.asked[-1].input}
    assert values["facts"] == "from the winner"
    assert values["ticket"] == "t1"


# ---- row 12: from ahead


@pytest.mark.parametrize(("epoch", "revision"), [(0, 1), (0, 5), (1, 0), (1, -1), (7, 0)])
async def test_row_12_a_base_from_ahead_makes_the_replica_drop_its_copy(epoch: int, revision: int) -> None:
    """A replica that meets a later position has an old copy: it says so, drops it, and decides nothing."""
    client = await running_expert()
    call, ahead = client.call("expert"), position(client, epoch, revision)
    decisions = client.server.decisions
    with refused(Reason.REPLICA_BEHIND):
        await client.next(output(call, "a1"), base=ahead)
    assert client.server.decisions == decisions
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.where()


async def test_row_12_a_later_epoch_is_ahead_on_any_branch() -> None:
    """After a take-over elsewhere, on another branch, this replica is behind; it is not the new owner who is fenced."""
    client = await running_lookup()
    successor = client.at(server())
    await successor.resume(TICKET, take_over=True)
    with refused(Reason.REPLICA_BEHIND):
        await successor.at(client.server).next(output(successor.call("lookup"), "f1"))


async def test_row_12_a_client_goes_on_at_the_replica_that_was_behind() -> None:
    """After REPLICA_BEHIND the client resumes right there from its last state and goes on."""
    away = await running_lookup()
    behind = away.server
    home = away.at(server())
    await home.resume(TICKET)
    await home.next(output(home.call("lookup"), "f1"))
    returned = home.at(behind)
    with refused(Reason.REPLICA_BEHIND):
        await returned.next(output(home.call("expert"), "a1"))
    await returned.resume({"ticket": "t1", "facts": "f1"})
    await returned.next(output(returned.call("expert"), "a1"))
    assert returned.agents == {"approver": "outstanding"}


@pytest.mark.parametrize("revision", [-1, 0, 1])
async def test_row_12_a_replica_that_only_saw_an_init_is_behind_whoever_went_on_elsewhere(revision: int) -> None:
    """A fresh Init on another replica fences nobody: a step of the client that went on is not another fork's there."""
    client, idle = await running_expert(), server().client(SYSTEM)
    await idle.init()
    there = client.at(idle.server)
    with refused(Reason.REPLICA_BEHIND):
        await there.next(output(client.call("expert"), "a1"), base=position(client, revision=revision))
    await there.resume({"ticket": "t1", "facts": "f1"})
    await there.next(output(client.call("expert"), "a1"))
    assert there.agents == {"approver": "outstanding"}


async def test_row_07_a_state_replaces_an_invocation_that_only_saw_an_init() -> None:
    """A resume without take-over may replace an invocation that made no step, on whatever branch."""
    client, idle = await running_expert(), server().client(SYSTEM)
    await idle.init()
    there = client.at(idle.server)
    await there.resume({"ticket": "t1", "facts": "f1"})
    assert there.agents == {"expert": "outstanding"}


# ---- row 13: a fenced owner, another fork


async def test_row_13_a_step_of_another_fork_is_refused() -> None:
    """Two replicas that each started the id are two forks: a step of one is refused at the other."""
    first, second = await running_expert(), await running_lookup()
    for revision in (-1, 0, 1, 5):
        with refused(Reason.OWNER_CHANGED):
            await first.at(second.server).next(
                output(first.call("expert"), "a1"), base=position(first, revision=revision)
            )
    await second.next(output(second.call("lookup"), "f1"))
    assert second.agents == {"expert": "outstanding"}


async def test_row_13_a_fenced_owner_is_refused_even_where_its_request_is_a_repeat() -> None:
    """The former owner does not get the stored answer of before the take-over."""
    client = await running_expert()
    successor = client.at(client.server)
    await successor.resume({"ticket": "t1", "facts": "f1"}, take_over=True)
    with refused(Reason.OWNER_CHANGED):
        await client.send_raw(client.sent)
