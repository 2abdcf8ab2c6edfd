"""A storm from beginning to end: what it consists of, and what is left of it to be checked."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.faults.crew import Crew
from tests.faults.delivery import Delivery
from tests.faults.events import Event, EventLog, read_events
from tests.faults.lines import Address, Line
from tests.faults.oracle import REPLICA_HEADER, Oracle
from tests.faults.post import NO_FAULT, Post
from tests.faults.replicas import GRACE_SECONDS, Ended, Replicas, size_of
from tests.faults.stores import STORES, SharedStore, StoreKind, running_store
from tests.faults.storm import Storm

PLACES: Final = ("a", "b", "c")
SERVER: Final = "plannerd"
PACE_SECONDS: Final = 0.4
BOUND_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be done.

    Args:
        cases: how many invocations.
        seed: of everything that is left to chance.
        workers: client processes at a time.
        width: invocations under way at a time.
        pause: seconds between two events of the storm, on average.
        events: after how many of them the storm calms down; 0 for as long as there is work.
        store: what the servers keep invocations in.
        server: the module with the command of the servers.
    """

    cases: int
    seed: int
    workers: int = 3
    width: int = 24
    pause: float = 1.0
    events: int = 0
    store: StoreKind = STORES["memory"]
    server: str = SERVER

    def chance(self, what: str) -> random.Random:
        """Numbers for one purpose."""
        return random.Random(f"{self.seed}/{what}")


@dataclass(slots=True)
class Outcome:
    """What is left when it is over: how each case ended, what happened, what became of the servers."""

    results: Mapping[int, Mapping[str, Any]]
    events: list[Event]
    ended: list[Ended]
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


async def undisturbed(options: Options, folder: Path) -> Outcome:
    """Run the cases on one server without any fault."""
    started = time.monotonic()
    alone = replace(options, store=STORES["memory"], server=SERVER)
    async with _servers(alone, folder, PLACES[:1]) as (log, _, replicas, _):
        target = replicas.lines[PLACES[0]].target
        crew = Crew(folder, log, options.chance("crew"), lambda place: [target], 2, options.width)
        await asyncio.wait_for(crew.run(options.cases), BOUND_SECONDS)
        sizes = {replica.name: size_of(replica) for replica in replicas.open}
    seconds = time.monotonic() - started
    return Outcome(crew.results, read_events(folder), replicas.ended, seconds, sizes=sizes)


async def disturbed(options: Options, folder: Path) -> Outcome:
    """Run the cases while everything around them breaks."""
    started = time.monotonic()
    lines: dict[int, list[Line]] = {}
    async with _servers(options, folder, PLACES) as (log, oracle, replicas, store), AsyncExitStack() as stack:
        crew = Crew(
            folder,
            log,
            options.chance("crew"),
            lambda place: [line.target for line in lines[place]],
            options.workers,
            options.width,
        )
        storm = Storm(replicas, crew, store, lines, log, options.chance("storm"), options.pause)
        post = await stack.enter_async_context(Post(Delivery(replicas, log), oracle, options.seed, storm))
        for place in range(options.workers):
            lines[place] = [await _line(stack, options, way) for way in _ways(post, replicas, place)]
        await _weather(crew, storm, options, log)
        post.calm = True
        await storm.settle()
        await post.idle()
        sizes = {replica.name: size_of(replica) for replica in replicas.open}
    faults = storm.happened + Counter({name: count for name, count in post.faults.items() if name != NO_FAULT})
    seconds = time.monotonic() - started
    return Outcome(crew.results, read_events(folder), replicas.ended, seconds, faults, post.ways, post.late, sizes)


async def _weather(crew: Crew, storm: Storm, options: Options, log: EventLog) -> None:
    """Let the crew work in the storm, until it is done or stuck."""
    raging = asyncio.ensure_future(storm.rage(options.events))
    working = asyncio.ensure_future(crew.run(options.cases))
    waits: list[asyncio.Future[Any]] = [raging, working]
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            while not working.done():
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
                    waits.remove(one)
    except TimeoutError:
        log.write("stuck", cases=sorted(number for one in crew.working for number in one.jobs))
    finally:
        raging.cancel()
        working.cancel()
        await asyncio.gather(raging, working, return_exceptions=True)


@asynccontextmanager
async def _servers(
    options: Options, folder: Path, places: tuple[str, ...]
) -> AsyncIterator[tuple[EventLog, Oracle, Replicas, SharedStore]]:
    """A decision model, and servers that use it."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    log = EventLog(folder / "main.events")
    async with Oracle(log, options.seed, PACE_SECONDS) as oracle, running_store(options.store, log) as store:

        def settings(name: str) -> Mapping[str, Any]:
            model = {"provider": "grpc", "target": oracle.target, "metadata": {REPLICA_HEADER: {"value": name}}}
            return {
                "module": options.server,
                "config": {
                    "decisions": {"models": {"oracle": model}},
                    "server": {"grace_period_seconds": GRACE_SECONDS},
                    "store": dict(store.settings),
                },
            }

        replicas = Replicas(log, settings, options.chance("replicas"), sticky=not store.kind.shared)
        try:
            await asyncio.gather(*(replicas.start(place) for place in places))
            yield log, oracle, replicas, store
            await replicas.stop()
        finally:
            await replicas.close()
    log.close()


def _ways(post: Post, replicas: Replicas, place: int) -> Any:
    """Where the connections of a client lead: to the post, and to a replica directly."""

    def to_post() -> Address:
        return "127.0.0.1", post.port

    def to_replica() -> Address | None:
        return replicas.way(f"w{place}")

    return to_post, to_replica


async def _line(stack: AsyncExitStack, options: Options, way: Any) -> Line:
    line = Line(way, options.chance("lines"))
    await line.start()
    stack.push_async_callback(line.close)
    return line
