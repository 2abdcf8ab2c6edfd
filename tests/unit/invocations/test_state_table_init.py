"""Rows 2 to 8b of the contract's state table: Init, resume and take-over."""

from __future__ import annotations

from plannerd.errors import Reason
from plannerd.wire.values import encode_map
from plannerd_protos.planner.v1 import planners_pb2, step_pb2
from tests.support.builders import agent, changed, output, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}


def server() -> Server:
    return Server(answering(lookup=3, expert=2))


async def after_one_step() -> Client:
    """Running `lookup`, at revision 1."""
    return await server().started(SYSTEM)


async def after_two_steps() -> Client:
    """Running `expert`, at revision 2."""
    client = await after_one_step()
    await client.next(output(client.call("lookup"), "f1"))
    return client


BARE = encode_map({"invocations": 1, "cannotRunAgain": ["lookup"], "beingInvoked": "lookup"})
"""The planner map of an invocation that runs `lookup`."""


# ---- row 2: absent, or another identity's


async def test_row_02_a_step_of_an_unknown_invocation_is_not_found() -> None:
    """FirstAction, NextAction and ExecutionState of an invocation that nobody started are not found."""
    client = server().client(SYSTEM, "unknown")
    client.position.MergeFrom(step_pb2.Position(epoch=1, branch="b1"))
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.first(TICKET)
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.next()
    with refused(Reason.INVOCATION_NOT_FOUND) as caught:
        await client.where()
    assert caught.metadata["invocation_id"] == "unknown"


async def test_row_02_another_identity_s_invocation_is_not_found() -> None:
    """Whoever did not start an invocation can neither see it nor tell that it exists, whatever position they give."""
    owner = await after_one_step()
    thief = owner.server.client(SYSTEM, identity="thief")
    thief.position.CopyFrom(owner.position)
    with refused(Reason.INVOCATION_NOT_FOUND):
        await thief.first(TICKET)
    with refused(Reason.INVOCATION_NOT_FOUND):
        await thief.next(output(owner.call("lookup"), "f1"))
    with refused(Reason.INVOCATION_NOT_FOUND):
        await thief.where()
    await owner.next(output(owner.call("lookup"), "f1"))


async def test_row_02_two_identities_use_the_same_id_without_meeting() -> None:
    """An id is unique per identity only: two callers may use the same one, and neither's End touches the other."""
    mine = await after_one_step()
    other = mine.server.client(SYSTEM, identity="other")
    await other.init()
    await other.first({"ticket": "theirs"})
    await other.end()
    await mine.next(output(mine.call("lookup"), "f1"))
    assert mine.agents == {"expert": "outstanding"}


async def test_row_02_a_client_with_a_state_goes_on_where_its_invocation_is_unknown() -> None:
    """Init with the state, FirstAction and the very request that failed lead on, on a server that never saw it."""
    client = (await after_one_step()).at(server())
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.next(output(client.call("lookup"), "f1"))
    unacknowledged = client.sent
    await client.resume(TICKET)
    assert unacknowledged is not None
    await client.send(unacknowledged)
    assert client.agents == {"expert": "outstanding"}


# ---- row 3: a fresh Init


async def test_row_03_a_fresh_invocation_starts_at_epoch_1_and_revision_0() -> None:
    """A fresh Init starts at epoch 1 and revision 0, on a branch that no other Init has."""
    here = server()
    first, second = here.client(SYSTEM, "i1"), here.client(SYSTEM, "i2")
    await first.init()
    await second.init()
    for client in (first, second):
        assert (client.position.epoch, client.position.revision) == (1, 0)
    assert first.position.branch
    assert first.position.branch != second.position.branch


async def test_row_03_the_same_id_on_two_replicas_gets_two_branches() -> None:
    """Two replicas that start the same id do not know of each other, so their branches differ."""
    first, second = server().client(SYSTEM), server().client(SYSTEM)
    await first.init()
    await second.init()
    assert first.position.branch != second.position.branch


async def test_row_03_an_empty_planner_map_is_no_map() -> None:
    """A planner map without entries is that of an invocation that has not begun: it starts afresh."""
    client = server().client(SYSTEM)
    await client.init(planner_map=encode_map({}))
    await client.first(TICKET)
    assert client.agents == {"lookup": "outstanding"}
    assert client.server.decisions == 1


# ---- row 4: resume where it is absent


async def test_row_04_a_resumed_invocation_is_at_the_position_of_its_state() -> None:
    """Init with a state on another replica answers with the state's position and makes no decision."""
    client = await after_two_steps()
    other = client.at(server())
    reply = await other.init(client.state)
    assert reply.position == client.position == client.state.position
    assert other.server.decisions == 0


async def test_row_04_a_resumed_invocation_tells_its_last_action() -> None:
    """ExecutionState of an invocation that was just resumed has the action, calls and state it was resumed from."""
    client = await after_two_steps()
    other = client.at(server())
    await other.init(client.state)
    where = await other.where()
    assert where.action == client.step.action
    assert where.calls == client.step.calls
    assert where.state == client.state


# ---- row 5: the same Init again, before the first step


async def test_row_05_the_same_init_before_the_first_step_gets_the_same_answer() -> None:
    """An Init that is sent twice before the first step gets the same answer, position included."""
    client = server().client(SYSTEM)
    assert await client.init() == await client.init()


async def test_row_05_an_init_that_means_the_same_gets_the_same_answer() -> None:
    """Two Inits that mean the same are the same, also where one of them spells defaults out."""
    client = server().client(SYSTEM)
    first = await client.init()
    client.request = changed(SYSTEM, scheduler=planners_pb2.SchedulerConfig(max_invocations=10))
    assert await client.init() == first


async def test_row_05_the_same_resume_gets_the_same_answer() -> None:
    """An Init with a state that is sent twice before the next step gets the same answer."""
    client = await after_two_steps()
    other = client.at(server())
    assert await other.init(client.state) == await other.init(client.state)


async def test_row_05_the_same_bare_resume_gets_the_same_answer() -> None:
    """An Init with a planner map that is sent twice before the first step gets the same answer, position included."""
    client = server().client(SYSTEM)
    assert await client.init(planner_map=BARE) == await client.init(planner_map=BARE)


# ---- row 6: another Init


async def test_row_06_another_init_of_a_live_id_is_refused() -> None:
    """An Init with another configuration under an id in use is refused and leaves the invocation as it is."""
    client = await after_one_step()
    client.request = changed(SYSTEM, scheduler=planners_pb2.SchedulerConfig(goal="something else"))
    with refused(Reason.INVOCATION_ALREADY_EXISTS):
        await client.init()
    await client.next(output(client.call("lookup"), "f1"))
    assert client.agents == {"expert": "outstanding"}


async def test_row_06_another_init_before_the_first_step_is_refused() -> None:
    """An Init that differs from the first one is refused even before the first step."""
    client = server().client(SYSTEM)
    await client.init()
    with refused(Reason.INVOCATION_ALREADY_EXISTS):
        await client.init(include_input=True)
    await client.first(TICKET)


async def test_row_06_the_same_init_after_a_step_is_refused() -> None:
    """Once a step was made, the very same Init is another one: it must not throw the step away."""
    client = await after_one_step()
    position = client.step.position
    with refused(Reason.INVOCATION_ALREADY_EXISTS):
        await client.init()
    assert (await client.where()).position == position


async def test_row_06_an_init_of_a_finished_id_is_refused() -> None:
    """The id of a finished invocation is in use until its End."""
    client = await Server(answering(goal=1)).started(SYSTEM)
    assert client.kind == "done"
    with refused(Reason.INVOCATION_ALREADY_EXISTS):
        await client.init()


# ---- row 7: resume at or behind the state


async def test_row_07_a_resume_at_the_state_s_position_replaces_the_invocation() -> None:
    """A client that resumes where the invocation stands already takes its own state there, and goes on."""
    client = await after_two_steps()
    reply = await client.init(client.state)
    assert reply.position == client.state.position
    await client.first({"ticket": "t1", "facts": "f1"})
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "done"


async def test_row_07_a_replica_behind_the_state_is_brought_up_to_it() -> None:
    """A replica with an older copy takes a newer state without take-over."""
    client = await after_one_step()
    other = client.at(server())
    await other.resume(TICKET)
    await client.next(output(client.call("lookup"), "f1"))
    await client.next(output(client.call("expert"), "a1"), scope={"ticket": "t2"})
    assert client.position.revision > other.position.revision
    assert (await other.init(client.state)).position == client.position


# ---- row 8: resume where it is newer, or on another branch


async def test_row_08_an_outdated_state_is_refused_with_the_current_position() -> None:
    """A state older than the invocation is refused, and the error says where the invocation is."""
    client = await after_one_step()
    old = client.at(client.server)
    await client.next(output(client.call("lookup"), "f1"))
    with refused(Reason.STATE_OUTDATED) as caught:
        await old.init(old.state)
    now = client.position
    assert caught.metadata == {"epoch": str(now.epoch), "revision": str(now.revision), "branch": now.branch}
    assert (await client.where()).position == now


async def test_row_08_a_state_of_another_branch_is_refused() -> None:
    """A state of a fork, however far it got, does not replace the invocation of another branch."""
    client, fork = await after_two_steps(), await after_one_step()
    with refused(Reason.STATE_OUTDATED):
        await fork.init(client.state)
    assert (await fork.where()).position == fork.position


async def test_row_08_an_outdated_state_of_a_finished_invocation_is_refused() -> None:
    """An old state does not bring a finished invocation back to life."""
    client = await after_two_steps()
    old = client.at(client.server)
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "done"
    with refused(Reason.STATE_OUTDATED):
        await old.init(old.state)


# ---- row 8b: take-over


async def test_row_08b_a_take_over_opens_a_new_epoch_and_branch() -> None:
    """Whoever takes over gets the next epoch and a new branch at the state's revision."""
    client = await after_two_steps()
    successor = client.at(client.server)
    await successor.init(client.state, take_over=True)
    assert successor.position.epoch == client.position.epoch + 1
    assert successor.position.revision == client.state.position.revision
    assert successor.position.branch != client.position.branch


async def test_row_08b_a_take_over_fences_the_former_owner() -> None:
    """After a take-over each step and the End of the former owner are refused, and the new owner is not disturbed."""
    client = await after_two_steps()
    successor = client.at(client.server)
    await successor.resume({"ticket": "t1", "facts": "f1"}, take_over=True)
    with refused(Reason.OWNER_CHANGED):
        await client.next(output(client.call("expert"), "a1"))
    with refused(Reason.OWNER_CHANGED):
        await client.first({"ticket": "t1"})
    with refused(Reason.OWNER_CHANGED):
        await client.end(client.position)
    await successor.next(output(successor.call("expert"), "a1"))
    assert successor.kind == "done"


async def test_row_08b_a_take_over_goes_beyond_every_epoch_it_knows() -> None:
    """Two take-overs from the same state get different epochs: the second one fences the first."""
    client = await after_one_step()
    first, second = client.at(client.server), client.at(client.server)
    await first.init(client.state, take_over=True)
    await second.init(client.state, take_over=True)
    assert second.position.epoch == first.position.epoch + 1
    with refused(Reason.OWNER_CHANGED):
        await first.first(TICKET)


async def test_row_08b_a_take_over_works_from_an_outdated_state() -> None:
    """A take-over from a state older than the invocation continues from that state."""
    client = await after_one_step()
    old = client.at(client.server)
    await client.next(output(client.call("lookup"), "f1"))
    await old.resume(TICKET, take_over=True)
    assert old.agents == {"lookup": "outstanding"}


async def test_row_08b_a_take_over_works_where_the_invocation_is_finished() -> None:
    """A take-over continues from its state even where the invocation is finished."""
    client = await after_two_steps()
    old = client.at(client.server)
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "done"
    await old.resume({"ticket": "t1", "facts": "f1"}, take_over=True)
    assert old.agents == {"expert": "outstanding"}


async def test_row_08b_a_take_over_from_a_planner_map_fences_the_former_owner() -> None:
    """A take-over with a bare planner map gets the next epoch too."""
    client = await after_one_step()
    successor = client.at(client.server)
    await successor.init(planner_map=BARE, take_over=True)
    assert successor.position.epoch == client.position.epoch + 1
    with refused(Reason.OWNER_CHANGED):
        await client.next(output(client.call("lookup"), "f1"))
    await successor.first(TICKET)
    assert successor.agents == {"lookup": "outstanding"}


async def test_row_08b_call_ids_after_a_take_over_differ_from_those_of_the_former_owner() -> None:
    """What the new owner starts has other call ids than what the former one could start from the same state."""
    client = await after_one_step()
    successor = client.at(server())
    await successor.resume(TICKET, take_over=True)
    report = output(client.call("lookup"), "f1")
    await client.next(report)
    await successor.next(report)
    assert client.agents == successor.agents == {"expert": "outstanding"}
    assert set(client.named).isdisjoint(successor.named)


async def test_a_take_over_needs_something_to_resume_from() -> None:
    """Without a state or a planner map there is nothing to take over."""
    client = server().client(SYSTEM)
    with refused(Reason.INVALID_REQUEST) as caught:
        await client.init(take_over=True)
    assert caught.fields == ["take_over"]
