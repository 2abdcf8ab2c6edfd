"""What is sent beside each request, such as a token: from the settings, the environment or a file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plannerd.decisions.remote.files import file_version

_KEY: Final = re.compile(r"[a-z0-9_.-]+")
_MAX_VALUE_BYTES: Final = 8192  # servers refuse headers beyond that anyway


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. Its value is never shown.

    Attributes:
        key: in lower case.
        value: what is sent, unless a file has it.
        file: the file that has it, read again when it changed; white space around the content is left out.
        prefix: stands before what the file has, for instance `Bearer `.
        secret: whether to hide it where the other side repeats it.
    """

    key: str
    value: str = ""
    file: Path | None = None
    prefix: str = ""
    secret: bool = True

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, ...)"


class Metadata:
    """The entries as they are at the moment.

    Raises:
        ValueError: a key or a value can't be sent; the message names the key and never has the value.
        OSError: a file can't be read.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)
        self._read: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._before: dict[str, str] = {}
        for entry in self._entries:
            _check_key(entry.key)
        self.current()

    def current(self) -> tuple[tuple[str, str], ...]:
        """The entries to send now.

        Raises:
            ValueError: a file has no value that can be sent.
            OSError: a file can't be read.
        """
        return tuple((entry.key, self._value(entry)) for entry in self._entries)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: values as they are sent and, of files, as they were before; also without prefix."""
        found = []
        for entry in self._entries:
            if entry.secret:
                value = self._read[entry.key][1] if entry.file is not None else entry.prefix + entry.value
                for text in (value, self._before.get(entry.key, "")):
                    found += [text, text.removeprefix(entry.prefix)]
        return tuple(text for text in found if text)

    def _value(self, entry: Entry) -> str:
        if entry.file is None:
            return _checked(entry.key, entry.prefix + entry.value)
        version = file_version(entry.file)
        known = self._read.get(entry.key)
        if known is None or known[0] != version:
            text = entry.file.read_bytes()[: _MAX_VALUE_BYTES + 1].decode("utf-8", "replace").strip()
            if not text:
                raise ValueError(f"metadata '{entry.key}': the file {entry.file} is empty")
            if known is not None:
                self._before[entry.key] = known[1]
            known = version, _checked(entry.key, entry.prefix + text)
            self._read[entry.key] = known
        return known[1]


def _check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        raise ValueError(f"metadata '{key}': a key has lower case letters, digits, '-', '_' and '.' only")
    if key.startswith("grpc-"):
        raise ValueError(f"metadata '{key}': keys that start with 'grpc-' are gRPC's own")
    if key.endswith("-bin"):
        raise ValueError(f"metadata '{key}': keys that end in '-bin' have binary values, which can't be set here")


def _checked(key: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        raise ValueError(f"metadata '{key}': its value must be printable ASCII, in one line, without spaces around it")
    if len(value) > _MAX_VALUE_BYTES:
        raise ValueError(f"metadata '{key}': its value has more than {_MAX_VALUE_BYTES} bytes")
    return value
