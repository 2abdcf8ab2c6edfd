"""Servers of this repository as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

STOP_SECONDS: Final = 15.0


@contextmanager
def running(settings: Sequence[Path]) -> Iterator[list[str]]:
    """Start a server for each settings file; the addresses they listen on, in the same order."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(path)) for path in settings]
        yield [_address(process) for process in processes]


@contextmanager
def _process(settings: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "plannerd", "serve", "--config", str(settings), "--port", "0"]
    command += ["--log-level", "error"]
    with (
        settings.with_suffix(".log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout else ""
    prefix, _, address = line.strip().rpartition(" ")
    if prefix != "listening on":
        raise RuntimeError(f"the server did not start: {line!r}")
    return address
