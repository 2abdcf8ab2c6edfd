"""What the demo prints: 80 columns, colours on a terminal only, plain text when piped."""

from __future__ import annotations

import os
import textwrap
import unicodedata
from typing import Final, TextIO

WIDTH: Final = 80

_BOLD, _DIM, _GREEN, _RED = "1", "2", "32", "31"


class Screen:
    """Prints to `out`, line by line as things happen; with `quiet` only what is said loudly."""

    def __init__(self, out: TextIO, *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._colours = out.isatty() and "NO_COLOR" not in os.environ

    def heading(self, text: str) -> None:
        """A heading, with a rule under it. Always shown."""
        self._put("")
        self._put(self._paint(text, _BOLD))
        self._put("=" * min(width(text), WIDTH))

    def line(self, text: str = "", *, good: bool | None = None) -> None:
        """One line, wrapped where it is too long; green or red if it is good or bad news. Always shown."""
        for part in textwrap.wrap(text, WIDTH, subsequent_indent="  ") or [""]:
            self._put(part if good is None else self._paint(part, _GREEN if good else _RED))

    def detail(self, text: str = "", *, good: bool | None = None, dim: bool = False) -> None:
        """One line of detail, cut where it is too long. Not shown when quiet."""
        if self._quiet:
            return
        cut = clip(text, WIDTH)
        if good is not None:
            cut = self._paint(cut, _GREEN if good else _RED)
        self._put(self._paint(cut, _DIM) if dim else cut)

    def item(self, title: str, text: str) -> None:
        """The beginning of a detail: its title, and a text of which the start is shown. Not shown when quiet."""
        self.detail()
        self.detail(title)
        self.detail(clip(f'    "{text}"', WIDTH), dim=True)

    def table(self, rows: list[tuple[str, ...]]) -> None:
        """Rows in columns, the first row as their headings. Always shown."""
        widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
        for number, row in enumerate(rows):
            cells = [cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)]
            text = "  ".join(cells).rstrip()
            self._put(self._paint(text, _BOLD) if number == 0 else text)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def _put(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def width(text: str) -> int:
    """How many columns a terminal needs for `text`: East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char) for char in text)


def clip(text: str, columns: int) -> str:
    """`text` in one line of at most so many columns."""
    text = " ".join(text.split()) if not text.startswith(" ") else text.replace("\n", " ")
    if width(text) <= columns:
        return text
    while width(text) > columns - 3:
        text = text[: -max(1, (width(text) - columns + 3) // 2)]
    return text + "..."
