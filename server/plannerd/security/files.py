"""Files that may change while the server runs: certificates, keys, tokens.

A file is read whole and compared by its content, so it does not matter how it was replaced: written in place,
renamed, or by the symbolic links of a Kubernetes volume. What can't be used (half-written, a key that does not
fit) leaves what was there before in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from plannerd.telemetry.logging import get_logger

T = TypeVar("T")

MAX_FILE_BYTES: Final = 1024 * 1024
"""The largest file that is read."""

Contents: TypeAlias = Mapping[str, bytes]


class FileError(Exception):
    """A file can't be used. The text is for the operator, begins with the setting, and has no content of the file."""


class WatchedFiles(Generic[T]):
    """Something that is made of files, as it was when they could last be used.

    Args:
        section: what the files are, the path of a section of the settings: `server.tls`.
        files: the files, by the name of the setting below the section.
        make: makes it of their contents.

    Raises:
        FileError: the files can't be used now.
    """

    def __init__(self, section: str, files: Mapping[str, Path], make: Callable[[Contents], T]) -> None:
        self._section = section
        self._files = dict(files)
        self._make = make
        self._contents = self._read()
        self._current = self._made(self._contents)
        self._problem = ""
        self._version = 0

    @property
    def current(self) -> T:
        """What there is."""
        return self._current

    @property
    def version(self) -> int:
        """How often it was replaced."""
        return self._version

    def look(self) -> None:
        """Read the files again; if they changed, and can be used, `current` is made of them from now on."""
        try:
            contents = self._read()
            if contents == self._contents:
                self._problem = ""
                return
            current = self._made(contents)
        except FileError as problem:
            self._note(str(problem))
            return
        self._contents, self._current, self._problem = contents, current, ""
        self._version += 1
        get_logger().info("reloaded", section=self._section, files=sorted(self._files))

    def _note(self, problem: str) -> None:
        """Log what is wrong, once for as long as it is the same."""
        if problem != self._problem:
            self._problem = problem
            get_logger().warning("reload_failed", section=self._section, problem=problem, detail="the old one is kept")

    def _read(self) -> dict[str, bytes]:
        contents = {}
        for name, path in self._files.items():
            try:
                with path.open("rb") as file:
                    contents[name] = file.read(MAX_FILE_BYTES + 1)
            except OSError as error:
                raise FileError(f"{self._section}.{name}: {path}: {error.strerror}") from None
            if len(contents[name]) > MAX_FILE_BYTES:
                raise FileError(f"{self._section}.{name}: {path} has more than {MAX_FILE_BYTES} bytes")
        return contents

    def _made(self, contents: Contents) -> T:
        try:
            return self._make(contents)
        except FileError as problem:
            raise FileError(f"{self._section}.{problem}") from None


async def keep_looking(every: float, watched: Iterable[WatchedFiles[object]]) -> None:
    """Look at files again and again, until this is cancelled."""
    watched = tuple(watched)
    while watched:
        await asyncio.sleep(every)
        for files in watched:
            # In a thread: a network volume may take its time. One that fails is looked at again.
            try:
                await asyncio.to_thread(files.look)
            except Exception as error:  # noqa: BLE001 (whatever a library makes of a broken file)
                get_logger().error("reload_failed", exc_info=error)
