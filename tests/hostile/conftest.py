"""A server with tight limits, and a well-behaved client that is served by it all the time."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.security import ISSUER, Files, authority, ec_signer, jwks
from tests.support.servers import ROOT, ServerProcess, running_server

ATTACKER: Final = "attacker-0123456789abcdef"
NEIGHBOUR: Final = "neighbour-0123456789abcdef"
HANDSHAKE_SECONDS: Final = 1.0
MAX_CONNECTIONS: Final = 400
MAX_CALLS: Final = 200
MAX_INVOCATIONS: Final = 2000
MAX_REQUEST: Final = 1 << 20

_RATIO: Final = 30.0
"""How much slower the well-behaved client may be: attacker, server and client share two cores."""
_SLOWEST: Final = 1.0
"""Seconds that its invocations may take on a machine that is busy with other things."""
_MEMORY: Final = 400 << 20
"""Bytes that the server may need more than before."""


class Neighbour:
    """The well-behaved client, in a process of its own."""

    def __init__(self, target: str) -> None:
        command = [sys.executable, "-m", "tests.support.neighbour", target, NEIGHBOUR]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: list[tuple[float, float, str]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            began, took, outcome = line.strip().split(" ", 2)
            self._lines.append((float(began), float(took), outcome))

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reading.join(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def since(self, begin: float) -> list[tuple[float, str]]:
        """What its invocations that began after `begin` took, and how they went."""
        return [(took, outcome) for began, took, outcome in list(self._lines) if began >= begin]

    def wait_for(self, begin: float, count: int) -> list[tuple[float, str]]:
        """The same, once there are some."""
        give_up = time.monotonic() + 60
        while len(found := self.since(begin)) < count:
            assert time.monotonic() < give_up, "the well-behaved client is not served"
            time.sleep(0.02)
        return found


class Scene:
    """The server and its well-behaved client."""

    def __init__(self, server: ServerProcess, neighbour: Neighbour) -> None:
        self.server, self.neighbour = server, neighbour

    @property
    def target(self) -> str:
        return self.server.target

    @property
    def memory(self) -> int:
        """Bytes that the server has in memory."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    @contextmanager
    def undisturbed(self, name: str) -> Iterator[None]:
        """Whatever happens inside, the well-behaved client is served, and the server does not grow without end."""
        calm = statistics.median(took for took, _ in self.neighbour.wait_for(time.monotonic(), 20))
        before, begin = self.memory, time.monotonic()
        yield
        end = time.monotonic()
        during = self.neighbour.since(begin)
        seen = self.neighbour.wait_for(end, 1)
        assert {outcome for _, outcome in [*during, *seen]} == {"ok"}
        under = statistics.median(took for took, _ in during or seen)
        print(
            f"{name}: {end - begin:.1f} s, {len(during)} invocations of others, {under / calm:.1f} times as "
            f"slow, {(self.memory - before) / 1e6:+.0f} MB"
        )
        assert under < max(_RATIO * calm, _SLOWEST)
        assert self.memory - before < _MEMORY


def config(files: Files) -> dict[str, Any]:
    """The settings of the server."""
    model = files.write("model.yaml", yaml.safe_dump({"defaults": {"yes_no": 0.1, "scale": 3}}))
    tokens = files.write("tokens", f"attacker {ATTACKER}\nneighbour {NEIGHBOUR}\n")
    keys = files.write("keys", jwks(ec_signer("hostile")))
    return {
        "server": {
            "handshake_timeout_seconds": HANDSHAKE_SECONDS,
            "max_connections": MAX_CONNECTIONS,
            "max_request_bytes": MAX_REQUEST,
        },
        "limits": {"max_calls_per_identity": MAX_CALLS, "max_invocations": MAX_INVOCATIONS},
        "auth": {
            "tokens_file": str(tokens),
            "jwt": {"keys_file": str(keys), "issuer": ISSUER, "audience": ["plannerd"]},
        },
        "decisions": {"models": {"fixed": {"provider": "fixed", "file": str(model)}}},
        "log": {"level": "warning"},
    }


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One server for all attacks: what one of them leaves behind would show in the next."""
    with running_server(config=config(Files(tmp_path_factory.mktemp("hostile")))) as server:
        neighbour = Neighbour(server.target)
        try:
            yield Scene(server, neighbour)
        finally:
            neighbour.stop()


@pytest.fixture(scope="session")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the same settings that speaks TLS."""
    files, ours = Files(tmp_path_factory.mktemp("hostile-tls")), authority()
    made = config(files)
    tls = files.certificate(*ours.issue("127.0.0.1"))
    made["server"]["tls"] = {name: str(tls[name]) for name in ("cert_file", "key_file")}
    with running_server(config=made, credentials=ours.trusted()) as server:
        yield server
