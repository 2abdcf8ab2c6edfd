"""The quality benchmark: its examples are sound, and its figures are right for models whose answers are known."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.quality.asking import Answers, Run, Texts
from benchmarks.quality.command import main, measure, spread
from benchmarks.quality.data import FOLDER, URGENCY, Example, load
from benchmarks.quality.report import JUDGED, PICKS, Figures, figures, lines
from plannerd.decisions.sparrow import library
from tests.support.servers import ROOT

EXAMPLES = load()


def perfect(example: Example) -> Answers:
    """What a model says that agrees with every label."""
    labels = example.labels
    scores = {agent: float(agent in example.suitable) for agent in example.domain.agents}
    scores[labels.agent] += 0.0 if not labels.also else 1e-9  # the best of several that may be asked
    return Answers(labels.agent, scores, scores, float(labels.urgency), float(labels.reached), float(labels.correct))


def constant(example: Example) -> Answers:
    """What a model says that says the same to everything."""
    scores = dict.fromkeys(example.domain.agents, 0.5)
    return Answers(next(iter(scores)), scores, scores, 1.0, 0.5, 0.5)


def test_there_are_enough_examples_of_each_kind() -> None:
    """More than 100 requests in several domains; labels are balanced, and all levels occur."""
    assert len(EXAMPLES) >= 100
    assert len({id(example.domain) for example in EXAMPLES}) >= 6
    assert len({example.name for example in EXAMPLES}) == len(EXAMPLES)
    labels = [example.labels for example in EXAMPLES]
    assert 0.4 < sum(one.reached for one in labels) / len(labels) < 0.6
    assert 0.4 < sum(one.correct for one in labels) / len(labels) < 0.6
    urgencies = Counter(one.urgency for one in labels)
    assert len(urgencies) == len(URGENCY)
    assert min(urgencies.values()) >= 20


def test_as_many_agents_are_unsuitable_as_suitable() -> None:
    """Yes/no questions about agents are balanced, and no agent is both."""
    for example in EXAMPLES:
        assert len(set(example.unsuitable)) == len(example.suitable), example.name
        assert not set(example.unsuitable) & set(example.suitable), example.name


def test_a_model_that_knows_all_labels_is_perfect() -> None:
    """100 % everywhere, areas of 1, no error on the scale, thresholds without any cost."""
    found = figures(EXAMPLES, Run([perfect(example) for example in EXAMPLES]))
    assert {pick.value for pick in found.picks.values()} == {1.0}
    for one in found.judged.values():
        assert one is not None
        assert (one.auc, one.brier, one.at_half.value, one.held_out.value) == pytest.approx((1, 0, 1, 1), abs=1e-9)
        assert (one.best.wrong_yes.hits, one.best.missed_yes.hits) == (0, 0)
    assert found.urgency is not None
    assert (found.urgency.correlation, found.urgency.error) == pytest.approx((1, 0))


def test_a_model_that_says_always_the_same_is_at_chance() -> None:
    """It finds the right agent as often as that agent is declared first; areas are 1/2, correlation 0."""
    found = figures(EXAMPLES, Run([constant(example) for example in EXAMPLES]))
    first = sum(example.labels.agent == next(iter(example.domain.agents)) for example in EXAMPLES)
    assert {pick.hits for pick in found.picks.values()} == {first}
    assert abs(first / len(EXAMPLES) - found.chance) < 0.05
    for one in found.judged.values():
        assert one is not None
        assert (one.auc, one.brier) == pytest.approx((0.5, 0.25))
        assert one.careful is None
    assert found.urgency is not None
    assert found.urgency.correlation == 0


# --- the command, with real models


def settings_file(folder: Path, **models: dict[str, Any]) -> Path:
    """A settings file with these models."""
    path = folder / "plannerd.yaml"
    path.write_text(yaml.safe_dump({"decisions": {"models": models}}), "utf-8")
    return path


def scripted(folder: Path, examples: list[Example]) -> dict[str, Any]:
    """A model that answers from a file, and agrees with the labels of these examples when asked in order."""
    steps: list[dict[str, Any]] = []
    for example in examples:
        labels, agents = example.labels, example.domain.agents
        suitable = {agent: float(agent in example.suitable) for agent in agents}
        steps += [
            {"choice": labels.agent},
            suitable,
            {agent: 3.0 * (agent == labels.agent) for agent in agents},
            {"urgency": float(labels.urgency)},
            {"goal": float(labels.reached)},
            {"grade": float(labels.correct)},
        ]
    path = folder / "answers.yaml"
    path.write_text(yaml.safe_dump({"model": "oracle", "steps": steps}), "utf-8")
    return {"provider": "fixed", "file": str(path)}


def test_the_command_measures_a_model_of_a_settings_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model whose script agrees with every label gets 100 % through settings, provider and validation."""
    config = settings_file(tmp_path, oracle=scripted(tmp_path, EXAMPLES[:20]), sparrow={"provider": "sparrow"})
    first = tmp_path / "few"
    first.mkdir()
    domain = EXAMPLES[0].name.partition("/")[0]
    text = (FOLDER / f"{domain}.yaml").read_text("utf-8")
    (first / f"{domain}.yaml").write_text(text, "utf-8")
    arguments = ["--config", str(config), "--model", "oracle", "--examples", str(first), "--parallel", "1"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "Model oracle (oracle), 19 requests, 1 domains" in printed
    assert "one choice question                     19   19   100%" in printed
    assert "rank correlation 1.00, mean error 0.00 levels" in printed


def test_the_embedded_model_is_better_than_chance_at_choices(capsys: pytest.CaptureFixture[str]) -> None:
    """On a part of the examples, with no settings at all, it finds more agents than chance does."""
    assert main(["--limit", "60"]) == 0
    printed = capsys.readouterr().out
    found = next(line for line in printed.splitlines() if "one choice question" in line).split()
    assert int(found[4]) == 60
    assert int(found[3]) > 60 / 6 * 1.5
    assert "FAILED" not in printed


def test_documented_figures(tmp_path: Path) -> None:
    """The figures of the embedded models on their page are those that a run gives."""
    page = (ROOT / "docs" / "decision-models.md").read_text("utf-8")
    config = settings_file(
        tmp_path, **{name: {"provider": "sparrow", "model": name} for name in library.bundled_models()}
    )
    runs = asyncio.run(measure(config, library.bundled_models(), EXAMPLES, Texts(), 4))
    for column, (_, run) in enumerate(runs):
        found = figures(EXAMPLES, run)
        for key, what in PICKS.items():
            written = re.match(r"(\d+) of (\d+)", _row(page, what)[column])
            assert written is not None
            assert abs(int(written[1]) - found.picks[key].hits) <= 2, what
            assert int(written[2]) == found.picks[key].total
        for key, what in JUDGED.items():
            one = found.judged[key]
            assert one is not None
            assert float(_row(page, what)[column].split()[0]) == pytest.approx(one.auc, abs=0.015), what
        assert found.urgency is not None
        assert float(_row(page, "how urgent?")[column]) == pytest.approx(found.urgency.correlation, abs=0.015)


def _row(page: str, name: str) -> list[str]:
    """The cells of a row of a table."""
    [line] = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_failures_are_counted_and_make_the_command_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that fails is reported by reason, and the exit code says so."""
    path = tmp_path / "broken.yaml"
    path.write_text("defaults: {yes_no: 0.5, scale: 1}\n", "utf-8")
    config = settings_file(tmp_path, broken={"provider": "fixed", "file": str(path)})
    assert main(["--config", str(config), "--limit", "8"]) == 1
    assert "FAILED: 8 requests with DECISION_INVALID_ANSWER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--model", "nobody"], "there is no decision model 'nobody'"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--examples", "/no/such/folder"], "there is no *.yaml with examples"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model, a file or a folder that is not there is named, without a traceback."""
    assert main(arguments) == 2
    assert problem in capsys.readouterr().err


def test_questions_can_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """Another text of a question changes the answers to it, and to no other."""
    assert main(["--limit", "40"]) == 0
    before = capsys.readouterr().out.splitlines()
    assert main(["--limit", "40", "--grade", "Parcels and refunds"]) == 0
    after = capsys.readouterr().out.splitlines()
    changed = [a for a, b in zip(before, after, strict=True) if a != b and "median" not in a]
    assert changed
    assert all("grade" in line or "is the answer correct?" in line for line in changed)


def test_a_bad_example_is_refused_with_its_file(tmp_path: Path) -> None:
    """An example that names an unknown agent is refused, with its id and its file."""
    labels = {"id": "x", "request": "r", "agent": "c", "urgency": 0, "done": "d", "reached": True, "answer": "a"}
    domain = {"goal": "g", "agents": {"a": "A", "b": "B"}, "examples": [labels | {"correct": False}]}
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(domain), "utf-8")
    with pytest.raises(ValueError, match=r"odd\.yaml[\s\S]*x: no agent is called c"):
        load(tmp_path)


def test_a_limit_takes_examples_from_all_over() -> None:
    """As many as wanted, from several domains, none twice."""
    chosen = spread(EXAMPLES, 20)
    assert len({example.name for example in chosen}) == 20
    assert len({id(example.domain) for example in chosen}) >= 6
    assert spread(EXAMPLES, None) == EXAMPLES


def test_a_report_of_nothing_says_so() -> None:
    """A model that answered nothing has a report without figures, not an error."""
    run = Run([Answers() for _ in EXAMPLES])
    found: Figures = figures(EXAMPLES, run)
    printed = "\n".join(lines("mute", EXAMPLES, run, found))
    assert "no answer" in printed
    assert printed.count("too few answers of both kinds") == 3
