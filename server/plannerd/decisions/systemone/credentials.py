"""The key that a host wants, from where operators keep secrets: a file, or the environment."""

from __future__ import annotations

import os
from pathlib import Path

_LONGEST = 8192  # characters of a key


class ApiKey:
    """A key, read when it is needed. A file is read again when it changes, so that a key can be replaced.

    While the file is missing or unusable, as it may be in the moment of its replacement, the last key is used.

    Args:
        variable: the environment variable that holds the key.
        file: the file that holds it; neither of both: there is no key.

    Raises:
        ValueError: both are given; or there is no usable key there. The text never has the key in it.
    """

    def __init__(self, *, variable: str | None = None, file: Path | None = None) -> None:
        if variable is not None and file is not None:
            raise ValueError("api_key_env and api_key_file can't both be set")
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._key: str | None = None
        self._before: str | None = None
        if variable is not None:
            if not os.environ.get(variable, "").strip():
                raise ValueError(f"api_key_env: the environment variable {variable} is not set, or empty")
            self._key = _checked(os.environ[variable], f"api_key_env: the environment variable {variable}")
        elif file is not None:
            self._stamp, self._key = _read(file)

    def __repr__(self) -> str:
        return "ApiKey(...)"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown: the key, and the one before it, with which a request may be under way."""
        return tuple(key for key in (self._key, self._before) if key is not None)

    def current(self) -> str | None:
        """The key as it is now; None where the host needs none."""
        if self._file is not None:
            try:
                if _stamp(self._file) != self._stamp:
                    last = self._key
                    self._stamp, self._key = _read(self._file)
                    self._before = last if last != self._key else self._before
            except (OSError, ValueError):
                self._stamp = None  # look again next time
        return self._key


def _read(file: Path) -> tuple[tuple[int, int, int], str]:
    stamp = _stamp(file)
    where = f"api_key_file: {file}"
    try:
        return stamp, _checked(file.read_text("utf-8"), where)
    except UnicodeDecodeError:
        raise ValueError(f"{where} is not text") from None


def _stamp(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size


def _checked(text: str, where: str) -> str:
    key = text.strip()
    if not key or len(key) > _LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"{where} must hold one key: printable ASCII characters without spaces")
    return key
