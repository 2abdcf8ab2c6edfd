"""What the page about conditions shows of CEL is what happens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from plannerd.conditions.cel import WORK, compile_cel
from plannerd.conditions.cel import limits as cel_limits
from plannerd.conditions.cel.syntax import FUNCTIONS
from plannerd.errors import PlannerdError, Reason
from plannerd.values import ScopeValue

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "conditions.md").read_text("utf-8")


def section(name: str) -> str:
    """What follows a mark, up to the next empty line."""
    return PAGE.split(f"<!-- cel: {name} -->\n\n", 1)[1].split("\n\n", 1)[0]


def rows(name: str) -> list[list[str]]:
    """The cells of a table, without its head, code spans without their ticks."""
    lines = section(name).splitlines()[2:]
    cells = [re.split(r"(?<!\\) \| ", line.removeprefix("| ").removesuffix(" |")) for line in lines]
    return [[cell.replace("\\|", "|").strip("`") for cell in row] for row in cells]


def outcome(expression: str, scope: dict[str, ScopeValue]) -> str:
    try:
        return "yes" if compile_cel(expression, "cel").evaluate(scope.get, "an agent") else "no"
    except PlannerdError as error:
        return "error" if error.reason is Reason.CONDITION_FAILED else "refused"


@pytest.mark.parametrize(("expression", "scope", "holds"), rows("examples"))
def test_examples(expression: str, scope: str, holds: str) -> None:
    """Each example holds, does not hold, or fails, as the page says."""
    assert outcome(expression, json.loads(scope)) == holds


@pytest.mark.parametrize("row", rows("refused"), ids=lambda row: str(row[0]))
def test_refused(row: list[str]) -> None:
    """Each example of what is refused is refused."""
    assert outcome(row[1], {}) == "refused"


def test_functions() -> None:
    """The page names all functions, and no others."""
    assert re.findall(r"`(\w+)`", section("functions")) == list(FUNCTIONS)


def test_limits() -> None:
    """The page has the limits that are in force."""
    assert [int(limit.split()[0]) for _, limit in rows("limits")] == [
        cel_limits.MAX_CHARACTERS,
        cel_limits.MAX_NESTING,
        cel_limits.MAX_LOOPS,
        cel_limits.MAX_PATTERNS,
        cel_limits.MAX_PATTERN_CHARACTERS,
        WORK,
    ]


def sized(size: int) -> dict[str, ScopeValue]:
    return {
        "numbers": [1] * size,
        "others": [1] * size,
        "items": [{"id": 1, "open": True}] * size,
        "wanted": 2,
        "text": "a" * size,
    }


@pytest.mark.parametrize(("expression", "amount"), rows("work"))
def test_work(expression: str, amount: str) -> None:
    """The work of an evaluation is enough for what the page says, and not for a fifth more."""
    size = int(amount.split(maxsplit=1)[0])
    assert outcome(expression, sized(size - size // 20)) != "error"
    assert outcome(expression, sized(size + size // 5)) == "error"
