"""The memory store: what is dropped, when, and that dropping costs a client nothing but a resume."""

from __future__ import annotations

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.stores import MemoryBounds
from plannerd_protos.planner.v1 import step_pb2
from tests.support.builders import agent, output, scheduler
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}


def server(**bounds: float) -> Server:
    return Server(answering(lookup=3, expert=3), bounds=MemoryBounds(**bounds))  # type: ignore[arg-type]


async def is_there(client: Client) -> bool:
    """Whether the server still has the invocation."""
    try:
        await client.where()
    except PlannerdError as error:
        if error.reason is not Reason.INVOCATION_NOT_FOUND:
            raise
        return False
    return True


async def test_over_the_count_the_longest_untouched_is_dropped() -> None:
    """With room for two, the third invocation makes room for itself at the cost of the one that was idle longest."""
    here = server(max_invocations=2)
    first = await here.started(SYSTEM, invocation_id="first")
    second = await here.started(SYSTEM, invocation_id="second")
    await first.next(output(first.call("lookup"), "f1"))
    third = await here.started(SYSTEM, invocation_id="third")
    assert [await is_there(client) for client in (first, second, third)] == [True, False, True]
    assert len(here.memory) == 2
    assert here.memory.evicted == 1


async def test_whoever_asked_last_is_dropped_last() -> None:
    """Asking where an invocation stands is a touch: another one, which nobody asked for since, is dropped before it."""
    here = server(max_invocations=2)
    first = await here.started(SYSTEM, invocation_id="first")
    second = await here.started(SYSTEM, invocation_id="second")
    await first.where()
    await here.started(SYSTEM, invocation_id="third")
    assert [await is_there(client) for client in (first, second)] == [True, False]


async def test_over_the_bytes_the_longest_untouched_is_dropped() -> None:
    """What the scopes take is bounded: a large one drives out others, oldest first, and is itself kept."""
    here = server(max_bytes=40_000)
    small = [await here.started(SYSTEM, invocation_id=f"small{number}") for number in range(5)]
    assert [await is_there(client) for client in small] == [True] * 5
    large = await here.started(SYSTEM, {"ticket": "x" * 30_000}, invocation_id="large")
    assert await is_there(large)
    left = [await is_there(client) for client in small]
    assert not left[0]
    assert left == sorted(left), "the oldest go first"


async def test_a_single_invocation_is_kept_however_large_it_is() -> None:
    """An invocation that alone exceeds the bound in bytes can still be worked on: other limits bound its scope."""
    here = server(max_bytes=1000)
    client = await here.started(SYSTEM, {"ticket": "x" * 5000})
    await client.next(output(client.call("lookup"), "f1"))
    assert client.agents == {"expert": "outstanding"}


async def test_bytes_are_given_back() -> None:
    """Values that are replaced, invocations that end, and those that are dropped no longer count."""
    here = server(max_bytes=100_000)
    client = await here.started(SYSTEM, {"ticket": "x" * 30_000})
    for number in range(20):
        await client.first({"ticket": f"{number}" + "x" * 30_000})
    for number in range(20):
        other = await here.started(SYSTEM, {"ticket": "x" * 30_000}, invocation_id=f"i1{number}")
        await other.end()
    assert here.memory.evicted == 0
    assert await is_there(client)


async def test_an_idle_invocation_is_dropped() -> None:
    """Whoever is not touched for the idle time is gone; up to then it is there."""
    here = server(idle_seconds=60)
    client = await here.started(SYSTEM)
    here.clock.advance(60)
    assert await is_there(client)
    here.clock.advance(61)
    assert not await is_there(client)


async def test_a_step_begins_the_idle_time_anew() -> None:
    """A step counts as a touch."""
    here = server(idle_seconds=60)
    client = await here.started(SYSTEM)
    here.clock.advance(50)
    await client.next(output(client.call("lookup"), "f1"))
    here.clock.advance(50)
    assert await is_there(client)


async def test_reading_and_repeating_begin_the_idle_time_anew() -> None:
    """A client that asks where its invocation stands, or repeats a request, touches it: it is not idle."""
    here = server(idle_seconds=60)
    asked = await here.started(SYSTEM, invocation_id="asked")
    repeated = await here.started(SYSTEM, invocation_id="repeated")
    for _ in range(3):
        here.clock.advance(50)
        assert await asked.where() == asked.step
        assert await repeated.send_raw(repeated.sent) == repeated.reply


async def test_the_idle_are_dropped_without_waiting_for_the_busy() -> None:
    """A busy invocation does not keep an idle one alive, nor the other way round."""
    here = server(idle_seconds=60)
    idle = await here.started(SYSTEM, invocation_id="idle")
    busy = await here.started(SYSTEM, invocation_id="busy")
    here.clock.advance(40)
    await busy.first(TICKET)
    here.clock.advance(40)
    assert not await is_there(idle)
    assert await is_there(busy)


async def test_a_dropped_invocation_goes_on_from_its_client_s_state() -> None:
    """A client whose invocation was dropped resumes from its last state on the same server and reaches its end."""
    here = server(max_invocations=1)
    client = await here.started(SYSTEM)
    await here.started(SYSTEM, invocation_id="other")
    report = output(client.call("lookup"), "f1")
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.next(report)
    await client.resume(TICKET)
    assert client.agents == {"lookup": "outstanding"}
    await client.next(report)
    await client.next(output(client.call("expert"), "a1"))
    assert client.kind == "done"


async def test_a_dropped_id_can_be_started_anew() -> None:
    """An id that was dropped is free: a fresh Init starts from the beginning, on another branch."""
    here = server(max_invocations=1)
    client = await here.started(SYSTEM)
    old = step_pb2.Position()
    old.CopyFrom(client.position)
    await here.started(SYSTEM, invocation_id="other")
    await client.init()
    assert client.position.revision == 0
    assert client.position.branch != old.branch
    await client.first(TICKET)
    with refused(Reason.OWNER_CHANGED):
        await client.next(base=old)


async def test_an_ended_invocation_is_forgotten_after_a_while() -> None:
    """End is remembered for its time; then the id may be used again."""
    here = server(tombstone_seconds=300)
    client = await here.started(SYSTEM)
    await client.end()
    here.clock.advance(300)
    with refused(Reason.INVOCATION_ENDED):
        await client.init()
    here.clock.advance(1)
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.where()
    await client.init()
    await client.first(TICKET)
    assert client.agents == {"lookup": "outstanding"}


async def test_ending_twice_does_not_prolong_the_memory_of_it() -> None:
    """A second End changes nothing, so the id is free when the time since the first one is over."""
    here = server(tombstone_seconds=300)
    client = await here.started(SYSTEM)
    await client.end()
    here.clock.advance(200)
    await client.end()
    here.clock.advance(101)
    await client.init()


async def test_ended_invocations_take_no_room() -> None:
    """What was ended does not drive out what is live, and ends are remembered for a bounded number of ids."""
    here = server(max_invocations=3)
    live = await here.started(SYSTEM, invocation_id="live")
    ended = []
    for number in range(10):
        client = await here.started(SYSTEM, invocation_id=f"ended{number}")
        await client.end()
        ended.append(client)
    assert await is_there(live)
    assert here.memory.evicted == 0
    with refused(Reason.INVOCATION_ENDED):
        await ended[-1].where()
    with refused(Reason.INVOCATION_NOT_FOUND):
        await ended[0].where()
