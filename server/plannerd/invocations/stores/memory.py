"""The memory store: invocations live in this process, and their clients carry the states to go on elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from plannerd.invocations.record import Record, Tombstone
from plannerd.invocations.state_format import ExecutionState
from plannerd.invocations.stores.entries import Entries, MemoryBounds
from plannerd.invocations.stores.store import Kept, Key, Page
from plannerd.invocations.summary import summarize

__all__ = ["MemoryBounds", "MemoryStore"]

_NO_CLAIM: Final = nullcontext()


class MemoryStore:
    """Keeps invocations in this process; a client whose invocation was dropped resumes from its state.

    Args:
        bounds: how much is kept.
        clock: monotonic seconds.
    """

    durable = False

    def __init__(self, bounds: MemoryBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._entries = Entries(bounds, clock)
        self._name = secrets.token_hex(4)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def evicted(self) -> int:
        """How many invocations were dropped for the bounds."""
        return self._entries.evicted

    async def get(self, key: Key, *, fresh: bool = False) -> Kept | None:
        """What is kept under `key`; asking for an invocation touches it."""
        return self._entries.get(key)

    async def admits(self, key: Key) -> bool:
        """Whether the caller has fewer invocations than it may have."""
        most = self._bounds.max_per_identity
        return most is None or self._entries.count(key[0]) < most

    async def peek(self, key: Key) -> Kept | None:
        """What is kept, without touching it."""
        self._entries.expire()
        return self._entries.peek(key)

    async def page(self, cursor: str, count: int) -> Page:
        """Some of what is kept, in the order in which it came."""
        name, _, number = cursor.partition(".")
        if cursor and (name != self._name or not number.isdecimal()):
            raise ValueError("it is of another replica, or of one that was started again")
        found, last = self._entries.page(int(number or 0), count)
        entries = tuple(summarize(*key, kept.content) for key, kept in found)
        return Page(entries, f"{self._name}.{last}" if last else "")

    async def put(self, key: Key, record: Record, expected: Kept | None, state: ExecutionState | None = None) -> bool:
        """Keep `record`. One that was dropped for the bounds meanwhile is kept again: nobody else can write here."""
        if not self._is(key, expected):
            return False
        self._entries.put(key, record)
        return True

    async def end(self, key: Key, tombstone: Tombstone, expected: Kept) -> bool:
        """Release the invocation and remember that it was ended."""
        if not self._is(key, expected):
            return False
        self._entries.bury(key, tombstone)
        return True

    async def drop(self, key: Key, expected: Kept) -> None:
        """Forget the invocation."""
        if self._is(key, expected):
            self._entries.forget(key)

    async def check(self) -> str | None:
        """It can always be used."""
        return None

    async def close(self) -> None:
        """Nothing to do: everything goes with the process."""

    def claim(self, key: Key, expected: Kept) -> AbstractAsyncContextManager[None]:
        """Nothing to do: the engine works on a key in one task at a time."""
        return _NO_CLAIM

    def _is(self, key: Key, expected: Kept | None) -> bool:
        kept = self._entries.peek(key)
        return kept is None or kept is expected
