"""Files that may change while the server runs, such as tokens and certificates."""

from __future__ import annotations

from pathlib import Path


def file_version(file: Path) -> tuple[int, int, int]:
    """Something that differs when the file has changed or was replaced.

    Raises:
        OSError: it can't be looked at.
    """
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
