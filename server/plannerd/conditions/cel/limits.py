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

MAX_PATTERN_CHARACTERS: Final = 256
"""Length of the patterns of an expression, all together."""

MAX_PATTERN_SIZE: Final = 500
"""Instructions that one pattern compiles to."""

MAX_PATTERN_MEMORY: Final = 256 * 1024
"""Bytes that a compiled pattern may take, its cache of states included."""

WORK: Final = 100_000
"""Units of work of one evaluation."""

# The prices, in units. What costs little and happens once per node of the expression is in the node's own unit.

WORK_PER_ERROR: Final = 20
"""An error that `&&`, `||`, all() or exists() puts aside."""

CHARACTERS_COMPARED_PER_UNIT: Final = 512
CHARACTERS_SEARCHED_PER_UNIT: Final = 64
CHARACTERS_MADE_PER_UNIT: Final = 16
PATTERN_STEPS_PER_UNIT: Final = 32
"""One step is one instruction of a pattern, tried at one byte of the text."""
