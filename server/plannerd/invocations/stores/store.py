"""What a store must do. Every store passes the suite in `tests/stores`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from plannerd.invocations.record import Record, Tombstone
from plannerd.invocations.state_format import ExecutionState
from plannerd.invocations.summary import Summary

Key: TypeAlias = tuple[str, str]
"""The identity of the caller and the id that it chose."""


class Kept:
    """What a store keeps of one invocation.

    An object stands for one state of the invocation in its store: to replace it, it must be shown again.

    Attributes:
        content: the record, or a tombstone of an invocation that was ended a while ago.
        version: tells states apart, for stores that other processes write too.
    """

    __slots__ = ("content", "version")

    def __init__(self, content: Record | Tombstone, version: bytes = b"") -> None:
        self.content = content
        self.version = version

    def is_same(self, other: Kept | None) -> bool:
        """Whether both stand for the same state."""
        return self is other or (other is not None and self.version != b"" and self.version == other.version)


class OutdatedError(Exception):
    """What was claimed is not what the store keeps any more: look again."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some of what a store keeps.

    Attributes:
        entries: invocations in a line.
        cursor: where to go on; empty at the end.
    """

    entries: tuple[Summary, ...]
    cursor: str


class Store(Protocol):
    """Keeps the latest record of each invocation. A step is committed when `put` has returned True.

    Within one process the engine works on a key in one task at a time. Other processes may write the same key
    at any moment, where the store is shared.

    Every method may raise PlannerdError: STORE_UNAVAILABLE or STORE_FULL. Then nothing was changed, or what was
    asked for happened and its answer was lost: who looks again with `fresh` sees which.
    """

    @property
    def durable(self) -> bool:
        """Whether other processes find what was put here."""

    async def get(self, key: Key, *, fresh: bool = False) -> Kept | None:
        """What is kept under `key`, None where nothing is known.

        Args:
            key: the invocation.
            fresh: what the store has now, not what this process remembers of it. A record that is remembered
                may be behind; writing over it fails then.
        """

    async def admits(self, key: Key) -> bool:
        """Whether the caller may have one invocation more; asked right before a `put` in place of nothing."""

    async def peek(self, key: Key) -> Kept | None:
        """What is kept now, for an operator: looking does not keep it alive."""

    async def page(self, cursor: str, count: int) -> Page:
        """Some of what is kept, for an operator.

        Args:
            cursor: where to go on; empty at the beginning.
            count: about how many.

        Raises:
            ValueError: the cursor is none of this store's, or not any more.
        """

    async def put(self, key: Key, record: Record, expected: Kept | None, state: ExecutionState | None = None) -> bool:
        """Keep `record` in place of `expected` (None: of nothing); False if that is not what is there any more.

        Args:
            key: the invocation.
            record: what to keep.
            expected: what is there, as `get` gave it.
            state: the execution state of `record`, where it was made already.
        """

    async def end(self, key: Key, tombstone: Tombstone, expected: Kept) -> bool:
        """Release the invocation and remember for a while that it was ended; False as for `put`."""

    async def drop(self, key: Key, expected: Kept) -> None:
        """Forget the invocation, without a tombstone, if it is still as `expected`."""

    async def check(self) -> str | None:
        """Why the store can't be used at the moment, for the operator; None if it can."""

    async def close(self) -> None:
        """Let go of what the store holds; it is not used afterwards."""

    def claim(self, key: Key, expected: Kept) -> AbstractAsyncContextManager[None]:
        """Keep other processes from deciding about the same invocation, as long as the context is open.

        Entering waits while another process has the claim. A store of one process has nothing to do here.

        Raises:
            OutdatedError: `expected` is not what is there any more, on entering.
        """
