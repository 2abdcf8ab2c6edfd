"""What an expression may be, and what it may cost.

Expressions come from clients and run on the event loop, so each of them is bounded twice: in its form, when
it is compiled, and in its work, when it is evaluated. Work is counted in units of about a tenth of a
microsecond; the prices are upper bounds, found by measuring (`benchmarks/cel.py`).
"""

from __future__ import annotations

from typing import Final

MAX_CHARACTERS: Final = 2_048
"""Length of an expression."""

MAX_NESTING: Final = 32
"""Levels of an expression, as its parser counts them: brackets, and links of a chain like `a + b + c`."""

MAX_LOOPS: Final = 3
"""How deep all(), exists() and exists_one() may be nested in each other."""

MAX_PATTERNS: Final = 4
"""Calls of matches() in an expression."""

MAX_PATTERN_CHARACTERS: Final = 256
"""Length of the patterns of an expression, all together."""

MAX_PATTERN_SIZE: Final = 4_000
"""Instructions that one pattern compiles to."""

MAX_PATTERN_MEMORY: Final = 64 * 1024
"""Bytes that a compiled pattern may take, its cache of states included."""

WORK: Final = 100_000
"""Units of work of one evaluation."""

# The prices. A node of the expression costs one unit each time it is evaluated; what follows comes on top.

WORK_PER_OPERATION: Final = 2
"""A function or an operator with its checks."""

WORK_PER_CONVERSION: Final = 5
"""int(), double(), string(), bytes() and bool()."""

WORK_PER_ENTRY: Final = 2
"""An entry of a map that stands in the expression."""

WORK_PER_LOOP: Final = 8
"""Starting all(), exists() or exists_one()."""

WORK_PER_ERROR: Final = 20
"""An error that `&&`, `||`, all() or exists() puts aside."""

WORK_PER_ITEM_COMPARED: Final = 8
CHARACTERS_COMPARED_PER_UNIT: Final = 512
CHARACTERS_MADE_PER_UNIT: Final = 16
ITEMS_MADE_PER_UNIT: Final = 8


def price_of_search(text: int, part: int) -> int:
    """The work of looking for a text of `part` characters in one of `text` characters.

    CPython searches in linear time where the texts are long, else in up to the product of their lengths.
    """
    if text >= 30_000 or (text >= 2_000 and part >= 100):
        return text // 20
    return text * (16 + part) // 320


def price_of_match(size: int, pattern: int) -> int:
    """The work of looking for a pattern of `pattern` instructions in a text of `size` bytes.

    RE2 takes linear time in both at worst, and less than that where they are small enough for its faster ways.
    """
    steps = size * (pattern + 4)
    return 40 + steps // (30 if steps <= 200_000 else 10)
