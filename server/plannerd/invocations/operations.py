"""What operators may do: list the invocations of every identity, look at one, end one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from plannerd.errors import PlannerdError, Reason, invalid
from plannerd.invocations.commands import EndCommand
from plannerd.invocations.engine import Engine
from plannerd.invocations.history import History, Note
from plannerd.invocations.record import Record
from plannerd.invocations.stores import Kept, Key, Store
from plannerd.invocations.summary import InvocationStatus, Summary, summarize

_LOOKED_AT: Final = 2000
"""How many invocations are looked at for one page."""

_ROUNDS: Final = 20
"""How often a store is asked for one page."""


@dataclass(frozen=True, slots=True)
class Query:
    """What invocations must be like; what is None, empty or 0 does not matter.

    Attributes:
        planner: the planner's name.
        statuses: any of these.
        identity: whose they are.
        model: the configured name of the decision model.
        prefix: what the id begins with.
        min_age: begun at least so many seconds ago.
        min_idle: unchanged for at least so many seconds.
    """

    planner: str = ""
    statuses: frozenset[InvocationStatus] = field(default_factory=frozenset)
    identity: str | None = None
    model: str = ""
    prefix: str = ""
    min_age: float = 0.0
    min_idle: float = 0.0

    def matches(self, summary: Summary, now: float) -> bool:
        """Whether an invocation is like that."""
        return (
            (not self.planner or summary.planner == self.planner)
            and (not self.statuses or summary.status in self.statuses)
            and (self.identity is None or summary.identity == self.identity)
            and (not self.model or summary.model == self.model)
            and summary.invocation_id.startswith(self.prefix)
            and (not self.min_age or now - summary.began >= self.min_age)
            and (not self.min_idle or now - summary.changed >= self.min_idle)
        )

    def mark(self) -> str:
        """Tells filters apart, so that nobody goes on with another one."""
        parts = [
            self.planner,
            sorted(status.value for status in self.statuses),
            self.identity,
            self.model,
            self.prefix,
            self.min_age,
            self.min_idle,
        ]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of invocations, and the token of the next one; empty on the last."""

    summaries: tuple[Summary, ...]
    next_token: str


@dataclass(frozen=True, slots=True)
class Shown:
    """An invocation: in a line, as it is kept (None: it was ended), and its last steps."""

    summary: Summary
    record: Record | None
    notes: tuple[Note, ...]


class Operations:
    """Serves operators.

    Args:
        engine: ends invocations, so that none is ended in the middle of a step.
        store: where they are kept.
        history: remembers the last steps.
        wall_clock: seconds since the epoch.
    """

    def __init__(
        self, engine: Engine, store: Store, history: History, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._store = store
        self._history = history
        self._wall_clock = wall_clock

    async def list(self, query: Query, size: int, token: str) -> Listing:
        """Some invocations.

        Args:
            query: what they must be like.
            size: about how many.
            token: where to go on; empty at the beginning.

        Raises:
            PlannerdError: INVALID_REQUEST, STORE_UNAVAILABLE.
        """
        cursor = _read_token(token, query)
        found: list[Summary] = []
        looked_at = 0
        now = self._wall_clock()
        for _ in range(_ROUNDS):
            try:
                page = await self._store.page(cursor, size - len(found))
            except ValueError as error:
                raise _bad_token(str(error)) from None
            looked_at += len(page.entries)
            found += [summary for summary in page.entries if query.matches(summary, now)]
            cursor = page.cursor
            if not cursor or len(found) >= size or looked_at >= _LOOKED_AT:
                break
        return Listing(tuple(found), _write_token(cursor, query) if cursor else "")

    async def show(self, key: Key) -> Shown:
        """One invocation.

        Raises:
            PlannerdError: INVOCATION_NOT_FOUND, STORE_UNAVAILABLE.
        """
        content = (await self._kept(key)).content
        record = content if isinstance(content, Record) else None
        return Shown(summarize(*key, content), record, self._history.of(key))

    async def end(self, operator: str, key: Key, reason: str) -> Summary:
        """End an invocation; how it stood before.

        Raises:
            PlannerdError: INVOCATION_NOT_FOUND, STORE_UNAVAILABLE.
        """
        before = summarize(*key, (await self._kept(key)).content)
        identity, invocation_id = key
        await self._engine.end(identity, EndCommand(invocation_id, None, message=reason, operator=operator))
        return before

    async def _kept(self, key: Key) -> Kept:
        kept = await self._store.peek(key)
        if kept is None:
            identity, invocation_id = key
            raise PlannerdError(
                Reason.INVOCATION_NOT_FOUND,
                f"There is no invocation '{invocation_id}' of the identity '{identity}' here. ListInvocations shows "
                "those that this replica knows, and whose they are.",
                metadata={"invocation_id": invocation_id},
            )
        return kept


def _write_token(cursor: str, query: Query) -> str:
    return base64.urlsafe_b64encode(json.dumps([1, query.mark(), cursor]).encode()).decode().rstrip("=")


def _read_token(token: str, query: Query) -> str:
    if not token:
        return ""
    try:
        version, mark, cursor = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise _bad_token("it is none that a server gave out") from None
    if version != 1 or not isinstance(cursor, str) or not cursor:
        raise _bad_token("it is none that a server gave out")
    if mark != query.mark():
        raise _bad_token("it belongs to another filter")
    return cursor


def _bad_token(why: str) -> PlannerdError:
    return invalid("page_token", f"can't be gone on with: {why}; begin again without one")
