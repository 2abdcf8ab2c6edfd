"""What the server knows of an invocation's scope: the keys that the planner reads, nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from plannerd.errors import PlannerdError, Reason, check_limit
from plannerd.planners.planner import Need
from plannerd.values import PENDING, Opaque, ScopeValue, Value, digest, is_present

PENDING_MARK = "pending"


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """New values by key, with their sizes in bytes, and keys that are gone."""

    set: Mapping[str, ScopeValue] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScopeLimits:
    """How much scope the server keeps for one invocation: bytes of values, and keys."""

    max_bytes: int = 8 << 20
    max_keys: int = 1000


def salt(invocation_id: str) -> bytes:
    """What keeps the marks of an invocation apart from those of others: its id, or a digest of a long one."""
    raw = invocation_id.encode()
    return raw if len(raw) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.blake2b(raw, digest_size=32).digest()


def _mark(value: ScopeValue, salt: bytes) -> str | None:
    """What stands for a value in execution states: equal values, equal marks; None for what is not present."""
    if value is PENDING:
        return PENDING_MARK
    if isinstance(value, Opaque):
        return f"t{value.tag.hex()}"
    return f"v{digest(value, key=salt, size=12).hex()}" if is_present(value) else None


@dataclass(frozen=True, slots=True)
class Scope:
    """An immutable scope; `write` makes a new one that shares the values.

    Attributes:
        values: by key, only keys that the planner reads.
        sizes: bytes by key, as they came.
        marks: digests of the present values of watched keys, salted with the invocation's id so that equal
            values of different invocations can't be told.
    """

    values: Mapping[str, ScopeValue] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """The size of everything that is kept."""
        return sum(self.sizes.values())

    def present(self, key: str) -> bool:
        """Whether `key` is in the scope."""
        return is_present(self.values.get(key))

    def pending(self, key: str) -> bool:
        """Whether `key` waits for an output."""
        return self.values.get(key) is PENDING

    def read(self, key: str) -> Value:
        """The value of `key`, None where it is absent.

        Raises:
            PlannerdError: VALUE_REQUIRED if the client keeps the value to itself.
        """
        value = self.values.get(key)
        if isinstance(value, Opaque):
            raise PlannerdError(
                Reason.VALUE_REQUIRED,
                f"The planner must read the value of '{key}', but it was sent as opaque or withheld. "
                "InitResponse.reads says which keys need their value.",
                metadata={"key": key},
            )
        if value is PENDING:
            raise RuntimeError(f"a planner read '{key}', which is pending")
        return value

    def write(self, change: ScopeChange, reads: Mapping[str, Need], watched: frozenset[str], salt: bytes) -> Scope:
        """This scope with `change` applied; keys that the planner does not read are ignored."""
        values, sizes, marks = dict(self.values), dict(self.sizes), dict(self.marks)
        for key in change.removed:
            values.pop(key, None)
            sizes.pop(key, None)
            marks.pop(key, None)
        for key, value in change.set.items():
            need = reads.get(key)
            if need is None:
                continue
            mark = _mark(value, salt) if key in watched else None
            if mark is None:
                marks.pop(key, None)
            else:
                marks[key] = mark
            keep: ScopeValue = value
            size = change.sizes.get(key, 0)
            if need is Need.PRESENCE and value is not PENDING and not isinstance(value, Opaque) and is_present(value):
                # What is not read is not kept.
                keep, size = Opaque(b""), 0
            values[key], sizes[key] = keep, size
        return Scope(values, sizes, marks)

    def check(self, limits: ScopeLimits) -> None:
        """Refuse to keep more than the server's limits.

        Raises:
            PlannerdError: LIMIT_EXCEEDED naming the limit.
        """
        check_limit("max_scope_bytes", "The bytes of the scope", self.total_bytes, limits.max_bytes)
        check_limit("max_scope_keys", "The keys of the scope", len(self.values), limits.max_keys)


def changed_keys(marks: Mapping[str, str], known: Mapping[str, str], watched: frozenset[str]) -> frozenset[str]:
    """The watched keys whose value or presence differs from what was known (docs/planners/scheduler.md).

    An output that was pending when the planner last looked does not count when it arrives.
    """
    if marks == known:
        return frozenset()
    return frozenset(key for key in watched if marks.get(key) != known.get(key) and known.get(key) != PENDING_MARK)
