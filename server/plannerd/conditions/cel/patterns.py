"""Patterns of matches(): RE2, which takes linear time whatever the pattern; this module alone imports it."""

from __future__ import annotations

from typing import Final

import re2  # type: ignore[import-untyped]

from plannerd.conditions.cel.limits import MAX_PATTERN_MEMORY, MAX_PATTERN_SIZE, PATTERN_STEPS_PER_UNIT
from plannerd.conditions.cel.operations import Failure, Value, Work, no_such_operation
from plannerd.conditions.cel.syntax import Refused

_START: Final = 64
"""What starting a search costs, as if the text were so much longer."""


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY
    options.never_capture = True
    options.log_errors = False
    return options


class Pattern:
    """A compiled pattern.

    Args:
        text: the pattern.
        offset: where it is in the expression.

    Raises:
        Refused: it is no pattern, or a large one.
    """

    __slots__ = ("_compiled", "_size")

    def __init__(self, text: str, offset: int) -> None:
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            reason = error.args[0] if error.args else b""
            problem = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise Refused(f"the pattern is refused by RE2: {problem[:100]}", offset) from None
        self._size: int = self._compiled.programsize
        if self._size > MAX_PATTERN_SIZE:
            raise Refused(
                f"the pattern is too large: {self._size} instructions of at most {MAX_PATTERN_SIZE}; "
                "repeat less, and use smaller classes of characters",
                offset,
            )

    def found(self, text: Value, work: Work, offset: int) -> bool:
        """Whether it matches any part of `text`."""
        if type(text) is not str:
            raise no_such_operation("matches()", offset, text)
        # A character has at least one byte; the price of the others follows when they are known.
        self._pay(len(text) + _START, work)
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            raise Failure("the string is no valid Unicode", offset) from None
        self._pay(len(encoded) - len(text), work)
        return self._compiled.search(encoded) is not None

    def _pay(self, size: int, work: Work) -> None:
        work.spend(size * (self._size + 4) // PATTERN_STEPS_PER_UNIT)
