"""Signals that stop the server, and the last resort if it does not stop.

Whatever a client, a store, a collector or a thread does, the process ends in time, and with 0: what was not
committed did not happen, so there is nothing that waiting longer could save.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class LastResort:
    """Ends the process after a while, from a thread of its own, which no event loop can hold up.

    Args:
        leave: ends the process.
    """

    def __init__(self, leave: Callable[[], None] | None = None) -> None:
        self._leave = leave or _leave
        self._at: float | None = None
        self._timer: threading.Timer | None = None

    def within(self, seconds: float) -> None:
        """End the process after `seconds`, or earlier if that was said before."""
        at = time.monotonic() + seconds
        if self._at is not None and self._at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = threading.Timer(seconds, self._leave)
        self._timer.daemon = True
        self._timer.start()


@contextmanager
def signals(first: Callable[[], None], again: Callable[[], None], resort: Callable[[bool], None]) -> Iterator[None]:
    """Handle SIGTERM and SIGINT.

    Args:
        first: called in the event loop at the first signal.
        again: called in the event loop at each further one.
        resort: called at once at each signal, even while the event loop is busy; with whether it was the first.
    """
    loop = asyncio.get_running_loop()
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        resort(seen == 1)
        loop.call_soon_threadsafe(first if seen == 1 else again)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave() -> None:
    os._exit(0)  # without a flush, which may wait for whoever reads
