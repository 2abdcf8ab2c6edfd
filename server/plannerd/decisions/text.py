"""The input of a decision as plain text, for models that read nothing else.

One line per value, `key: value`; lists and maps indented below their key, keys inside maps sorted:

    request: I was charged twice
    order:
      id: 1182
      lines:
        -
          sku: A-7
    tags:
      - billing

The same input gives the same text, whatever order its maps came in, and an integral double reads like the
integer it equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plannerd.decisions.answers import Truncation
from plannerd.decisions.questions import Field
from plannerd.values import Image, Text, Value

_ELLIPSIS: Final = "..."
_WORD: Final = 20  # a cut moves back to the end of a word when there is one within so many characters
_EXACT: Final = 2.0**53  # doubles below it that are integral are exact integers


@dataclass(frozen=True, slots=True)
class RenderedInput:
    """An input as `text`; `truncation` says by how much it was cut, None if it was not."""

    text: str
    truncation: Truncation | None = None


class InputText:
    """The text of an input, made as far as it is needed.

    Args:
        fields: the input, in order; values of the supported types only.

    Raises:
        TypeError: a value is of a type that has no text.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._sizes = [_size(field.value, 2) for field in fields]
        # Names, their colons, and the line ends between fields: what remains when every value is cut away.
        self._frame = sum(len(field.name) + 1 for field in fields) + max(0, len(fields) - 1)
        self.size = self._frame + sum(self._sizes)
        """The length of the uncut text, in characters."""

    def cut(self, budget: int) -> RenderedInput:
        """The text in at most `budget` characters.

        Names of fields are never cut: when they alone exceed the budget, the text is the names without
        values, and longer than the budget. A value that was cut ends in `...`, after a whole word if
        possible. Half of the room for values is spread evenly, so that each keeps something; the rest goes
        to the values of the highest rank until they are complete, then to those of the next, evenly within a
        rank. A value never keeps less for having a higher rank.

        Args:
            budget: a number of characters, 0 or more.
        """
        if self.size <= budget:
            return RenderedInput("\n".join(f"{field.name}:{_head(field.value, self.size)}" for field in self._fields))
        text = "\n".join(
            f"{field.name}:{_head(field.value, size) if cut is None else cut}"
            for field, size, cut in zip(self._fields, self._sizes, self._cuts(budget), strict=True)
        )
        return RenderedInput(text, Truncation(original_chars=self.size, used_chars=len(text)))

    def cut_values(self, budget: int) -> list[str | None]:
        """For each field the text that its value is cut to, by the rules of `cut`; None where it stays whole.

        Args:
            budget: what all the text may have, as for `cut`.
        """
        return [None if cut is None else _unindented(cut) for cut in self._cuts(budget)]

    def _cuts(self, budget: int) -> list[str | None]:
        granted = _spread(self._sizes, [field.rank for field in self._fields], max(0, budget - self._frame))
        return [
            None if size <= room else _cut(field.value, room)
            for field, size, room in zip(self._fields, self._sizes, granted, strict=True)
        ]


# --- room for each value


def _spread(sizes: list[int], ranks: list[int], room: int) -> list[int]:
    """How many characters each value may keep, `room` in all at most."""
    even = room // 2 // len(sizes)
    granted = [min(size, even) for size in sizes]
    room -= sum(granted)
    for rank in sorted(set(ranks), reverse=True):
        members = [i for i, other in enumerate(ranks) if other == rank]
        wanted = [sizes[i] - granted[i] for i in members]
        level = _level(wanted, room)
        for i, want in zip(members, wanted, strict=True):
            granted[i] += min(want, level)
        if level < max(wanted):
            # What division leaves over stays unused: given to a lower rank, it could make that one keep more.
            break
        room -= sum(wanted)
    return granted


def _level(wanted: list[int], room: int) -> int:
    """The highest level at which `sum(min(want, level)) <= room`, up to the most that is wanted."""
    for count, want in zip(range(len(wanted), 0, -1), sorted(wanted), strict=True):
        if want * count > room:
            return room // count
        room -= want
    return max(wanted)


# --- the text of one value, as it follows `name:`


def _pieces(value: Value, pad: str) -> Iterator[str]:
    """The text of a value, piece by piece; `pad` begins each of its lines."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield f"{pad}{key}:"
            yield from _pieces(value[key], pad + "  ")
    elif isinstance(value, list) and value:
        for item in value:
            yield f"{pad}-"
            yield from _pieces(item, pad + "  ")
    else:
        yield " "
        yield _scalar(value)


def _size(value: Value, indent: int) -> int:
    """The length of all pieces of a value, without making them."""
    if isinstance(value, str):
        return 1 + len(value)
    if type(value) is int:  # not needed, but long lists have many
        return 1 + len(str(value))
    if isinstance(value, dict) and value:
        return sum([indent + 2 + len(key) + _size(item, indent + 2) for key, item in value.items()])
    if isinstance(value, list) and value:
        return (indent + 2) * len(value) + sum([_size(item, indent + 2) for item in value])
    return 1 + len(_scalar(value))


def _head(value: Value, room: int) -> str:
    """The first `room` characters of a value's text."""
    parts = []
    for piece in _pieces(value, "\n  "):
        parts.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(parts)


def _cut(value: Value, room: int) -> str:
    """The beginning of a value that does not fit into `room` characters, marked as cut."""
    keep = max(0, room - len(_ELLIPSIS))
    head = _head(value, keep + 1)  # one more, to see whether a word ends where it is cut
    start = max(1, keep - _WORD)
    end = max(head.rfind(" ", start), head.rfind("\n", start))
    return head[: end if end > 0 else keep] + _ELLIPSIS[:room]


def _unindented(text: str) -> str:
    """The text of a value as it stands alone, not behind a name."""
    return text.removeprefix(" ") if text.startswith(" ") else text.replace("\n  ", "\n").removeprefix("\n")


def _scalar(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Text):
        return value.text
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Image):
        return f"[{value.media_type}]"
    if isinstance(value, list | dict):
        return "[]" if isinstance(value, list) else "{}"
    raise TypeError(f"no text for a value of type {type(value).__name__}")
