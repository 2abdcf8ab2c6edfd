"""Invocations in memory, within bounds: the memory store itself, and what a shared store remembers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from plannerd.invocations.record import Record, Tombstone
from plannerd.invocations.stores.order import Order
from plannerd.invocations.stores.store import Kept, Key

_BASE_BYTES = 2048  # what a small invocation costs beside its reply and its scope
_SHARED_BYTES = 64 * 1024  # definitions up to this size are taken to be shared; larger ones count for each invocation


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """How much is kept in memory. What is over is dropped, the longest untouched first.

    Attributes:
        max_invocations: how many invocations.
        max_bytes: about how many bytes of scopes, replies, and large definitions.
        idle_seconds: how long an invocation is kept that nobody touches.
        tombstone_seconds: how long an ended invocation is remembered.
        max_per_identity: how many invocations of one caller; None: as many as there may be of all.
    """

    max_invocations: int = 100_000
    max_bytes: int = 1 << 30
    idle_seconds: float = 3600.0
    tombstone_seconds: float = 300.0
    max_per_identity: int | None = None


class _Entry(Kept):
    __slots__ = ("bytes", "touched")

    def __init__(self, content: Record | Tombstone, version: bytes, size: int, touched: float) -> None:
        super().__init__(content, version)
        self.bytes = size
        self.touched = touched


class Entries:
    """Records and tombstones by key, within `bounds`.

    Args:
        bounds: how much is kept.
        clock: monotonic seconds.

    Attributes:
        evicted: how many records were dropped for the bounds.
    """

    def __init__(self, bounds: MemoryBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._records: OrderedDict[Key, _Entry] = OrderedDict()
        self._tombstones: OrderedDict[Key, _Entry] = OrderedDict()
        self._per_identity: Counter[str] = Counter()
        self._order = Order()
        self._bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> Kept | None:
        """What is kept under `key`; asking for a record touches it."""
        self.expire()
        entry = self._records.get(key)
        if entry is None:
            return self._tombstones.get(key)
        entry.touched = self._clock()
        self._records.move_to_end(key)
        return entry

    def count(self, identity: str) -> int:
        """How many records of one caller there are."""
        self.expire()
        return self._per_identity[identity]

    def peek(self, key: Key) -> Kept | None:
        """The same without touching it, or looking at what has expired."""
        return self._records.get(key) or self._tombstones.get(key)

    def page(self, after: int, count: int) -> tuple[list[tuple[Key, Kept]], int]:
        """Up to `count` entries that came after the one of that number, and the number of the last; 0 at the end."""
        self.expire()
        found: list[tuple[Key, Kept]] = []
        for number, key in self._order.after(after):
            kept = self.peek(key)
            if kept is not None:
                found.append((key, kept))
            if len(found) == count:
                return found, number
        return found, 0

    def put(self, key: Key, record: Record, version: bytes = b"") -> Kept:
        """Keep `record`, drop what is over the bounds, and return what stands for it now."""
        self._order.add(key)
        self._take(key)
        size = _BASE_BYTES + record.scope.total_bytes + (len(record.reply.encoded) if record.reply else 0)
        if record.definition.size > _SHARED_BYTES:
            size += record.definition.size
        entry = self._records[key] = _Entry(record, version, size, self._clock())
        self._bytes += size
        self._per_identity[key[0]] += 1
        self.expire()
        while len(self._records) > 1 and (
            len(self._records) > self._bounds.max_invocations or self._bytes > self._bounds.max_bytes
        ):
            self._evict_oldest()
        return entry

    def bury(self, key: Key, tombstone: Tombstone, version: bytes = b"") -> Kept:
        """Keep a tombstone in place of what was there."""
        self._order.add(key)
        self._take(key)
        entry = self._tombstones[key] = _Entry(tombstone, version, 0, self._clock())
        if len(self._tombstones) > self._bounds.max_invocations:
            self._drop_tombstone()
        return entry

    def forget(self, key: Key) -> None:
        """Keep nothing under `key`."""
        self._order.remove(key)
        self._take(key)

    def _take(self, key: Key) -> None:
        self._tombstones.pop(key, None)
        entry = self._records.pop(key, None)
        if entry is not None:
            self._gone(key, entry)

    def _evict_oldest(self) -> None:
        key, entry = self._records.popitem(last=False)
        self._order.remove(key)
        self._gone(key, entry)
        self.evicted += 1

    def _gone(self, key: Key, entry: _Entry) -> None:
        self._bytes -= entry.bytes
        self._per_identity[key[0]] -= 1
        if not self._per_identity[key[0]]:
            del self._per_identity[key[0]]

    def expire(self) -> None:
        """Drop what was not touched for too long; the order of the entries is that of their last touch."""
        now = self._clock()
        while self._records and now - next(iter(self._records.values())).touched > self._bounds.idle_seconds:
            self._evict_oldest()
        while self._tombstones and (
            now - next(iter(self._tombstones.values())).touched > self._bounds.tombstone_seconds
        ):
            self._drop_tombstone()

    def _drop_tombstone(self) -> None:
        key, _ = self._tombstones.popitem(last=False)
        self._order.remove(key)
