"""The replicas of a storm: real server processes, which are killed, drained and replaced, and who is sent to which.

A place is where a replica runs; each process that takes it has a name of its own: `b3` is the third in place b.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.events import EventLog
from tests.faults.lines import Address, Line
from tests.support.servers import ServerFailedError, ServerProcess, running_server

GRACE_SECONDS: Final = 3.0


@dataclass(slots=True)
class Replica:
    """One server process."""

    name: str
    place: str
    server: ServerProcess
    stack: contextlib.ExitStack
    open: bool = True
    """Whether anybody is sent to it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What is left of a replica: its log, and how it ended. `forced` says that it was killed."""

    name: str
    log: str
    code: int
    forced: bool


@dataclass(slots=True)
class Replicas:
    """All places. Whoever wants to reach a replica does so by the line to its place, which can be cut.

    Args:
        log: what happens to them is noted there.
        settings: of each server, for a given name.
        chance: chooses replicas.
        sticky: whoever was sent to a replica is sent there again, as long as it is open; else anywhere.
    """

    log: EventLog
    settings: Any
    chance: random.Random
    sticky: bool
    lines: dict[str, Line] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    _at: dict[str, Replica] = field(default_factory=dict)
    _births: dict[str, int] = field(default_factory=dict)
    _sent: dict[str, Replica] = field(default_factory=dict)

    @property
    def open(self) -> list[Replica]:
        """Those that take requests."""
        return [replica for replica in self._at.values() if replica.open]

    def way(self, who: str) -> Address | None:
        """The address of the line that `who` is to take; None while no replica is open."""
        replica = self.choose(who)
        return None if replica is None else self.lines[replica.place].address

    def choose(self, who: str) -> Replica | None:
        """The replica that `who` is sent to; None while none is open."""
        former = self._sent.get(who)
        if self.sticky and former is not None and former.open:
            return former
        candidates = self.open
        if not candidates:
            return None
        self._sent[who] = self.chance.choice(candidates)
        return self._sent[who]

    async def start(self, place: str) -> Replica:
        """Start a process in `place`, which is empty."""
        if place not in self.lines:
            self.lines[place] = Line(lambda: self._address(place), self.chance)
            await self.lines[place].start()
        self._births[place] = self._births.get(place, 0) + 1
        name = f"{place}{self._births[place]}"
        stack = contextlib.ExitStack()
        server = await asyncio.to_thread(stack.enter_context, running_server(**self.settings(name)))
        replica = self._at[place] = Replica(name, place, server, stack)
        self.log.write("replica-started", replica=name)
        return replica

    async def kill(self, place: str) -> None:
        """End the process in `place` at once, with all that it holds."""
        replica = self._at.pop(place)
        replica.open = False
        self.log.write("replica-ends", replica=replica.name, how="killed")
        replica.server.signal(signal.SIGKILL)
        await self._bury(replica, forced=True)

    async def drain(self, place: str) -> None:
        """Ask the process in `place` to stop, as a rolling update does, and wait until it has."""
        replica = self._at.pop(place)
        replica.open = False
        self.log.write("replica-ends", replica=replica.name, how="drained")
        replica.server.signal()
        await self._bury(replica, forced=False)

    async def _bury(self, replica: Replica, *, forced: bool) -> None:
        code = await asyncio.to_thread(replica.server.wait)
        self.log.write("replica-ended", replica=replica.name, code=code)
        self.ended.append(Ended(replica.name, replica.server.log(), code, forced))
        with contextlib.suppress(ServerFailedError):  # its exit code is looked at later
            replica.stack.close()

    async def stop(self) -> None:
        """Stop them all, in order."""
        await asyncio.gather(*(self.drain(place) for place in list(self._at)))

    async def close(self) -> None:
        """End whatever still runs."""
        for replica in self._at.values():
            replica.server.process.kill()
            with contextlib.suppress(ServerFailedError):
                replica.stack.close()
        for line in self.lines.values():
            await line.close()

    def _address(self, place: str) -> Address | None:
        replica = self._at.get(place)
        return None if replica is None else ("127.0.0.1", replica.server.port)


def size_of(replica: Replica) -> Mapping[str, int]:
    """What the process of a replica takes: memory in kilobytes, open files, threads."""
    folder = Path(f"/proc/{replica.server.process.pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text("utf-8").splitlines())
    return {
        "kilobytes": int(status["VmRSS"].split()[0]),
        "files": len(list((folder / "fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def log_lines(text: str) -> list[dict[str, Any]]:
    """The lines of a server's log; a process that was killed may have left half a line."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
