"""The faults that nobody's message brings about: processes that die, connections that break."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.crew import Crew, place_of
from tests.faults.events import EventLog
from tests.faults.lines import Line
from tests.faults.replicas import Replica, Replicas
from tests.faults.stores import SharedStore

EVENTS: Mapping[str, float] = {
    "replica-killed": 3,
    "replica-drained": 2,
    "replica-cut": 4,  # all connections to one replica
    "client-killed": 3,
    "client-cut": 5,  # all connections of one client
    "store-killed": 2,  # where there is one that all share
}
"""What happens, and how often."""

DOWN_SECONDS = 0.5


@dataclass(slots=True)
class Storm:
    """What happens while the crew works.

    Args:
        replicas: the servers.
        crew: the clients.
        store: the store.
        lines: the connections, of each client, by its place.
        log: events are noted there.
        chance: what happens when.
        pause: seconds between two events, on average.
    """

    replicas: Replicas
    crew: Crew
    store: SharedStore
    lines: Mapping[int, list[Line]]
    log: EventLog
    chance: random.Random
    pause: float
    happened: Counter[str] = field(default_factory=Counter)
    _repairs: set[asyncio.Task[None]] = field(default_factory=set)
    _store_repair: asyncio.Task[None] | None = None

    async def rage(self, events: int) -> None:
        """Let that many things happen, or go on until cancelled (0): each once, in any order, then whatever comes."""
        coming = self.chance.sample(list(EVENTS), len(EVENTS))
        while not events or self.happened.total() < events:
            await asyncio.sleep(self.chance.uniform(0.3, 1.7) * self.pause)
            for repair in tuple(self._repairs):
                if repair.done():
                    repair.result()
                    self._repairs.discard(repair)
            event = coming.pop(0) if coming else self.chance.choices(list(EVENTS), list(EVENTS.values()))[0]
            if self._happens(event):
                self.happened[event] += 1
            elif event not in self.happened and self._can_happen(event):
                coming.append(event)

    async def settle(self) -> None:
        """Wait until what was broken is repaired."""
        await asyncio.gather(*self._repairs)

    def _can_happen(self, event: str) -> bool:
        """Whether it may happen at all in this storm."""
        return event != "store-killed" or self.store.kind.shared

    def _happens(self, event: str) -> bool:
        """Whether there was somebody for it to happen to."""
        match event:
            case "replica-killed" | "replica-drained":
                if len(self.replicas.open) < 2:
                    return False
                self._replace(self.chance.choice(self.replicas.open), killed=event == "replica-killed")
            case "client-killed":
                busy = [worker for worker in self.crew.working if worker.jobs]
                if not busy:
                    return False
                self._repair(self.crew.kill(self.chance.choice(busy)))
            case "replica-cut":
                place = self.chance.choice(sorted(self.replicas.lines))
                self.log.write("cut", place=place, connections=self.replicas.lines[place].cut())
            case "store-killed":
                if not self.store.kind.shared or self._store_down():
                    return False
                self._store_repair = self._repair(self.store.restart(self.chance.uniform(0, DOWN_SECONDS)))
            case _:
                self.cut(self.chance.choice(self.crew.working).name)
        return True

    def kill_replica(self, name: str) -> None:
        """Kill a replica, unless it is the last one."""
        for replica in self.replicas.open:
            if replica.name == name and len(self.replicas.open) > 1:
                self._replace(replica, killed=True)

    def cut(self, worker: str) -> None:
        """Cut all connections of a client."""
        self.log.write("cut", worker=worker, connections=sum(line.cut() for line in self.lines[place_of(worker)]))

    def _replace(self, replica: Replica, *, killed: bool) -> None:
        replica.open = False  # so that nothing else happens to it meanwhile
        self._repair(self._replaced(replica.place, killed=killed))

    async def _replaced(self, place: str, *, killed: bool) -> None:
        if killed:
            await self.replicas.kill(place)
        else:
            await self.replicas.drain(place)
        await asyncio.sleep(self.chance.uniform(0, DOWN_SECONDS))
        await self.replicas.start(place)

    def _store_down(self) -> bool:
        return self._store_repair is not None and not self._store_repair.done()

    def _repair(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._repairs.add(task)
        return task
