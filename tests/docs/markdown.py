"""Reads Markdown as far as the tests of the documentation need it: fenced blocks, links, headings, code spans."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_MARK: Final = re.compile(
    r"^<!-- snippet: (?P<kind>[a-z]+)(?: (?P<detail>[^\n]*?))?(?:\n(?P<body>.*?)\n?)? *-->$", re.DOTALL
)
_LINK: Final = re.compile(
    r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)"
)
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


@dataclass(frozen=True, slots=True)
class Mark:
    """A comment `<!-- snippet: KIND DETAIL -->` before a fenced block; `body` are its further lines."""

    kind: str
    detail: str
    body: str
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its lines, the number of the first one, and the marks before it."""

    path: Path
    language: str
    text: str
    line: int
    marks: tuple[Mark, ...] = ()

    @property
    def where(self) -> str:
        """`docs/concepts.md:12`."""
        return f"{shown(self.path)}:{self.line}"

    def mark(self, kind: str) -> Mark | None:
        """The mark of this kind, if there is one."""
        return next((mark for mark in self.marks if mark.kind == kind), None)


@dataclass(slots=True)
class Page:
    """A Markdown file."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)
    """The lines outside of fenced blocks, with their numbers."""

    @property
    def links(self) -> Iterator[tuple[int, str]]:
        """The targets of all links and images, with their lines."""
        for number, line in self.prose:
            for found in _LINK.finditer(_SPAN.sub("``", line)):
                yield number, found["target"] or found["image"]

    @property
    def spans(self) -> Iterator[tuple[int, str]]:
        """What stands in single backticks, with its lines."""
        for number, line in self.prose:
            for text in _SPAN.findall(line):
                yield number, text

    @property
    def anchors(self) -> set[str]:
        """The anchors that GitHub gives to the headings."""
        found: set[str] = set()
        for _, line in self.prose:
            if heading := _HEADING.match(line):
                anchor = _anchor(heading[1])
                count = 1
                while (name := anchor if count == 1 else f"{anchor}-{count - 1}") in found:
                    count += 1
                found.add(name)
        return found


def shown(path: Path) -> str:
    """A path as messages have it."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def markdown_files() -> list[Path]:
    """Every Markdown file of the repository that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())


def read(path: Path) -> Page:
    """Read a page.

    Raises:
        ValueError: a fenced block is not closed, or a mark stands before none.
    """
    page = Page(path)
    marks: list[Mark] = []
    lines = path.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        opening = _FENCE.match(line)
        if opening is not None:
            end = _closing(lines, number, opening["fence"])
            if end is None:
                raise ValueError(f"{shown(path)}:{number + 1}: the fenced block is not closed")
            indent = len(opening["indent"])
            text = "".join(f"{inner[min(indent, _indent(inner)) :]}\n" for inner in lines[number + 1 : end])
            info = opening["info"].split()
            page.blocks.append(Block(path, info[0] if info else "", text, number + 2, tuple(marks)))
            marks = []
            number = end + 1
            continue
        if line.strip().startswith("<!-- snippet:"):
            end = number
            while "-->" not in lines[end]:
                end += 1
            mark = _MARK.match("\n".join(lines[number : end + 1]).strip())
            if mark is None:
                raise ValueError(f"{shown(path)}:{number + 1}: this is no mark: {line}")
            marks.append(Mark(mark["kind"], mark["detail"] or "", mark["body"] or "", number + 1))
            number = end + 1
            continue
        if line.strip() and marks:
            raise ValueError(f"{shown(path)}:{marks[0].line}: the mark stands before no fenced block")
        page.prose.append((number + 1, line))
        number += 1
    if marks:
        raise ValueError(f"{shown(path)}:{marks[0].line}: the mark stands before no fenced block")
    return page


def _closing(lines: list[str], start: int, fence: str) -> int | None:
    for number in range(start + 1, len(lines)):
        text = lines[number].strip()
        if text.startswith(fence) and not text.strip(fence[0]):
            return number
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
