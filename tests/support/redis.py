"""Real Redis servers in processes of their own, and stores on them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from plannerd.invocations.definitions import Definitions
from plannerd.invocations.record import Record
from plannerd.invocations.stores.connection import RedisConnection, RedisTarget
from plannerd.invocations.stores.entries import Entries, MemoryBounds
from plannerd.invocations.stores.redis import RedisStore
from plannerd.invocations.stores.store import Kept, Key
from plannerd.services.codec.configuration import read_configuration

START_SECONDS = 20.0
REDIS = "redis-server"
VALKEY = "valkey-server"


def find_binary(name: str) -> str:
    """The server to start. Without it the tests that need it are skipped; those of Redis never in CI."""
    found = shutil.which(name)
    if found is None:
        missing = f"{name} is not installed"
        if name == REDIS and os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class RedisProcess:
    """A server that keeps its port and its files when it is stopped and started again."""

    def __init__(self, folder: Path, *arguments: str, tls: bool = False, binary: str = REDIS) -> None:
        self._binary = find_binary(binary)
        self._folder = folder
        self.port = free_port()
        ports = ("--port", "0", "--tls-port", str(self.port)) if tls else ("--port", str(self.port))
        self._arguments = (*ports, *arguments)
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self._binary, "--bind", "127.0.0.1", "--dir", str(self._folder)]
        log = self._folder / "redis.log"
        with log.open("ab") as stream:
            self._process = subprocess.Popen([*command, *self._arguments], stdout=stream, stderr=stream)
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"redis did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None

    def command(self, *words: str | bytes) -> bytes:
        """The raw answer to a command."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request)
            return connection.recv(1 << 20)

    def _answers(self) -> bool:
        with suppress(OSError):
            if self._tls:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return True
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        return False


@contextmanager
def running_redis(*arguments: str, tls: bool = False, binary: str = REDIS) -> Iterator[RedisProcess]:
    """A server with these options, without persistence unless they say otherwise."""
    with tempfile.TemporaryDirectory(prefix="plannerd-redis-") as folder:
        redis = RedisProcess(Path(folder), "--save", "", *arguments, tls=tls, binary=binary)
        redis.start()
        try:
            yield redis
        finally:
            redis.stop()


class Forgetful(Entries):
    """Remembers nothing, so that every record is read from the store; and sees that it comes back as it went."""

    def __init__(self, bounds: MemoryBounds, clock: Callable[[], float]) -> None:
        super().__init__(bounds, clock)
        self._written: dict[bytes, Record] = {}

    def put(self, key: Key, record: Record, version: bytes = b"") -> Kept:
        """What stands for `record`."""
        written = self._written.setdefault(version, record)
        # Before the first action a planner that is restored may already note what it would note then, and warn.
        same = {"warnings": (), "planner_state": None} if record.action is None else {"warnings": ()}
        assert replace(record, **same) == replace(written, **same)
        return Kept(record, version)


class Stores:
    """Makes stores on one server, and closes them."""

    def __init__(self, port: int, *, cluster: bool = False) -> None:
        self._port = port
        self._cluster = cluster
        self._made: list[RedisStore] = []

    def make(
        self,
        bounds: MemoryBounds,
        clock: Callable[[], float],
        definitions: Definitions,
        *,
        prefix: str = "",
        forgetful: bool = False,
        timeout: float = 5.0,
        claim_seconds: float = 5.0,
    ) -> RedisStore:
        """A store; with a prefix of its own unless one is given, so that it shares nothing."""
        store = RedisStore(
            RedisConnection(RedisTarget("127.0.0.1", self._port, cluster=self._cluster, timeout=timeout)),
            (Forgetful if forgetful else Entries)(bounds, clock),
            lambda source: definitions.define(read_configuration(source)),
            prefix=prefix or uuid.uuid4().hex,
            idle_seconds=bounds.idle_seconds,
            tombstone_seconds=bounds.tombstone_seconds,
            claim_seconds=claim_seconds,
            max_per_identity=bounds.max_per_identity,
        )
        self._made.append(store)
        return store

    async def close(self) -> None:
        """Close every store."""
        for store in self._made:
            await store.close()


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
