"""Thousands of calls that are given up at random moments, against a real server; the long form is a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.cancellations import Report, measure, problems

CALLS = 3000


@pytest.fixture(scope="module")
def report() -> Report:
    return measure(CALLS, seed=7)


def test_no_invocation_is_stuck_or_led_astray(report: Report) -> None:
    """Every invocation goes exactly the way of an undisturbed one, and each call has one line in the log at most."""
    assert list(problems(report)) == []
    assert report.invocations > 100


def test_calls_were_given_up_at_all_moments(report: Report) -> None:
    """Calls were cancelled, and overdue, before they were seen, while they were decided, and after the commit."""
    seen = report.lines["CANCELLED"] + report.lines["DEADLINE_EXCEEDED"]
    assert seen > 100
    assert report.unheard > 10
    assert report.given_up - seen - report.unheard > 100


def test_memory_stays_flat(report: Report) -> None:
    """After the warm-up the server's memory does not grow with the number of calls that were given up."""
    assert report.growth < 1.05
