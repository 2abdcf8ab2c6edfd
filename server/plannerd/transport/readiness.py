"""Whether the server is ready: it looks at what it depends on, again and again, and health tells.

What a server depends on is one of two kinds. Without the store it can't do what it is there for, so when that is
away for a while the whole server is NOT_SERVING, and load balancers send requests elsewhere. A decision model may
be away for every replica at once, and concerns some invocations alone; so it is only shown, unless the operator
wants it otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from plannerd.telemetry.logging import get_logger
from plannerd.transport.health import OVERALL, Health

STORE: Final = "plannerd.store"
"""The name of the store in health."""

MODELS: Final = "plannerd.models/"
"""What the names of decision models in health begin with."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Something that the server needs.

    Attributes:
        name: its name in health.
        check: why it can't be used at the moment; None if it can.
        patience: seconds that it may be away until the server as a whole is NOT_SERVING; None: that never is.
    """

    name: str
    check: Callable[[], Awaitable[str | None]]
    patience: float | None = None


class Readiness:
    """Keeps health up to date.

    Args:
        health: is told.
        dependencies: what to look at.
        services: the names in health that follow the server as a whole.
        interval: seconds between two looks.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        health: Health,
        dependencies: Sequence[Dependency],
        services: Iterable[str],
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health = health
        self._dependencies = tuple(dependencies)
        self._whole = (OVERALL, *services)
        self._interval = interval
        self._clock = clock
        self._away_since: dict[str, float] = {}
        self._ready = True
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look, in tasks of their own."""
        self._health.mark([dependency.name for dependency in self._dependencies], up=True)
        self._tasks = [asyncio.create_task(self._watch(dependency)) for dependency in self._dependencies]

    async def stop(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look(self, dependency: Dependency) -> None:
        """Look at one dependency, once."""
        try:
            problem = await dependency.check()
        except Exception as error:  # noqa: BLE001 (whatever it raises, it can't be used)
            problem = type(error).__name__
        if problem is None:
            self._away_since.pop(dependency.name, None)
        else:
            self._away_since.setdefault(dependency.name, self._clock())
        self._health.mark([dependency.name], up=problem is None)
        self._settle()

    async def _watch(self, dependency: Dependency) -> None:
        while True:
            await self.look(dependency)
            await asyncio.sleep(self._interval)

    def _settle(self) -> None:
        """Say whether the server as a whole is ready."""
        now = self._clock()
        missing = [
            dependency.name
            for dependency in self._dependencies
            if dependency.patience is not None
            and now - self._away_since.get(dependency.name, now) >= dependency.patience
            and dependency.name in self._away_since
        ]
        if self._ready is not (not missing):
            self._ready = not missing
            if missing:
                get_logger().warning("not_ready", missing=missing)
            else:
                get_logger().info("ready")
            self._health.mark(self._whole, up=self._ready)
