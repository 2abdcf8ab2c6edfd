"""The scope of a run on the client's side, and what the server knows of it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from plannerd_client._values import digest, encode, is_present, plain
from plannerd_client.errors import PendingValue, UnsupportedValue
from plannerd_protos.planner.v1 import value_pb2


class Entry:
    """One value as it was written, with the tag that stands for it where its presence is enough.

    Entries are compared by identity: another write is another entry.

    Args:
        value: the value; unused while it is pending.
        pending: the call whose output it will be; empty for a value.
    """

    __slots__ = ("_tag", "pending", "value")

    def __init__(self, value: Any = None, *, pending: str = "") -> None:
        self.value = value
        self.pending = pending
        self._tag: bytes | None = None

    def tag(self, key: str, salt: bytes) -> bytes:
        """A digest of the value; where it can't travel, a random version number of this write."""
        if self._tag is None:
            try:
                self._tag = digest(plain(self.value, key), salt)
            except UnsupportedValue:
                self._tag = secrets.token_bytes(16)
        return self._tag

    def wire(self, key: str, need: value_pb2.Need.ValueType, salt: bytes) -> value_pb2.Value | None:
        """What travels of the value where the server needs it like this; None where nothing does.

        Raises:
            UnsupportedValue: the value is needed and can't travel.
        """
        if self.pending:
            return value_pb2.Value(pending=value_pb2.Pending())
        if need == value_pb2.NEED_VALUE:
            return encode(plain(self.value, key))
        if need == value_pb2.NEED_PRESENCE and is_present(self.value):
            return value_pb2.Value(opaque=value_pb2.Opaque(tag=self.tag(key, salt)))
        return None


Changes: TypeAlias = dict[str, Entry | None]
"""New entries by key; None where a key was removed."""


class Scope:
    """The keys and values that the agents of a run share. Safe to use from several threads.

    It holds the current entries and, beside them, those that the server knows: what was in the requests that it
    answered. The difference is what the next request carries.

    Args:
        salt: the key of the digests; random, and the same whenever the run is resumed.
    """

    def __init__(self, salt: bytes) -> None:
        self.salt: Final = salt
        self._lock = threading.Lock()
        self._current: dict[str, Entry] = {}
        self._known: dict[str, Entry] = {}

    def entry(self, key: str) -> Entry | None:
        """The current entry of `key`."""
        with self._lock:
            return self._current.get(key)

    def put(self, key: str, entry: Entry | None) -> None:
        """Write an entry; None, and an entry of None, remove the key."""
        with self._lock:
            _store(self._current, key, entry)

    def current(self) -> dict[str, Entry]:
        """A copy of the current entries."""
        with self._lock:
            return dict(self._current)

    def known(self) -> dict[str, Entry]:
        """A copy of the entries that the server knows."""
        with self._lock:
            return dict(self._known)

    def changes(self) -> Changes:
        """What the server does not know yet."""
        with self._lock:
            keys = dict.fromkeys([*self._known, *self._current])
            return {key: self._current.get(key) for key in keys if self._current.get(key) is not self._known.get(key)}

    def acknowledge(self, changes: Changes) -> None:
        """The server knows `changes` now."""
        with self._lock:
            for key, entry in changes.items():
                _store(self._known, key, entry)

    def readable(self) -> dict[str, Any]:
        """All values that have arrived, by key."""
        return {key: entry.value for key, entry in self.current().items() if not entry.pending}


def _store(target: dict[str, Entry], key: str, entry: Entry | None) -> None:
    if entry is None or (entry.value is None and not entry.pending):
        target.pop(key, None)
    else:
        target[key] = entry


def whole(
    entries: Mapping[str, Entry], reads: Mapping[str, value_pb2.Need.ValueType], salt: bytes
) -> value_pb2.ScopeUpdate:
    """The `ScopeUpdate` that tells a server everything of `entries` that it reads.

    Raises:
        UnsupportedValue: a value that the server needs can't travel.
    """
    message = update(entries, reads, salt)
    message.ClearField("removed")
    return message


def update(
    changes: Mapping[str, Entry | None], reads: Mapping[str, value_pb2.Need.ValueType], salt: bytes
) -> value_pb2.ScopeUpdate:
    """The `ScopeUpdate` for those of `changes` that the server reads.

    Raises:
        UnsupportedValue: a value that the server needs can't travel.
    """
    message = value_pb2.ScopeUpdate()
    for key, entry in changes.items():
        need = reads.get(key, value_pb2.NEED_NONE)
        if need in {value_pb2.NEED_NONE, value_pb2.NEED_UNSPECIFIED}:
            continue
        value = None if entry is None else entry.wire(key, need, salt)
        if value is None:
            message.removed.append(key)
        else:
            message.set[key].CopyFrom(value)
    return message


class ScopeView(Mapping[str, Any]):
    """The scope as beliefs see it. `key in scope` holds for what is present: not None, not blank, perhaps on its way.

    Reading a key that is not there gives a KeyError, one whose value is on its way a `PendingValue`. Iteration
    passes over the latter.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getitem__(self, key: str) -> Any:
        entry = self._scope.entry(key)
        if entry is None:
            raise KeyError(key)
        if entry.pending:
            raise PendingValue(key)
        return entry.value

    def __contains__(self, key: object) -> bool:
        entry = self._scope.entry(key) if isinstance(key, str) else None
        return entry is not None and (bool(entry.pending) or is_present(entry.value))

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.readable())

    def __len__(self) -> int:
        return len(self._scope.readable())

    def __repr__(self) -> str:
        return repr(self._scope.readable())


class ScopeProxy(ScopeView, MutableMapping[str, Any]):
    """The scope as agents see it: a `ScopeView` that may be written to. Writing None removes a key."""

    def __setitem__(self, key: str, value: Any) -> None:
        self._scope.put(key, Entry(value))

    def __delitem__(self, key: str) -> None:
        if self._scope.entry(key) is None:
            raise KeyError(key)
        self._scope.put(key, None)
