"""Replicas that share a store: any of them serves any request, and each step happens once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest

from plannerd.errors import Reason
from plannerd.invocations.stores import MemoryBounds
from plannerd.invocations.stores.redis import RedisStore
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import agent, output, scheduler, suspended
from tests.support.engine import STORE_MAKER, Client, Server, refused
from tests.support.models import GatedModel, answering, until
from tests.support.redis import RedisProcess, Stores

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}

Replicas = Callable[..., Server]


@pytest.fixture
def prefix() -> str:
    """What the keys of this test begin with."""
    return uuid.uuid4().hex


@pytest.fixture
def replica(stores: Stores, prefix: str) -> Replicas:
    """Makes replicas of one deployment."""

    def make(model: GatedModel | None = None, claim_seconds: float = 5.0, bounds: MemoryBounds | None = None) -> Server:
        token = STORE_MAKER.set(
            lambda bounds, clock, definitions: stores.make(
                bounds, clock, definitions, prefix=prefix, claim_seconds=claim_seconds
            )
        )
        try:
            return Server(model or answering(lookup=3, expert=3), bounds=bounds)
        finally:
            STORE_MAKER.reset(token)

    return make


def keys_of(redis: RedisProcess, prefix: str) -> list[str]:
    """The keys of a deployment."""
    answer = redis.command("KEYS", f"{prefix}:*").decode()
    return [line for line in answer.split("\r\n") if line.startswith(prefix)]


async def running(replica: Replicas) -> tuple[Client, Client]:
    """A client at one replica, whose first step was made, and the same client at another one that knows of it too."""
    here = await replica().started(SYSTEM)
    there = here.at(replica())
    await there.where()
    return here, there


async def test_clients_may_carry_nothing(replica: Replicas) -> None:
    """Each request goes to a replica that never heard of the invocation, without a state, and it goes on."""
    client = replica().client(SYSTEM)
    assert (await client.init()).durable
    client = client.at(replica())
    await client.first(TICKET)
    client = client.at(replica())
    await client.next(output(client.call("lookup"), "f1"))
    assert client.agents == {"expert": "outstanding"}
    assert {field.name: field.value for field in client.server.model.asked[-1].input} == {
        "ticket": "t1",
        "facts": "f1",
    }
    await client.at(replica()).end()
    with refused(Reason.INVOCATION_ENDED):
        await client.where()


async def test_states_can_be_left_out(replica: Replicas) -> None:
    """Where the store keeps invocations, a client that asks for it gets states only when it is suspended, or asks."""
    system = scheduler(agent("lookup", "ticket", writes="facts", human=True), agent("expert", "facts", writes="advice"))
    client = replica().client(system)
    await client.init(omit_state=True)
    await client.first(TICKET)
    assert not client.step.HasField("state")
    asked = await client.at(replica()).where()
    assert asked.HasField("state")
    asked.ClearField("state")
    assert asked == client.step
    await client.next(suspended(client.call("lookup"), "desk"))
    assert client.step.HasField("state")


async def test_a_repeat_at_another_replica_gets_the_stored_reply(replica: Replicas) -> None:
    """A request whose reply was lost is answered byte for byte by a replica that still remembers the step before."""
    here, there = await running(replica)
    request = planner_pb2.NextActionRequest(
        invocation_id="i1", base=here.position, results=[output(here.call("lookup"), "f1")]
    )
    reply = await here.send_raw(request)
    assert await there.send_raw(request) == reply
    assert there.server.decisions == 0


async def test_a_replica_that_was_left_behind_goes_on_from_the_latest(replica: Replicas) -> None:
    """A replica that remembers an older record makes the next step on top of what others made."""
    here, there = await running(replica)
    await here.next(output(here.call("lookup"), "f1"))
    await here.at(there.server).next(output(here.call("expert"), "a1"))


async def test_other_requests_on_an_old_base_are_stale_everywhere(replica: Replicas) -> None:
    """A replica that was left behind does not make a step that would have been right for what it remembers."""
    here, there = await running(replica)
    call = here.call("lookup")
    await here.next(output(call, "f1"))
    with refused(Reason.STALE_REVISION) as caught:
        await there.next(output(call, "another"))
    assert caught.metadata["revision"] == "2"
    assert there.server.decisions == 0


async def test_what_another_replica_attached_is_what_counts(replica: Replicas) -> None:
    """A scope that was given to one replica without a step is the one that another replica decides on."""
    here, there = await running(replica)
    await here.first({"ticket": "corrected"})
    await there.next(output(there.call("lookup"), "f1"))
    assert there.server.model.asked[-1].input[0].value == "corrected"


async def test_of_two_requests_at_two_replicas_one_wins(replica: Replicas) -> None:
    """Of two different steps from one position, decided in two places at once, one is made and one is stale."""
    here, there = await running(replica)
    call = here.call("lookup")
    outcomes = await asyncio.gather(
        here.next(output(call, "f1")), there.next(output(call, "f2")), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [getattr(outcome, "reason", outcome) for outcome in lost] == [Reason.STALE_REVISION]
    assert here.server.decisions + there.server.decisions == 2  # the first step, and one of these


async def test_a_decision_is_paid_once(replica: Replicas) -> None:
    """A request that a second replica gets while the first still waits for the model is answered by the first's."""
    slow, other = GatedModel(answering(lookup=3)), GatedModel(answering(lookup=3))
    other.gate.set()
    here = replica(slow).client(SYSTEM)
    await here.init()
    there = here.at(replica(other))
    request = planner_pb2.FirstActionRequest(invocation_id="i1", base=here.position)
    request.scope.set["ticket"].string_value = "t1"
    first = asyncio.create_task(here.send_raw(request))
    await slow.entered.wait()
    second = asyncio.create_task(there.send_raw(request))
    await asyncio.sleep(0.3)
    assert not second.done()
    slow.gate.set()
    assert await first == await second
    assert (len(slow.asked), len(other.asked)) == (1, 0)


async def test_a_failed_decision_lets_others_try_at_once(replica: Replicas) -> None:
    """When a client gives up on a replica that waits for the model, another replica need not wait for long."""
    stuck = GatedModel(answering(lookup=3))
    here = replica(stuck, 600).client(SYSTEM)
    await here.init()
    there = here.at(replica(None, 600))
    waiting = asyncio.create_task(here.first(TICKET))
    await stuck.entered.wait()
    waiting.cancel()
    async with asyncio.timeout(20):
        await there.first(TICKET)
    assert there.agents == {"lookup": "outstanding"}


async def test_a_replica_that_died_while_it_asked_is_waited_for_no_longer_than_its_claim(replica: Replicas) -> None:
    """A replica that vanishes in the middle of a decision holds others up until its claim is over, and then no more."""
    stuck = GatedModel(answering(lookup=3))
    dying = replica(stuck, 0.5)
    here = dying.client(SYSTEM)
    await here.init()
    waiting = asyncio.create_task(here.first(TICKET))
    await stuck.entered.wait()
    assert isinstance(dying.store, RedisStore)
    await dying.store.close()  # it can neither renew nor release its claim any more
    there = here.at(replica())
    async with asyncio.timeout(20):
        await there.first(TICKET)
    assert there.server.decisions == 1
    waiting.cancel()


async def test_a_claim_lasts_as_long_as_the_decision(replica: Replicas) -> None:
    """A decision that takes longer than a claim lasts is still made once: who is alive renews its claim."""
    slow, other = GatedModel(answering(lookup=3)), GatedModel(answering(lookup=3))
    here = replica(slow, 0.3).client(SYSTEM)
    await here.init()
    there = here.at(replica(other, 0.3))
    first = asyncio.create_task(here.first(TICKET))
    await slow.entered.wait()
    second = asyncio.create_task(there.first(TICKET))
    await asyncio.sleep(1.5)
    assert other.waiting == 0
    slow.gate.set()
    await asyncio.gather(first, second)
    assert here.reply == there.reply


async def test_a_decision_may_take_longer_than_idle_invocations_are_kept(replica: Replicas) -> None:
    """An invocation that is being decided about is not idle."""
    slow = GatedModel(answering(lookup=3))
    here = replica(slow, 5.0, MemoryBounds(idle_seconds=0.6)).client(SYSTEM)
    await here.init()
    step = asyncio.create_task(here.first(TICKET))
    await slow.entered.wait()
    await asyncio.sleep(2.0)
    slow.gate.set()
    await step
    assert here.agents == {"lookup": "outstanding"}


async def test_whoever_was_fenced_elsewhere_is_fenced_here(replica: Replicas) -> None:
    """After a take-over at one replica the former owner is refused by the replica that still remembers it as owner."""
    here, there = await running(replica)
    await there.init(there.state, take_over=True)
    with refused(Reason.OWNER_CHANGED):
        await here.next(output(here.call("lookup"), "f1"))
    with refused(Reason.OWNER_CHANGED):
        await here.end(here.position)


async def test_an_end_counts_everywhere(replica: Replicas) -> None:
    """What was ended at one replica is not brought back by another one that still remembers it."""
    here, there = await running(replica)
    await here.end()
    with refused(Reason.INVOCATION_ENDED):
        await there.next(output(there.call("lookup"), "f1"))
    with refused(Reason.INVOCATION_ENDED):
        await there.init()


async def test_an_init_is_known_everywhere(replica: Replicas) -> None:
    """The same Init at another replica gets the same answer, another one is refused."""
    here = replica().client(SYSTEM)
    first = await here.init()
    there = here.at(replica())
    assert await there.init() == first
    other = replica().client(scheduler(agent("other", "ticket")))
    with refused(Reason.INVOCATION_ALREADY_EXISTS):
        await other.init()


async def test_a_store_that_lost_writes_is_overtaken_by_the_client(
    replica: Replicas, redis: RedisProcess, prefix: str
) -> None:
    """A client that is ahead of a store that lost its last writes goes on from its state; nothing is decided again."""
    here = await replica().started(SYSTEM)
    (key,) = keys_of(redis, prefix)
    old = redis.command("DUMP", key)
    await here.next(output(here.call("lookup"), "f1"))
    here = here.at(replica())
    payload = old.partition(b"\r\n")[2][:-2]
    redis.command("DEL", key)
    assert redis.command("RESTORE", key, "0", payload).startswith(b"+OK")
    with refused(Reason.REPLICA_BEHIND):
        await here.next(output(here.call("expert"), "a1"))
    assert keys_of(redis, prefix) == []
    await here.resume({"ticket": "t1", "facts": "f1"})
    assert here.agents == {"expert": "outstanding"}
    assert here.server.decisions == 0


async def test_what_a_newer_version_stored_is_left_to_newer_replicas(
    replica: Replicas, redis: RedisProcess, prefix: str
) -> None:
    """A record in a later format is refused as such, and not touched."""
    here = await replica().started(SYSTEM)
    (key,) = keys_of(redis, prefix)
    meta = redis.command("HGET", key, "m").partition(b"\r\n")[2][:-2].decode()
    redis.command("HSET", key, "m", meta.replace('"format":1', '"format":2', 1))
    there = here.at(replica())
    with refused(Reason.STATE_NEWER):
        await there.next(output(there.call("lookup"), "f1"))
    assert len(keys_of(redis, prefix)) == 1


async def test_a_damaged_record_is_nobodys_fault_but_the_stores(
    replica: Replicas, redis: RedisProcess, prefix: str
) -> None:
    """A record that can't be read is an internal error, not one that blames the client for its request."""
    here = await replica().started(SYSTEM)
    (key,) = keys_of(redis, prefix)
    redis.command("HSET", key, "d", "{}")
    there = here.at(replica())
    with pytest.raises(ValueError, match="can't be restored"):
        await there.where()


async def test_a_step_is_one_round_trip_and_a_decision_one_more(
    replica: Replicas, redis: RedisProcess, prefix: str
) -> None:
    """A step runs one script; one more where a model is asked, to claim it."""

    def scripts() -> int:
        stats = redis.command("INFO", "commandstats").decode()
        return sum(
            int(line.partition("calls=")[2].partition(",")[0]) for line in stats.split("\r\n") if "evalsha" in line
        )

    here = await replica().started(SYSTEM)
    before = scripts()
    await here.next(output(here.call("lookup"), "f1"))
    assert scripts() - before == 2
    before = scripts()
    await here.first({"ticket": "t1", "facts": "f1"})  # attaching asks nobody
    assert scripts() - before == 1


async def test_keys_and_their_lives(replica: Replicas, redis: RedisProcess, prefix: str) -> None:
    """An invocation is one key with a time to live; ended, it is a tombstone with a shorter one; no claim is left."""

    def lives() -> dict[str, int]:
        return {key: int(redis.command("PTTL", key)[1:-2]) for key in keys_of(redis, prefix)}

    here = await replica().started(SYSTEM)
    (key,) = lives()
    assert key.startswith(f"{prefix}:i:{{")
    assert key.endswith(":i1}")
    assert "me" not in key.removeprefix(prefix)
    assert 3_500_000 < lives()[key] <= 3_600_000
    await here.end()
    assert list(lives()) == [key]
    assert 200_000 < lives()[key] <= 300_000


async def test_nothing_is_left_of_what_was_done(replica: Replicas) -> None:
    """After steps, failures and cancellations no claim, release or renewal is still under way."""
    stuck = GatedModel(answering(lookup=3))
    here = replica(stuck).client(SYSTEM)
    await here.init()
    for _ in range(3):
        stuck.entered.clear()
        waiting = asyncio.create_task(here.first(TICKET))
        await stuck.entered.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await until(lambda: all("glide" in repr(task) or task.done() for task in others))
