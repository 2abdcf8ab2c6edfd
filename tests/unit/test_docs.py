"""What the documentation says about errors and settings is what the code does."""

import json
import re
from pathlib import Path

import pytest

from plannerd.errors import Reason
from plannerd.services.failures import CODES
from plannerd.settings import reference_table
from plannerd.telemetry.logging import CallLog
from tests.support.services import captured_log

DOCS = Path(__file__).resolve().parents[2] / "docs"

ROW = re.compile(
    r"^\| `(?P<reason>[A-Z_]+)` \| (?P<code>[A-Z_]+) \| (?P<when>[^|]+) \| (?P<client>[^|]+) \|$", re.MULTILINE
)


def rows() -> list[re.Match[str]]:
    return list(ROW.finditer((DOCS / "errors.md").read_text("utf-8")))


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_is_documented_once(reason: Reason) -> None:
    """The table of errors has one row for each reason, with its code, when it happens and what a client does."""
    [row] = [row for row in rows() if row["reason"] == reason.value]
    assert row["code"] == CODES[reason].name
    assert row["when"].strip().endswith(".")
    assert row["client"].strip().endswith(".")


def test_no_other_reason_is_documented() -> None:
    """The table has no reason that is not there."""
    assert {row["reason"] for row in rows()} == {reason.value for reason in Reason}


def test_the_settings_are_documented() -> None:
    """The page about operations has the table that `plannerd config reference` prints."""
    assert reference_table() in (DOCS / "operations.md").read_text("utf-8"), (
        "docs/operations.md must have the output of `plannerd config reference`"
    )


def test_the_line_of_a_call_is_documented() -> None:
    """The page about operations shows the line of a call with the fields that it has, in their order."""
    text = (DOCS / "operations.md").read_text("utf-8")
    [shown] = [json.loads(line) for line in text.splitlines() if line.startswith('{"timestamp"')]
    with captured_log() as stream:
        CallLog().call(
            shown["method"], shown["code"], shown["duration_ms"] / 1000, invocation_id=shown["invocation_id"]
        )
    written = json.loads(stream.getvalue())
    assert list(written) == list(shown)
    assert {**written, "timestamp": shown["timestamp"]} == shown
    assert len(written["timestamp"]) == len(shown["timestamp"])
