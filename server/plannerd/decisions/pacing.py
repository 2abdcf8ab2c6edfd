"""How many requests to a model run at once, and how many may wait for their turn.

A model that is slow, or one that throttles, must not make this server collect requests without end. Those
that find the queue full are refused at once, with a time after which to try again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from plannerd.errors import PlannerdError, Reason

SHORTEST_HINT: Final = 0.1
LONGEST_HINT: Final = 10.0
"""What a refused client is told to wait lies between these, in seconds."""

_NEWEST: Final = 0.2  # the weight of the newest request in the mean time that one takes


class Pacing:
    """Turns of the requests to one model, in order of arrival.

    Args:
        model: the configured name, for errors.
        concurrent: how many run at once, at least 1.
        queue: how many more may wait; 0: none.
        clock: monotonic seconds.

    Raises:
        ValueError: a number is too small.
    """

    def __init__(self, model: str, *, concurrent: int, queue: int, clock: Callable[[], float] = time.monotonic) -> None:
        if concurrent < 1 or queue < 0:
            raise ValueError(f"concurrent must be at least 1 and queue at least 0, not {concurrent} and {queue}")
        self._model = model
        self._concurrent = concurrent
        self._queue = queue
        self._clock = clock
        self._places = asyncio.Semaphore(concurrent)
        self._mean = 0.0
        self.running = 0
        """How many have their turn."""
        self.waiting = 0
        """How many wait for it."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it. A request keeps it over its retries, so that a model in trouble gets fewer.

        Raises:
            PlannerdError: DECISION_QUEUE_FULL, with `retry_after`.
        """
        if self._places.locked() and self.waiting >= self._queue:
            raise self._full()
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        started = self._clock()
        try:
            yield
        finally:
            self._note(self._clock() - started)
            self.running -= 1
            self._places.release()

    def _note(self, seconds: float) -> None:
        self._mean = seconds if self._mean == 0 else self._mean + _NEWEST * (seconds - self._mean)

    def _full(self) -> PlannerdError:
        """With the time in which the queue may have emptied, as far as the last requests tell."""
        wait = self._mean * (self.waiting + 1) / self._concurrent
        return PlannerdError(
            Reason.DECISION_QUEUE_FULL,
            f"decision model '{self._model}' is busy: {self.running} requests are under way and {self.waiting} wait; "
            "try again later",
            metadata={"model": self._model, "concurrent": str(self._concurrent), "queue": str(self._queue)},
            retry_after=min(max(wait, SHORTEST_HINT), LONGEST_HINT),
        )
