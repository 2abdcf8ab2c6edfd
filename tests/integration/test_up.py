"""`make up`: plannerd, a shared store and a collector as plain processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plannerd_client import Bdi, Client, Desire, agent
from tests.support.redis import REDIS, find_binary, free_port
from tests.support.servers import ROOT

COLLECTOR = ROOT / "build" / "up" / "collector.log"
PATIENCE = 60.0


@agent(output_key="reply")
def answer(ticket: str) -> str:
    return f"About {ticket}"


@contextmanager
def running(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, from when it says that all is there until the end of the block; then it may have ended."""
    find_binary(REDIS)
    command = [sys.executable, str(ROOT / "scripts" / "up"), *arguments]
    with output.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
        try:
            wait_for("Ctrl-C stops everything", output, process)
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def wait_for(text: str, file: Path, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE
    while text not in file.read_text("utf-8", "replace"):
        assert process.poll() is None, file.read_text("utf-8", "replace")
        assert time.monotonic() < give_up, f"'{text}' does not come up in {file.name}"
        time.sleep(0.05)


def children(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """The ids of the processes that it started, by the name of their program."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(process.pid)], check=True, capture_output=True, text=True
    )
    return {name: int(pid) for pid, name in (line.split(maxsplit=1) for line in listed.stdout.splitlines())}


def test_two_replicas_share_an_invocation_and_its_trace_arrives(tmp_path: Path) -> None:
    """What one replica began the other one answers for, its trace reaches the collector, and nothing keeps running."""
    port = free_port()
    planner = Bdi([Desire(name="answer", agents=[answer], achievable="ticket", satisfied="reply")])
    with running(tmp_path / "output", "--port", str(port), "--replicas", "2") as process:
        parts = children(process)
        lines = (tmp_path / "output").read_text("utf-8").splitlines()
        first, second = (line.split()[1] for line in lines if line.startswith("plannerd "))
        assert first == f"127.0.0.1:{port}"
        with Client(first) as client:
            run = client.run(planner, [answer], {"ticket": "kettle"}, output_key="reply", invocation_id="order-7")
        listed = subprocess.run(
            [sys.executable, "-m", "plannerd", "invocations", "show", "order-7", "--target", second],
            check=True,
            capture_output=True,
            text=True,
        )
        assert run.result == "About kettle"
        assert "order-7" in listed.stdout
        wait_for("plannerd.step", COLLECTOR, process)
    assert process.returncode == 0
    assert len(parts) >= 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in parts.values())


def test_when_one_part_ends_it_is_named_and_the_others_stop(tmp_path: Path) -> None:
    """When the store dies the command says so, with its log, and ends with 1."""
    with running(tmp_path / "output", "--port", str(free_port()), "--no-collector") as process:
        store = next(pid for name, pid in children(process).items() if name.startswith(REDIS))
        os.kill(store, signal.SIGKILL)
        assert process.wait(PATIENCE) == 1
    assert "error: store ended with -9" in (tmp_path / "output").read_text("utf-8")


@pytest.mark.parametrize("replicas", ["0", "-1"])
def test_no_replica_is_refused(replicas: str) -> None:
    """Without a replica there is nothing to start."""
    command = [sys.executable, str(ROOT / "scripts" / "up"), "--replicas", replicas]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--replicas" in done.stderr
