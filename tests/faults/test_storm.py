"""Short storms in the gate; `make faults` runs long ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.harness import Options, Outcome
from tests.faults.report import calmly, run
from tests.faults.stores import STORES

OPTIONS = Options(cases=49, seed=20261201, pause=0.4, events=16)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same cases without faults."""
    return calmly(OPTIONS, tmp_path_factory.mktemp("faults") / "undisturbed")


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_no_promise_is_broken_in_a_storm(store: str, calm: Outcome, tmp_path: Path) -> None:
    """While servers and clients die and connections break, every invocation ends as if nothing had happened."""
    report = run(replace(OPTIONS, store=STORES[store]), calm, tmp_path / "storm")
    assert not report.wrong, report.text()
    if store == "redis":
        assert len(report.commits) > 0.7 * report.account.fates["kept"], report.text()
    assert {"replica-killed", "replica-drained", "client-killed"} <= set(report.storm.faults), report.text()


def test_a_server_that_forgets_is_found_out(calm: Outcome, tmp_path: Path) -> None:
    """A server that loses writes and decides again is noticed, although every result is right."""
    # Chance decides whether a fault meets one of the lost writes, so there may be several storms.
    reports = []
    for number in range(5):
        options = replace(OPTIONS, cases=14, pause=2.0, seed=OPTIONS.seed + number, server="tests.faults.broken_server")
        reports.append(run(options, calm, tmp_path / f"storm-{number}"))
        if reports[-1].account.unexplained:
            break
    report = reports[-1]
    assert report.account.unexplained, report.text()
    assert "To run it again: make faults" in report.text()
