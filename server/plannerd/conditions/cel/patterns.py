"""Patterns of matches(): RE2, which takes linear time whatever the pattern; this module alone imports it."""

from __future__ import annotations

import re2  # type: ignore[import-untyped]

from plannerd.conditions.cel.limits import MAX_PATTERN_MEMORY, MAX_PATTERN_SIZE, price_of_match
from plannerd.conditions.cel.operations import Failure, Value, Work, no_such_operation
from plannerd.conditions.cel.syntax import Refused, printable


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
            raise Refused(f"the pattern is refused by RE2: {printable(problem)}", offset) from None
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
        # A character has at least one byte; what the others cost follows when they are known.
        size = len(text)
        work.spend(price_of_match(size, self._size))
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            raise Failure("the string is no valid Unicode", offset) from None
        if len(encoded) > size:
            work.spend(price_of_match(len(encoded) - size, self._size))
        return self._compiled.search(encoded) is not None
