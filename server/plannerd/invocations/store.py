"""Where invocations are kept between steps: the interface, and the memory store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from plannerd.invocations.record import Record, Tombstone

Key: TypeAlias = tuple[str, str]
"""The identity of the caller and the id that it chose."""

_BASE_BYTES = 2048  # what a small invocation costs beside its reply and its scope
_SHARED_BYTES = 64 * 1024  # definitions up to this size are taken to be shared; larger ones count for each invocation


class Store(Protocol):
    """Keeps the latest record of each invocation. A step is committed when `put` has returned."""

    @property
    def durable(self) -> bool:
        """Whether other replicas find what was put here."""

    async def get(self, key: Key) -> Record | Tombstone | None:
        """The record; a tombstone where it was ended a while ago; None where nothing is known."""

    async def put(self, key: Key, record: Record) -> None:
        """Keep `record` in place of what was there."""

    async def drop(self, key: Key) -> None:
        """Forget the invocation, without a tombstone."""

    async def end(self, key: Key, tombstone: Tombstone) -> None:
        """Release the invocation and remember for a while that it was ended."""


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """How much the memory store keeps. What is over is dropped, the longest untouched first.

    Attributes:
        max_invocations: how many invocations.
        max_bytes: about how many bytes of scopes, replies, and large definitions.
        idle_seconds: how long an invocation is kept that nobody touches.
        tombstone_seconds: how long an ended invocation is remembered.
    """

    max_invocations: int = 100_000
    max_bytes: int = 1 << 30
    idle_seconds: float = 3600.0
    tombstone_seconds: float = 300.0


@dataclass(slots=True)
class _Entry:
    content: Record | Tombstone
    bytes: int
    touched: float


class MemoryStore:
    """Keeps invocations in this process; a client whose invocation was dropped resumes from its state.

    Args:
        bounds: how much is kept.
        clock: monotonic seconds.
    """

    durable = False

    def __init__(self, bounds: MemoryBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._tombstones: OrderedDict[Key, _Entry] = OrderedDict()
        self._bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: Key) -> Record | Tombstone | None:
        """What is kept under `key`; asking for an invocation touches it."""
        self._expire()
        entry = self._entries.get(key)
        if entry is None:
            entry = self._tombstones.get(key)
            return None if entry is None else entry.content
        entry.touched = self._clock()
        self._entries.move_to_end(key)
        return entry.content

    async def put(self, key: Key, record: Record) -> None:
        """Keep `record`, and drop what is over the bounds."""
        self._forget(key)
        self._tombstones.pop(key, None)
        size = _BASE_BYTES + record.scope.total_bytes + (len(record.reply.encoded) if record.reply else 0)
        if record.definition.size > _SHARED_BYTES:
            size += record.definition.size
        self._entries[key] = _Entry(record, size, self._clock())
        self._bytes += size
        self._expire()
        while len(self._entries) > 1 and (
            len(self._entries) > self._bounds.max_invocations or self._bytes > self._bounds.max_bytes
        ):
            self._evict_oldest()

    async def drop(self, key: Key) -> None:
        """Forget the invocation."""
        self._forget(key)

    async def end(self, key: Key, tombstone: Tombstone) -> None:
        """Release the invocation and remember that it was ended."""
        self._forget(key)
        self._tombstones[key] = _Entry(tombstone, 0, self._clock())
        if len(self._tombstones) > self._bounds.max_invocations:
            self._tombstones.popitem(last=False)

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.bytes

    def _evict_oldest(self) -> None:
        _, entry = self._entries.popitem(last=False)
        self._bytes -= entry.bytes
        self.evicted += 1

    def _expire(self) -> None:
        """Drop what was not touched for too long; the order of the entries is that of their last touch."""
        now = self._clock()
        while self._entries and now - next(iter(self._entries.values())).touched > self._bounds.idle_seconds:
            self._evict_oldest()
        while self._tombstones and (
            now - next(iter(self._tombstones.values())).touched > self._bounds.tombstone_seconds
        ):
            self._tombstones.popitem(last=False)
