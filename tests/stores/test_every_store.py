"""The suite that every store passes; see `plannerd.invocations.stores.Store`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from plannerd.invocations.definitions import Definitions
from plannerd.invocations.position import Position
from plannerd.invocations.record import Ending, EndOutcome, Record, Reply, Tombstone
from plannerd.invocations.scope import Scope
from plannerd.invocations.stores import Kept, Key, MemoryBounds, MemoryStore, Store
from plannerd.invocations.summary import InvocationStatus, Summary
from plannerd.services.codec.configuration import InitLimits, decode_init
from tests.stores.conftest import Servers
from tests.support.builders import agent, scheduler
from tests.support.redis import REDIS, VALKEY, Stores

KEY = ("me", "i1")
DEFINITIONS = Definitions(keep_source=True)
SHORT = MemoryBounds(idle_seconds=0.3, tombstone_seconds=0.3)

MakeStore = Callable[[MemoryBounds], Store]


@pytest.fixture(params=["memory", REDIS, f"{REDIS} read anew", VALKEY])
async def make(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[MakeStore]:
    """Makes a store of each kind."""
    if request.param == "memory":
        yield lambda bounds: MemoryStore(bounds, time.monotonic)
        return
    binary, _, how = request.param.partition(" ")
    stores = Stores(servers(binary).port)
    yield lambda bounds: stores.make(bounds, time.monotonic, DEFINITIONS, forgetful=bool(how))
    await stores.close()


@pytest.fixture
def store(make: MakeStore) -> Store:
    """An empty store."""
    return make(MemoryBounds())


def record(revision: int = 0, **scope: str) -> Record:
    """A record at some revision."""
    request = scheduler(agent("lookup", "ticket", writes="facts"))
    request.invocation_id = "i1"
    definition = DEFINITIONS.define(decode_init(request, "", InitLimits()).configuration)
    return Record(
        "i1",
        definition,
        decode_init(request, "", InitLimits()).options,
        Position(1, revision, "b"),
        b"digest",
        definition.planner.initial(),
        scope=Scope(scope, dict.fromkeys(scope, 3)),
        reply=Reply(b"\x00reply", Position(1, revision - 1, "b"), b"asked") if revision else None,
    )


async def kept(store: Store) -> Kept:
    """What is kept, which must be something."""
    found = await store.get(KEY, fresh=True)
    assert found is not None
    return found


async def test_nothing_is_known_at_first(store: Store) -> None:
    """Nothing is kept under a key that nobody wrote."""
    assert await store.get(KEY) is None
    assert await store.get(KEY, fresh=True) is None


@pytest.mark.parametrize("fresh", [False, True])
async def test_what_was_put_is_there(store: Store, fresh: bool) -> None:
    """A record comes back as it was, with its scope and its last reply."""
    written = record(3, ticket="t1", facts="f1")
    assert await store.put(KEY, written, None)
    found = await store.get(KEY, fresh=fresh)
    assert found is not None
    assert found.content == written


async def test_what_is_shown_can_be_replaced(store: Store) -> None:
    """Who shows what is kept may replace it, again and again."""
    await store.put(KEY, record(), None)
    for revision in range(1, 5):
        assert await store.put(KEY, record(revision, ticket=f"t{revision}"), await kept(store))
    assert (await kept(store)).content == record(4, ticket="t4")


async def test_keys_of_the_scope_that_are_gone_stay_gone(store: Store) -> None:
    """A scope that lost keys comes back without them, and a reply that was dropped does not come back."""
    await store.put(KEY, record(1, ticket="t1", facts="f1"), None)
    await store.put(KEY, record(2, ticket="t1"), await kept(store))
    assert (await kept(store)).content == record(2, ticket="t1")
    await store.put(KEY, record(0), await kept(store))
    assert (await kept(store)).content == record(0)


async def test_what_is_not_the_latest_any_more_is_not_replaced(store: Store) -> None:
    """Who shows a state that somebody replaced meanwhile changes nothing, and neither does who shows nothing."""
    await store.put(KEY, record(), None)
    before = await kept(store)
    assert await store.put(KEY, record(1, ticket="mine"), before)
    assert not await store.put(KEY, record(1, ticket="theirs"), before)
    assert not await store.put(KEY, record(1, ticket="theirs"), None)
    assert not await store.end(KEY, Tombstone(Position(1, 0, "b")), before)
    await store.drop(KEY, before)
    assert (await kept(store)).content == record(1, ticket="mine")


async def test_states_can_be_told_apart(store: Store) -> None:
    """What is kept is the same until it is written, even by the same record."""
    await store.put(KEY, record(1), None)
    before = await kept(store)
    assert before.is_same(await kept(store))
    await store.put(KEY, record(1), before)
    assert not before.is_same(await kept(store))
    assert not before.is_same(None)


async def test_an_end_leaves_a_tombstone(store: Store) -> None:
    """An invocation that was ended is remembered by its position alone; it can be told that it was there."""
    await store.put(KEY, record(2, ticket="t1"), None)
    assert await store.end(KEY, Tombstone(Position(1, 2, "b")), await kept(store))
    assert (await kept(store)).content == Tombstone(Position(1, 2, "b"))
    assert not await store.put(KEY, record(3), None)


async def test_what_is_dropped_is_gone(store: Store) -> None:
    """A dropped invocation leaves nothing, and its id is free."""
    await store.put(KEY, record(2), None)
    await store.drop(KEY, await kept(store))
    assert await store.get(KEY, fresh=True) is None
    assert await store.put(KEY, record(), None)


async def test_callers_do_not_meet(store: Store) -> None:
    """Two callers' invocations of one id are two, also if the names of both would run together."""
    keys = [("a", "b:c"), ("a:b", "c"), ("", "a:b:c"), ("-", "c"), ("a}", "{b"), ("", "c")]
    for number, key in enumerate(keys):
        assert await store.put(key, replace(record(number + 1), invocation_id=key[1]), None)
    for number, key in enumerate(keys):
        found = await store.get(key, fresh=True)
        assert found is not None
        assert found.content.position.revision == number + 1


async def test_idle_invocations_and_tombstones_expire(make: MakeStore) -> None:
    """What nobody touches for the idle time is gone, and a tombstone after its own."""
    store = make(SHORT)
    other = ("me", "i2")
    await store.put(KEY, record(1), None)
    await store.put(other, record(1), None)
    found = await store.get(other, fresh=True)
    assert found is not None
    await store.end(other, Tombstone(Position(1, 1, "b")), found)
    time.sleep(0.5)  # noqa: ASYNC251 - nothing else is to happen meanwhile
    assert await store.get(KEY, fresh=True) is None
    assert await store.get(other, fresh=True) is None


async def test_touching_keeps_it_alive(make: MakeStore) -> None:
    """An invocation that is asked for again and again outlives its idle time."""
    store = make(MemoryBounds(idle_seconds=1.0))
    await store.put(KEY, record(1), None)
    give_up = time.monotonic() + 2.0
    while time.monotonic() < give_up:
        time.sleep(0.2)  # noqa: ASYNC251 - nothing else is to happen meanwhile
        assert await store.get(KEY, fresh=True) is not None


async def test_a_claim_does_not_change_what_is_kept(store: Store) -> None:
    """What is claimed can be replaced under the claim, and claimed again after it."""
    await store.put(KEY, record(), None)
    for revision in (1, 2):
        before = await kept(store)
        async with store.claim(KEY, before):
            assert await store.put(KEY, record(revision), before)
    assert (await kept(store)).content == record(2)


async def begun(store: Store, key: Key) -> bool:
    """Whether one invocation more was let in; it is put then."""
    return await store.admits(key) and await store.put(key, record(), None)


async def test_a_caller_has_as_many_invocations_as_allowed(make: MakeStore) -> None:
    """One more than allowed is not let in, other callers are, and an end makes room for one."""
    store = make(MemoryBounds(max_per_identity=2))
    assert [await begun(store, ("me", name)) for name in "abc"] == [True, True, False]
    assert await begun(store, ("you", "a"))
    found = await store.get(("me", "a"), fresh=True)
    assert found is not None
    assert await store.end(("me", "a"), Tombstone(record().position), found)
    assert [await begun(store, ("me", name)) for name in "cd"] == [True, False]


async def test_expired_invocations_of_a_caller_do_not_count(make: MakeStore) -> None:
    """What nobody touched for the idle time makes room."""
    store = make(MemoryBounds(max_per_identity=1, idle_seconds=0.3))
    assert await begun(store, ("me", "a"))
    assert not await begun(store, ("me", "b"))
    await asyncio.sleep(0.5)
    assert await begun(store, ("me", "b"))


async def test_without_a_limit_everybody_is_let_in(store: Store) -> None:
    """By default a caller may have as many as it likes."""
    assert all([await begun(store, ("me", f"i{number}")) for number in range(20)])


# --- for operators


async def listed(store: Store, count: int = 3) -> list[Summary]:
    """Everything that the store lists, page by page."""
    found: list[Summary] = []
    cursor = ""
    while True:
        page = await store.page(cursor, count)
        found += page.entries
        cursor = page.cursor
        if not cursor:
            return found


async def test_everything_is_listed(store: Store) -> None:
    """Page by page, each invocation of each identity is listed with what a line needs."""
    keys = [(identity, f"i{number}") for identity in ("me", "", "a:b") for number in range(7)]
    for revision, key in enumerate(keys, start=1):
        made = replace(record(revision), invocation_id=key[1], began=100.5, changed=200.25)
        assert await store.put(key, made, None)
    found = {(summary.identity, summary.invocation_id): summary for summary in await listed(store)}
    assert set(found) == set(keys)
    summary = found["a:b", "i2"]
    assert (summary.planner, summary.status, summary.position.revision) == ("scheduler", InvocationStatus.READY, 17)
    assert (summary.began, summary.changed, summary.calls) == (100.5, 200.25, 0)


async def test_nothing_is_listed_of_an_empty_store(store: Store) -> None:
    """A store that keeps nothing has one page, and nothing on it."""
    assert await listed(store) == []


async def test_what_comes_and_goes_does_not_disturb_a_listing(store: Store) -> None:
    """What is there all the time is listed, whatever is written, ended and dropped between two pages."""
    for number in range(20):
        await store.put(("me", f"i{number}"), replace(record(1), invocation_id=f"i{number}"), None)
    page = await store.page("", 4)
    found = [summary.invocation_id for summary in page.entries]
    for number in range(5):
        kept = await store.get(("me", f"i{number}"), fresh=True)
        assert kept is not None
        await store.drop(("me", f"i{number}"), kept)
        await store.put(("me", f"new{number}"), replace(record(1), invocation_id=f"new{number}"), None)
    for number in range(5, 10):
        kept = await store.get(("me", f"i{number}"), fresh=True)
        assert kept is not None
        await store.put(("me", f"i{number}"), replace(record(2), invocation_id=f"i{number}"), kept)
    while page.cursor:
        page = await store.page(page.cursor, 4)
        found += [summary.invocation_id for summary in page.entries]
    assert {f"i{number}" for number in range(5, 20)} <= set(found)


async def test_an_ending_is_listed(store: Store) -> None:
    """What was ended is listed as such, with all that is known of its end, and comes back as it went."""
    ending = Ending(EndOutcome.FAILED, "it loops", True, "ops", "scheduler", "sparrow", 100.5, 200.25)
    await store.put(KEY, record(2), None)
    assert await store.end(KEY, Tombstone(Position(1, 2, "b"), ending), await kept(store))
    assert (await kept(store)).content == Tombstone(Position(1, 2, "b"), ending)
    [summary] = await listed(store)
    assert (summary.status, summary.planner, summary.ending) == (InvocationStatus.ENDED, "scheduler", ending)


async def test_a_look_shows_what_is_there(store: Store) -> None:
    """An operator sees what is kept, and nothing where nothing is."""
    assert await store.peek(KEY) is None
    await store.put(KEY, record(2, ticket="t1"), None)
    found = await store.peek(KEY)
    assert found is not None
    assert found.content == record(2, ticket="t1")


async def test_looking_keeps_nothing_alive(make: MakeStore) -> None:
    """An invocation that only operators look at expires."""
    store = make(SHORT)
    await store.put(KEY, record(1), None)
    give_up = time.monotonic() + 10.0
    while await store.peek(KEY) is not None:
        assert time.monotonic() < give_up
        assert len((await store.page("", 10)).entries) <= 1
        time.sleep(0.05)  # noqa: ASYNC251 - nothing else is to happen meanwhile


async def test_cursors_of_others_are_refused(store: Store) -> None:
    """A cursor that this store can't have given out is refused."""
    with pytest.raises(ValueError, match="it is of another"):
        await store.page("x.1", 10)
