"""What Init answers, and what an Init that only validates does."""

from __future__ import annotations

from plannerd.errors import Reason
from plannerd_protos.planner.v1 import planners_pb2
from tests.support.builders import agent, changed, router, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}


def server() -> Server:
    return Server(answering(lookup=3, expert=2))


async def after_one_step() -> Client:
    """Running `lookup`, at revision 1."""
    return await server().started(SYSTEM)


async def test_init_names_the_keys_that_the_planner_reads() -> None:
    """Init answers with each key that the planner reads and what it needs of it; other keys are ignored later."""
    client = server().client(SYSTEM)
    reply = await client.init()
    assert set(reply.reads) == {"ticket", "facts", "advice"}
    assert not reply.durable
    assert reply.model == "test"
    await client.first({"ticket": "t1", "secret": "s"})
    fields = [field.name for field in client.server.model.asked[0].input]
    assert fields == ["ticket"]


async def test_validate_only_starts_nothing() -> None:
    """A validating Init answers as a real one would, without a position, and starts nothing."""
    client = server().client(SYSTEM)
    reply = await client.init(validate_only=True)
    assert not reply.HasField("position")
    assert set(reply.reads) == {"ticket", "facts", "advice"}
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.where()
    await client.init()
    assert (client.position.epoch, client.position.revision) == (1, 0)


async def test_validate_only_does_not_touch_a_running_invocation() -> None:
    """A validating Init under an id in use leaves the invocation as it is."""
    client = await after_one_step()
    other = client.at(client.server)
    other.request = router(agent("a"), agent("b"))
    await other.init(validate_only=True)
    assert (await client.where()).position == client.position


async def test_validate_only_finds_what_is_wrong() -> None:
    """A validating Init refuses what a real one would refuse."""
    client = server().client(changed(SYSTEM, scheduler=planners_pb2.SchedulerConfig(goal_threshold=1.0)))
    with refused(Reason.INVALID_CONFIGURATION) as caught:
        await client.init(validate_only=True)
    assert caught.fields == ["scheduler.goal_threshold"]


async def test_validate_only_checks_a_state_to_resume_from() -> None:
    """A validating Init with a state checks the state, and starts nothing from it."""
    client = await after_one_step()
    other = client.at(server())
    await other.init(client.state, validate_only=True)
    with refused(Reason.INVOCATION_NOT_FOUND):
        await other.where()
    with refused(Reason.INVALID_EXECUTION_STATE):
        await other.init(changed(client.state, data=b"{}"), validate_only=True)


async def test_states_are_not_left_out_where_only_the_client_keeps_them() -> None:
    """A client that asks for replies without states gets them all the same if nobody else would have them."""
    client = server().client(SYSTEM)
    await client.init(omit_state=True)
    await client.first(TICKET)
    assert client.step.HasField("state")
