"""The keys of a store in the order in which they came, so that a listing can go on where it was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from plannerd.invocations.stores.store import Key

_SPARE = 1024


class Order:
    """Gives each key a number, which it keeps as long as it is there.

    The numbers only grow, so who goes through them misses nothing that is there all the time and sees nothing twice,
    whatever comes and goes meanwhile. Finding a place takes a moment however many keys there are.
    """

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._sequence: list[tuple[int, Key]] = []
        self._next = 1

    def add(self, key: Key) -> None:
        """`key` is there; if it was before, it keeps its number."""
        if key not in self._numbers:
            self._numbers[key] = self._next
            self._sequence.append((self._next, key))
            self._next += 1

    def remove(self, key: Key) -> None:
        """`key` is gone."""
        if self._numbers.pop(key, None) is not None and len(self._sequence) > 2 * len(self._numbers) + _SPARE:
            self._sequence = [(number, key) for number, key in self._sequence if self._numbers.get(key) == number]

    def after(self, number: int) -> Iterator[tuple[int, Key]]:
        """The keys that came after that number, with theirs; nothing may come or go meanwhile."""
        for place in range(bisect_right(self._sequence, number, key=lambda entry: entry[0]), len(self._sequence)):
            found, key = self._sequence[place]
            if self._numbers.get(key) == found:
                yield found, key
