"""docs/rules.md: every row names cases that exist, and every planner has its table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.conformance.cases import load
from tests.docs.markdown import ROOT, read

RULES: Final = ROOT / "docs" / "rules.md"
PLANNERS: Final = ("scheduler", "router", "cascade", "bdi")
STRONGER: Final = "**stronger:**"
CASES: Final = {case.id: case.path for case in load()}

_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


class Row(NamedTuple):
    """One row: the planner whose section it is in, what it says, and the links of its second cell."""

    planner: str
    says: str
    links: list[tuple[str, str]]


def rows() -> list[Row]:
    """The rows of all tables, without their heads."""
    found: list[Row] = []
    planner = ""
    for _, line in read(RULES).prose:
        if line.startswith("## "):
            planner = line.removeprefix("## ").lower()
        elif line.startswith("| ") and not line.startswith(("| what it says", "| ---")):
            says, links = line.strip("|").split(" | ")
            found.append(Row(planner, says.strip(), _LINK.findall(links)))
    return found


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_has_rows(planner: str) -> None:
    """Each planner has rows, also some that say what plannerd promises beyond the documentation."""
    says = [row.says for row in rows() if row.planner == planner]
    assert [text for text in says if text.startswith(STRONGER)]
    assert [text for text in says if not text.startswith(STRONGER)]
    assert not says[0].startswith(STRONGER)


def test_every_row_names_cases() -> None:
    """No row is without a case, and every case is one of its planner."""
    assert not [row.says for row in rows() if not row.links]
    assert not [
        name for row in rows() for name, _ in row.links if row.planner in PLANNERS and name.split("/")[0] != row.planner
    ]
    assert {row.planner for row in rows()} == set(PLANNERS)


def test_every_case_exists_in_the_file_that_is_linked() -> None:
    """Every id is that of a case, and its link leads to the file that the case is in."""
    wrong = [
        name
        for row in rows()
        for name, target in row.links
        if name not in CASES or (RULES.parent / Path(target)).resolve() != CASES[name]
    ]
    assert not wrong


def test_no_rule_is_said_twice() -> None:
    """A planner has each rule once, and a row has each case once."""
    said = Counter((row.planner, row.says) for row in rows() if not row.says.startswith(STRONGER))
    assert not [rule for rule, count in said.items() if count > 1]
    assert not [row.says for row in rows() if len(set(row.links)) != len(row.links)]
