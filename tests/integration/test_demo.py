"""The demo, run as a user runs it."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import demo.__main__
from demo.data import tickets
from demo.screen import WIDTH, clip, width
from demo.system import agents
from tests.support.servers import ROOT, running_server


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end, with its output in a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def output() -> str:
    """What a short run prints."""
    ended = run_demo("--tickets", "6")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_run_shows_candidates_scores_and_why_it_stopped(output: str) -> None:
    """Each ticket shows which agents were candidates with which scores, what ran, and why the planner stopped."""
    assert output.count("\n[") == 6
    assert re.search(r"^ +1\. classify +0\.\d\d", output, re.MULTILINE)
    assert len(re.findall(r"^ +\d+\. stop: ", output, re.MULTILINE)) == 6
    assert re.search(r"over [a-z_]+ 0\.\d\d", output)


def test_a_run_ends_with_the_agreement_with_the_labels(output: str) -> None:
    """The summary counts agreement over all tickets and per agent, and names what went wrong."""
    counted = re.search(r"Exactly what a good clerk would do: (\d+) of 6 tickets", output)
    assert counted
    wrong = output.partition("Where the embedded model was wrong:")[2]
    assert len(re.findall(r"^  [a-z0-9-]+: ", wrong, re.MULTILINE)) == 6 - int(counted[1])
    for agent in agents():
        assert re.search(rf"^{agent.name} +\d+ +\d+ +\d+ +\d+$", output, re.MULTILINE)


def test_piped_output_is_plain_and_fits_80_columns(output: str) -> None:
    """In a pipe there are no escape sequences, and no line is wider than a terminal of 80 columns."""
    assert "\x1b" not in output
    assert [line for line in output.splitlines() if width(line) > WIDTH] == []


def test_the_tickets_are_many_and_sound() -> None:
    """There are at least 30 tickets in several languages, and their labels name agents that exist."""
    known = {agent.name for agent in agents()}
    assert len(tickets()) >= 30
    assert len({ticket.language for ticket in tickets()}) >= 5
    for ticket in tickets():
        assert set(ticket.needs) <= known, ticket.id
        assert ticket.ends in {"answered", "escalated", "closed", "unanswered"}, ticket.id
        assert ticket.why, ticket.id


def test_a_ticket_that_fails_makes_the_demo_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When decisions can't be made, each ticket says so and the exit code is not zero."""
    script = tmp_path / "no-answers.yaml"
    script.write_text("rules: {}\n", "utf-8")
    config = {"decisions": {"models": {"none": {"provider": "fixed", "file": str(script)}}, "default": "none"}}
    monkeypatch.setattr(demo.__main__, "running_server", functools.partial(running_server, config=config))
    monkeypatch.setattr(sys, "argv", ["demo", "--tickets", "2", "--quiet"])
    assert demo.__main__.main() == 1
    printed = capsys.readouterr().out
    assert printed.count("FAILED") == 2
    assert "2 tickets failed with an error." in printed


@pytest.mark.parametrize("text", ["short", "x" * 200, "注文した商品がまだ届きません。" * 20])
def test_a_cut_line_is_never_too_wide(text: str) -> None:
    """A line is cut to the columns it has, East Asian characters counting as two."""
    assert width(clip(text, 40)) <= 40
    assert clip("short", 40) == "short"


def test_thresholds_can_be_found_again() -> None:
    """`tune` finds no thresholds that are better for the tuning half than those of the demo."""
    tuned = run_demo("tune")
    assert tuned.returncode == 0, tuned.stdout + tuned.stderr
    assert tuned.stdout.count("the demo's among them") == 2


def test_tuning_counts_what_the_demo_does() -> None:
    """For the demo's own thresholds, `tune` counts in each half what a run of the demo counts."""
    some = ("--tickets", "30", "--quiet")
    counted = re.findall(
        r"^of the demo +[\d., ]+  (\d+) of \d+ +(\d+) of \d+$", run_demo("tune", *some).stdout, re.MULTILINE
    )
    scheduler = re.findall(r"^  (?:tuned on|never .*): (\d+) of \d+ exactly", run_demo(*some).stdout, re.MULTILINE)
    cascade = re.findall(r"(?:tuned on|tuning): (\d+) of", run_demo("cascade", *some).stdout)
    assert counted == [tuple(scheduler), tuple(cascade)]


@pytest.mark.parametrize("planner", ["bdi", "cascade", "router"])
def test_every_planner_has_a_demo(planner: str) -> None:
    """The demo of each other planner runs to its summary, within 80 columns."""
    ended = run_demo(planner, "--tickets", "8")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "\nSummary\n" in ended.stdout
    assert [line for line in ended.stdout.splitlines() if width(line) > WIDTH] == []


def test_the_bdi_demo_interrupts_and_goes_on() -> None:
    """What is more important comes first, and nobody runs twice."""
    ended = run_demo("bdi")
    order = "count_stock, order_goods, pick, ship, evacuate, check_halls, fill_shelf"
    assert order in " ".join(ended.stdout.split())
    assert "Nobody ran twice" in ended.stdout
