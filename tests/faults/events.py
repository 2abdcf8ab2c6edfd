"""What happened, as lines: every process of a storm writes its own file, and the check reads them all.

The clock is the machine's monotonic one, the same in every process. A line is one write, so that a process that
is killed leaves whole lines behind.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
"""`t` (seconds), `kind`, and what belongs to that kind."""


class EventLog:
    """A file of events."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **facts: Any) -> None:
        """Note that something happened, now."""
        line = json.dumps({"t": round(time.monotonic(), 6), "kind": kind, **facts}) + "\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_events(folder: Path) -> list[Event]:
    """The events of all files in `folder`, in the order in which they happened."""
    found = [event for path in sorted(folder.glob("*.events")) for event in _lines(path)]
    return sorted(found, key=lambda event: float(event["t"]))


def _lines(path: Path) -> Iterator[Event]:
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if line.endswith("\n"):  # what a killed process did not end says nothing
            yield json.loads(line)


def told(events: list[Event], start: float) -> str:
    """Events as lines for people."""
    lines = []
    for event in events:
        facts = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"t", "kind"})
        lines.append(f"  {event['t'] - start:9.3f} s  {event['kind']:<16} {facts}")
    return "\n".join(lines)
