"""The shared store: Redis or Valkey, so that every replica finds every invocation.

An invocation is one hash. A step costs one round trip: this process remembers the records that it wrote or read
last, works on them, and a script writes only if nobody else wrote meanwhile. One more round trip comes before a
decision model outside the process is asked: it claims the invocation, so that two replicas never pay for the same
decision.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final

from plannerd.errors import PlannerdError
from plannerd.invocations.record import Definition, Record, Tombstone
from plannerd.invocations.state_format import ExecutionState, dump_state
from plannerd.invocations.stores.connection import Answer, Connection
from plannerd.invocations.stores.entries import Entries
from plannerd.invocations.stores.scripts import ADMIT, CHECK, CLAIM, DROP, GET, LEAVE, PUT, RELEASE, RENEW
from plannerd.invocations.stores.store import Kept, Key, OutdatedError, Page
from plannerd.invocations.stores.stored_line import LINE_FIELDS, load_line
from plannerd.invocations.stores.stored_record import (
    OWNER,
    StoredFields,
    dump_changes,
    dump_record,
    dump_tombstone,
    load,
)

_VERSION: Final = b"v"
_VERSION_BYTES: Final = 8
_POLL_SECONDS: Final = 0.05  # how often a claim of somebody else is looked at


class RedisStore:
    """Keeps invocations in Redis or Valkey.

    Args:
        connection: runs scripts there.
        remembered: the records that this process remembers, within its own bounds.
        define: compiles a configuration from the bytes that a definition keeps as its source.
        prefix: begins every key.
        idle_seconds: how long an invocation is kept that nobody touches.
        tombstone_seconds: how long it is remembered that one was ended.
        claim_seconds: how long a claim outlives the process that made it.
        state_format: the version of the execution states that are written; None: the newest.
        max_per_identity: how many invocations one caller may have; None: as many as it likes. One counts from its
            Init on, for the idle time, or until it is ended.
    """

    durable = True

    def __init__(
        self,
        connection: Connection,
        remembered: Entries,
        define: Callable[[bytes], Definition],
        *,
        prefix: str = "plannerd",
        idle_seconds: float = 3600.0,
        tombstone_seconds: float = 300.0,
        claim_seconds: float = 5.0,
        state_format: int | None = None,
        max_per_identity: int | None = None,
    ) -> None:
        self._connection = connection
        self._remembered = remembered
        self._define = define
        self._prefix = prefix
        self._idle = _milliseconds(idle_seconds)
        self._tombstone = _milliseconds(tombstone_seconds)
        self._claim_seconds = claim_seconds
        self._state_format = state_format
        self._max_per_identity = max_per_identity
        self._claims: dict[Key, bytes] = {}  # those that no write has released yet
        self._releasing: set[asyncio.Task[None]] = set()
        self._writing: dict[Key, asyncio.Task[Answer]] = {}  # writes under a claim

    async def get(self, key: Key, *, fresh: bool = False) -> Kept | None:
        """What is kept under `key`: as this process remembers it, or with `fresh` as it is now."""
        known = self._remembered.get(key)
        if known is not None and not fresh:
            return known
        answer = await self._run(GET, key, known.version if known is not None else b"", self._idle)
        if answer == 1 and known is not None:
            return known
        self._remembered.forget(key)
        if not isinstance(answer, list | dict):
            return None
        stored = _pairs(answer)
        version = stored.pop(_VERSION)
        content = load(stored, self._define)
        if isinstance(content, Tombstone):
            return Kept(content, version)
        return self._remembered.put(key, content, version)

    async def admits(self, key: Key) -> bool:
        """Whether the caller may have one invocation more, on all replicas together; it counts from now on."""
        most = self._max_per_identity
        if most is None:
            return True
        identity, invocation_id = key
        keys = [self._of_owner(identity)]
        return await self._connection.run(ADMIT, keys, [invocation_id.encode(), self._idle, b"%d" % most]) == 1

    async def peek(self, key: Key) -> Kept | None:
        """What is kept, as it is now; this process remembers nothing of it."""
        [fields] = await self._connection.read([self._names(key)[0]], ())
        stored = {name: value for name, value in fields.items() if value is not None}
        version = stored.pop(_VERSION, None)
        return None if version is None else Kept(load(stored, self._define), version)

    async def page(self, cursor: str, count: int) -> Page:
        """Some of what is kept, in the order of the server. Only what a line needs is read, never a scope."""
        begin = f"{self._prefix}:i:"
        names, following = await self._connection.scan(f"{begin}{{*", cursor, count)
        names = list(dict.fromkeys(names))
        lines = await self._connection.read(names, LINE_FIELDS)
        entries = (load_line(name[len(begin) + 1 : -1].decode(), line) for name, line in zip(names, lines, strict=True))
        return Page(tuple(entry for entry in entries if entry is not None), following)

    async def put(self, key: Key, record: Record, expected: Kept | None, state: ExecutionState | None = None) -> bool:
        """Keep `record` in place of `expected`, in one round trip."""
        state = state or dump_state(record, self._state_format)
        before = expected.content if expected is not None else None
        if isinstance(before, Record) and before.definition is record.definition:
            changed, gone = dump_changes(record, before, state)
            version = await self._write(key, changed, expected, self._idle, gone=gone)
        else:
            version = await self._write(
                key, dump_record(record, state) | _owner_field(key), expected, self._idle, how=b"anew"
            )
        if version is None:
            return False
        self._remembered.put(key, record, version)
        return True

    async def end(self, key: Key, tombstone: Tombstone, expected: Kept) -> bool:
        """Release the invocation and remember that it was ended."""
        fields = dump_tombstone(tombstone) | _owner_field(key)
        version = await self._write(key, fields, expected, self._tombstone, how=b"end")
        self._remembered.forget(key)
        if version is not None and self._max_per_identity is not None:
            await self._connection.run(LEAVE, [self._of_owner(key[0])], [key[1].encode()])
        return version is not None

    async def drop(self, key: Key, expected: Kept) -> None:
        """Forget the invocation, here and there."""
        self._remembered.forget(key)
        await self._run(DROP, key, expected.version)

    def claim(self, key: Key, expected: Kept) -> AbstractAsyncContextManager[None]:
        """Keep other replicas from asking a decision model for the same step."""
        return self._claimed(key, expected)

    async def check(self) -> str | None:
        """Ask the server for nothing."""
        try:
            await self._connection.run(CHECK, (f"{self._prefix}:check".encode(),), ())
        except PlannerdError as error:
            return self._connection.problem or error.message
        return None

    async def close(self) -> None:
        """Close the connection, once the last claims are released."""
        await asyncio.gather(*self._writing.values(), *self._releasing, return_exceptions=True)
        await self._connection.close()

    @asynccontextmanager
    async def _claimed(self, key: Key, expected: Kept) -> AsyncIterator[None]:
        owner = secrets.token_bytes(_VERSION_BYTES)
        milliseconds = _milliseconds(self._claim_seconds)
        self._claims[key] = owner
        try:
            while (wait := await self._run(CLAIM, key, expected.version, owner, milliseconds)) != 0:
                if not isinstance(wait, int) or wait < 0:
                    raise OutdatedError
                await asyncio.sleep(min(wait / 1000, _POLL_SECONDS))
            renewing = asyncio.create_task(self._renew(key, owner, milliseconds))
            try:
                yield
            finally:
                renewing.cancel()
        finally:
            # Others need not wait until the claim of a step that failed is over. Nor does its client wait for this.
            if self._claims.pop(key, None) is not None:
                releasing = asyncio.create_task(self._release(key, owner, self._writing.get(key)))
                self._releasing.add(releasing)
                releasing.add_done_callback(self._releasing.discard)

    async def _release(self, key: Key, owner: bytes, writing: asyncio.Task[Answer] | None) -> None:
        if writing is not None:
            await asyncio.wait([writing])
        with suppress(PlannerdError):
            await self._run(RELEASE, key, owner)

    async def _renew(self, key: Key, owner: bytes, milliseconds: bytes) -> None:
        pause = min(int(milliseconds), int(self._idle)) / 3000
        while True:
            await asyncio.sleep(pause)
            with suppress(PlannerdError):
                await self._run(RENEW, key, owner, milliseconds, self._idle)

    async def _write(
        self,
        key: Key,
        fields: StoredFields,
        expected: Kept | None,
        milliseconds: bytes,
        *,
        gone: list[bytes] | None = None,
        how: bytes = b"change",
    ) -> bytes | None:
        """Write if `expected` is still there; the new version, None if it is not.

        While another replica has the claim this waits: what that one is paying for would be worth nothing. A
        write under a claim is made even if its client is gone by now, since the decision is paid for. Whatever goes
        wrong here, even a cancellation, may come after the write: what is remembered is not to be trusted any more.
        """
        version = secrets.token_bytes(_VERSION_BYTES)
        claim = self._claims.get(key, b"")
        flat = [part for pair in fields.items() for part in pair]
        head = (
            expected.version if expected is not None else b"",
            version,
            milliseconds,
            how,
            b"%d" % len(fields),
            claim,
        )
        writing = self._put(key, *head, *flat, *(gone or ()))
        written = False
        try:
            written = await (self._in_any_case(key, writing) if claim else writing) == 1
        finally:
            if written:
                self._claims.pop(key, None)
            else:
                self._remembered.forget(key)
        return version if written else None

    async def _put(self, key: Key, *arguments: bytes) -> Answer:
        while (answer := await self._run(PUT, key, *arguments)) not in (0, 1):
            wait = -answer / 1000 if isinstance(answer, int) else 0.0
            await asyncio.sleep(min(wait, _POLL_SECONDS))
        return answer

    async def _in_any_case(self, key: Key, writing: Coroutine[Any, Any, Answer]) -> Answer:
        """Its answer; it goes on where nobody waits for that any more."""
        task = self._writing[key] = asyncio.create_task(writing)

        def done(task: asyncio.Task[Answer]) -> None:
            if self._writing.get(key) is task:
                del self._writing[key]
            if not task.cancelled():
                task.exception()  # whoever still waits has it; nobody else needs it

        task.add_done_callback(done)
        return await asyncio.shield(task)

    async def _run(self, script: str, key: Key, *arguments: bytes) -> Answer:
        return await self._connection.run(script, self._names(key), arguments)

    def _names(self, key: Key) -> tuple[bytes, bytes]:
        """The keys of an invocation and of the claim on it, which a cluster keeps on one node.

        Who the caller is goes in as a digest: no identity can be chosen so that it looks like another's.
        """
        identity, invocation_id = key
        tag = f"{{{_owner(identity)}:{invocation_id}}}"
        return f"{self._prefix}:i:{tag}".encode(), f"{self._prefix}:c:{tag}".encode()

    def _of_owner(self, identity: str) -> bytes:
        """The key of the ids of a caller's invocations, where they are counted."""
        return f"{self._prefix}:n:{_owner(identity)}".encode()


def _owner(identity: str) -> str:
    return hashlib.blake2b(identity.encode(), digest_size=12).hexdigest() if identity else "-"


def _milliseconds(seconds: float) -> bytes:
    return b"%d" % max(1, round(seconds * 1000))


def _owner_field(key: Key) -> StoredFields:
    """Whose it is, for operators: the key itself has only a digest of it."""
    return {OWNER: key[0].encode()}


def _pairs(answer: list[bytes] | dict[bytes, bytes]) -> StoredFields:
    """The fields of a hash, which come as a list or a map, as the protocol has it."""
    if isinstance(answer, dict):
        return dict(answer)
    return dict(zip(answer[::2], answer[1::2], strict=True))
