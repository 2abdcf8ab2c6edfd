"""Answers from a script."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, YesNoAnswer
from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.model import DecisionModel, ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.decisions.script import Script, load_script, parse_script
from plannerd.errors import PlannerdError, Reason

GOAL = YesNo("goal", "Has the goal been reached?")
ROUTE = Choice("route", "Which agent?", (Option("billing"), Option("support")))
USE = Scale("use", "How useful?", ("low", "high"))


def ask(model: DecisionModel, *questions: Question) -> Mapping[str, Answer]:
    return asyncio.run(model.decide(DecisionRequest((Field("request", "hello"),), questions), None)).answers


def failure(model: DecisionModel, *questions: Question) -> PlannerdError:
    with pytest.raises(PlannerdError) as caught:
        ask(model, *questions)
    return caught.value


@pytest.mark.parametrize(
    ("question", "written", "answer"),
    [
        (GOAL, 0.9, YesNoAnswer(0.9)),
        (GOAL, 1, YesNoAnswer(1)),
        (GOAL, {"probability": 0.9, "confidence": 0.5}, YesNoAnswer(0.9, 0.5)),
        (USE, 0.9, ScaleAnswer(0.9)),
        (USE, {"mean": 1, "probabilities": [0, 1], "confidence": 1}, ScaleAnswer(1, (0, 1), 1)),
        (ROUTE, "support", ChoiceAnswer("support")),
        (ROUTE, {"value": "support", "probabilities": {"support": 1}}, ChoiceAnswer("support", {"support": 1})),
        (ROUTE, {"refuse": "no"}, Refusal("no")),
    ],
)
def test_forms(question: Question, written: object, answer: Answer) -> None:
    """An answer may be written in a short form or with all its fields."""
    assert ask(FixedModel({"rules": {question.name: written}}), question) == {question.name: answer}


def test_answers_of_the_wrong_kind() -> None:
    """Answers are handed out as written, also where they don't fit the question or their range."""
    model = FixedModel({"rules": {"goal": "yes", "route": 0.5, "use": {"mean": math.inf}}})
    assert ask(model, GOAL, ROUTE, USE) == {
        "goal": ChoiceAnswer("yes"),
        "route": YesNoAnswer(0.5),
        "use": ScaleAnswer(math.inf),
    }


def test_steps_in_order() -> None:
    """Each request takes the next step, also one that fails."""
    model = FixedModel(
        {"steps": [{"goal": 0.1}, {"error": "DECISION_MODEL_UNAVAILABLE", "retry_after": 2}, {"goal": 0.3}]}
    )
    assert ask(model, GOAL) == {"goal": YesNoAnswer(0.1)}
    error = failure(model, GOAL)
    assert (error.reason, error.retry_after) == (Reason.DECISION_MODEL_UNAVAILABLE, 2)
    assert ask(model, GOAL) == {"goal": YesNoAnswer(0.3)}


def test_script_used_up() -> None:
    """A question after the last step, or one that its step leaves out, is an error with its name."""
    model = FixedModel({"steps": [{"goal": 0.1}]})
    left_out = failure(model, GOAL, USE)
    assert (left_out.reason, left_out.metadata["question"]) == (Reason.DECISION_INVALID_ANSWER, "use")
    used_up = failure(model, GOAL)
    assert used_up.metadata == {"question": "goal", "request": "2"}
    assert "1 steps" in used_up.message


def test_steps_before_rules_before_defaults() -> None:
    """A step comes before a rule, a rule before a default, and both go on after the last step."""
    model = FixedModel({
        "steps": [{"goal": 0.1}],
        "rules": {"goal": 0.2, "use": 1},
        "defaults": {"yes_no": 0.3, "choice": "billing", "scale": 0},
    })  # fmt: skip
    other = YesNo("other", "?")
    rest = {"use": ScaleAnswer(1), "route": ChoiceAnswer("billing"), "other": YesNoAnswer(0.3)}
    assert ask(model, GOAL, USE, ROUTE, other) == {"goal": YesNoAnswer(0.1), **rest}
    assert ask(model, GOAL, USE, ROUTE, other) == {"goal": YesNoAnswer(0.2), **rest}


def test_error_as_an_answer() -> None:
    """An error as the answer to a question fails the request that asks it, and no other."""
    model = FixedModel({"rules": {"goal": {"error": "DECISION_QUEUE_FULL", "message": "busy"}, "use": 1}})
    assert ask(model, USE)
    error = failure(model, USE, GOAL)
    assert (error.reason, error.message) == (Reason.DECISION_QUEUE_FULL, "busy")


def test_question_called_error() -> None:
    """A question may be called `error`, as long as its answer is not a bare text."""
    question = Choice("error", "?", ROUTE.options)
    model = FixedModel({"steps": [{"error": {"value": "billing"}}]})
    assert ask(model, question) == {"error": ChoiceAnswer("billing")}


def test_steps_that_name_the_model() -> None:
    """A step may say how the model names itself; questions called `model` and `answers` stay questions."""
    model = FixedModel(
        {
            "model": "sage-1",
            "steps": [
                {"model": "sage-2", "answers": {"goal": 0.5}},
                {"goal": 0.5},
                {"model": 0.25, "answers": {"probability": 0.75}},
                {"model": "billing", "answers": 0.75},
            ],
        }
    )
    named = [asyncio.run(model.decide(DecisionRequest((Field("a", 1),), (GOAL,)), None)).model for _ in range(2)]
    assert named == ["sage-2", "sage-1"]
    questions = (YesNo("model", "?"), YesNo("answers", "?"))
    assert ask(model, *questions) == {"model": YesNoAnswer(0.25), "answers": YesNoAnswer(0.75)}
    assert ask(model, Choice("model", "?", ROUTE.options), questions[1]) == {
        "model": ChoiceAnswer("billing"),
        "answers": YesNoAnswer(0.75),
    }


def test_asked() -> None:
    """The latest requests are remembered, no more than wanted."""
    model = FixedModel({"defaults": {"yes_no": 1}}, remember=2)
    for name in "abc":
        ask(model, YesNo(name, "?"))
    assert [request.questions[0].name for request in model.asked] == ["b", "c"]


def test_name_and_limits() -> None:
    """A script may name its model and set limits; without, the model is `fixed` and has none."""
    assert (FixedModel({}).name, FixedModel({}).limits) == ("fixed", ModelLimits(images=True))
    model = FixedModel({"model": "m-1", "limits": {"questions": 1, "options": 2, "levels": 3, "images": False}})
    assert model.limits == ModelLimits(1, 2, 3, images=False)
    response = asyncio.run(FixedModel({"model": "m-1"}).decide(DecisionRequest(()), None))
    assert response.model == "m-1"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"step": []}, "script: step: "),
        ({"steps": [{}, {"goal": True}]}, "script: steps[1].goal: "),
        ({"steps": [{"goal": {"probability": "x"}}]}, "script: steps[0].goal.probability: "),
        ({"steps": [{"goal": {"probability": 1, "mean": 1}}]}, "script: steps[0].goal.mean: "),
        ({"steps": [{"error": "NO_SUCH_REASON"}]}, "script: steps[0].error: "),
        ({"steps": [{"error": "INTERNAL", "goal": 1}]}, "script: steps[0].goal: "),
        ({"rules": {"goal": {}}}, "script: rules.goal: Input should be a number, a text, or a map with one of "),
        ({"rules": {"goal": None}}, "script: rules.goal: "),
        ({"rules": {"goal": [1]}}, "script: rules.goal: "),
        ({"rules": {1: 1}}, "script: rules"),
        ({"defaults": {"yes": 1}}, "script: defaults.yes: "),
        ({"limits": {"levels": 1}}, "script: limits.levels: "),
        ({"model": ""}, "script: model: "),
        ([], "script: "),
    ],
)
def test_problems(written: Any, problem: str) -> None:
    """A script that can't be understood is refused with the place of each problem."""
    with pytest.raises(ValueError, match="script") as caught:
        parse_script(written)
    assert str(caught.value).startswith(problem)


YAML = """
model: replay
steps:
  - goal: 0.1
  - error: DECISION_MODEL_UNAVAILABLE
rules:
  route: {value: billing, probabilities: {billing: 0.75, support: 0.25}}
"""
JSON = """{
\t"model": "replay",
\t"steps": [{"goal": 0.1}, {"error": "DECISION_MODEL_UNAVAILABLE"}],
\t"rules": {"route": {"value": "billing", "probabilities": {"billing": 0.75, "support": 0.25}}}
}"""


def test_files(tmp_path: Path) -> None:
    """YAML and JSON files give the same script."""
    yaml_file, json_file = tmp_path / "script.yaml", tmp_path / "script.json"
    yaml_file.write_text(YAML, encoding="utf-8")
    json_file.write_text(JSON, encoding="utf-8")
    assert load_script(yaml_file) == load_script(json_file)
    model = FixedModel(load_script(yaml_file))
    assert model.name == "replay"
    assert ask(model, GOAL) == {"goal": YesNoAnswer(0.1)}


@pytest.mark.parametrize("name", ["script.yaml", "script.json"])
@pytest.mark.parametrize("content", [b"steps: {", b"[1]", b"- a", b"!!python/object/apply:os.getcwd []", b"\xff\xfe"])
def test_bad_files(tmp_path: Path, name: str, content: bytes) -> None:
    """A file that is no script is refused with its path, and nothing in it is executed."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=name):
        load_script(file)


def test_the_documented_script(tmp_path: Path) -> None:
    """The script in the documentation is valid and says what the documentation says."""
    page = (Path(__file__).parents[3] / "docs" / "decision-models.md").read_text(encoding="utf-8")
    script = next(block for block in page.split("```yaml\n") if block.startswith("model: fixed")).split("```")[0]
    file = tmp_path / "script.yaml"
    file.write_text(script, encoding="utf-8")
    model = FixedModel(load_script(file))
    assert ask(model, GOAL, USE) == {"goal": YesNoAnswer(0.05), "use": ScaleAnswer(1)}
    assert failure(model, GOAL).retry_after == 1.5
    assert ask(model, GOAL, YesNo("sales", "?")) == {
        "goal": YesNoAnswer(0.95, 0.9),
        "sales": Refusal("I do not do sales"),
    }
    response = asyncio.run(model.decide(DecisionRequest((Field("request", "hello"),), (GOAL,)), None))
    assert (response.model, response.answers["goal"]) == ("fixed-2", YesNoAnswer(0.97))


def test_empty_file(tmp_path: Path) -> None:
    """An empty file is an empty script."""
    file = tmp_path / "script.yaml"
    file.write_text("", encoding="utf-8")
    assert load_script(file) == Script()
