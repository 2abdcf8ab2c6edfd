"""What the replicas of a storm keep their invocations in, and what a real Redis tells of what was committed there."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from plannerd_protos.planner.v1 import planner_pb2
from tests.faults.events import EventLog
from tests.support.redis import RedisProcess, running_redis


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A way to keep invocations.

    Args:
        name: what it is called.
        redis: the options of a Redis that all replicas share; None where each keeps its own.
        forgets: a restart of it loses everything.
    """

    name: str
    redis: tuple[str, ...] | None = None
    forgets: bool = False

    @property
    def shared(self) -> bool:
        """Whether every replica finds every invocation, so that requests may go to any of them."""
        return self.redis is not None


STORES: Final[Mapping[str, StoreKind]] = {
    store.name: store
    for store in (
        StoreKind("memory"),
        StoreKind("redis", ("--appendonly", "yes", "--appendfsync", "always")),
        StoreKind("redis-forgets", (), forgets=True),
    )
}


class SharedStore:
    """A running Redis, or nothing."""

    def __init__(self, kind: StoreKind, log: EventLog, process: RedisProcess | None) -> None:
        self.kind = kind
        self._log = log
        self._process = process

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of a server that uses it."""
        if self._process is None:
            return {}
        return {"url": f"redis://127.0.0.1:{self._process.port}/0", "timeout_seconds": 2.0, "claim_seconds": 2.0}

    async def restart(self, seconds: float) -> None:
        """Kill it, and start it again after a while."""
        if self._process is None:
            return
        self._log.write("store-ends", forgets=self.kind.forgets)
        await asyncio.to_thread(self._process.stop, signal.SIGKILL)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._process.start)
        self._log.write("store-started")

    async def watch(self) -> None:
        """Note every reply that is committed, as Redis itself tells of it."""
        while self._process is not None:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._process.port, limit=1 << 24)
                writer.write(b"MONITOR\r\n")
                try:
                    async for line in reader:
                        self._note(line)
                finally:
                    writer.close()
            await asyncio.sleep(0.05)

    def _note(self, line: bytes) -> None:
        words = [unescaped(word) for word in _WORD.findall(line)]
        if words[:1] != [b"HSET"] or words[2:3] != [b"r"]:
            return
        with contextlib.suppress(DecodeError):
            decisions = planner_pb2.NextActionResponse.FromString(words[3]).step.explanation.decisions
            invocation = words[1].partition(b"{")[2].rstrip(b"}").partition(b":")[2].decode()
            asks = [decision.usage.input_tokens for decision in decisions]
            self._log.write("committed", invocation=invocation, asks=asks)


@asynccontextmanager
async def running_store(kind: StoreKind, log: EventLog) -> AsyncIterator[SharedStore]:
    """The store, while the context is open."""
    with contextlib.ExitStack() as stack:
        process = None
        if kind.redis is not None:
            process = await asyncio.to_thread(stack.enter_context, running_redis(*kind.redis))
        store = SharedStore(kind, log, process)
        watching = asyncio.ensure_future(store.watch())
        try:
            yield store
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


# MONITOR writes each word in quotes, with what can't be printed as escapes.
_WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def unescaped(word: bytes) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes.fromhex(code[1:].decode()) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(one, word)
