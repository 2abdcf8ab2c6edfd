"""Questions and answers in the System One wire format."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, Usage, YesNoAnswer
from plannerd.decisions.questions import Choice, Option, Question, Scale, YesNo
from plannerd.decisions.systemone.wire import Reply, read_answers, wire_names, wire_questions
from plannerd.decisions.validation import check_answers, checked_usage
from plannerd.errors import PlannerdError, Reason

GOAL = YesNo("goal", "Reached?")
ROUTE = Choice("decision-agent", "Who?", (Option("billing", "money"), Option("Support")))
USE = Scale("use", "How useful?", ("no", "somewhat", "very"))


def test_questions() -> None:
    """Each kind of question has its type, its text and its criteria; what was not said is not sent."""
    asked = (
        GOAL,
        YesNo("both", "Good?", yes_when="it is", no_when="it is not"),
        YesNo("one", "Good?", yes_when="it is"),
        ROUTE,
        USE,
    )
    assert wire_questions(asked) == {
        "goal": {"type": "noul", "instructions": "Reached?"},
        "both": {"type": "noul", "instructions": "Good?", "criteria": {"true": "it is", "false": "it is not"}},
        "one": {"type": "noul", "instructions": "Good?", "criteria": {"true": "it is"}},
        "decision_agent": {
            "type": "choice",
            "instructions": "Who?",
            "criteria": {"billing": "money", "Support": None},
        },
        "use": {"type": "score", "instructions": "How useful?", "criteria": ["no", "somewhat", "very"]},
    }
    assert list(wire_questions(asked)) == ["goal", "both", "one", "decision_agent", "use"]
    assert list(wire_questions([ROUTE])["decision_agent"]["criteria"]) == ["billing", "Support"]  # type: ignore[typeddict-item, arg-type]


def test_names_that_some_hosts_refuse_are_replaced() -> None:
    """Names on the wire are words, different from each other, whatever the questions are called."""
    names = ["plain_1", "a b", "a-b", "a_b", "größe", "x" * 100, "x" * 101, "$", "_"]
    found = wire_names([YesNo(name, "?") for name in names])
    assert found == ["plain_1", "a_b_2", "a_b_3", "a_b", "gr__e", "x" * 64, "x" * 64 + "_2", "__2", "_"]


@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_names_are_unique(names: list[str]) -> None:
    """No two questions share a name on the wire."""
    found = wire_names([YesNo(name, "?") for name in names])
    assert len(set(found)) == len(names)


def read(question: Question, answer: Any) -> Answer:
    """What `answer` is read as, once it has passed the checks of all models."""
    [name] = wire_names([question])
    answers = read_answers([question], Reply(answers={name: answer}))
    return check_answers([question], answers)[question.name]


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (GOAL, {"type": "noul", "noul": 0.25}, YesNoAnswer(0.25)),
        (GOAL, {"type": "noul", "noul": 1, "confidence": 0.5, "x_more": []}, YesNoAnswer(1, 0.5)),
        (ROUTE, {"type": "choice", "choice": "Support"}, ChoiceAnswer("Support")),
        (
            ROUTE,
            {"type": "choice", "choice": "billing", "probabilities": {"billing": 1}, "confidence": None},
            ChoiceAnswer("billing", {"billing": 1}),
        ),
        (USE, {"type": "score", "score": 1.5}, ScaleAnswer(1.5)),
        (
            USE,
            {"type": "score", "score": 2, "probabilities": {"2": 1, "0": 0, "1": 0}, "confidence": 0.9},
            ScaleAnswer(2, (0, 0, 1), 0.9),
        ),
        (GOAL, {"type": "refusal", "message": "no"}, Refusal("no")),
        (ROUTE, {"type": "refusal"}, Refusal()),
        (USE, {"type": "refusal", "message": {"not": "text"}}, Refusal()),
    ],
)
def test_answers(question: Question, answer: Any, expected: Answer) -> None:
    """Answers are read as they are meant; probabilities and confidences may be absent."""
    assert read(question, answer) == expected


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        (GOAL, None, "is missing"),
        (GOAL, "yes", "is no object"),
        (GOAL, 0.9, "is no object"),
        (GOAL, [0.9], "is no object"),
        (GOAL, {}, "is not of the type 'noul'"),
        (GOAL, {"noul": 0.9}, "is not of the type 'noul'"),
        (GOAL, {"type": "boolean", "noul": 0.9}, "is not of the type 'noul'"),
        (GOAL, {"type": ["noul"], "noul": 0.9}, "is not of the type 'noul'"),
        (GOAL, {"type": "choice", "choice": "yes"}, "is not of the type 'noul'"),
        (GOAL, {"type": "noul"}, "has no number"),
        (GOAL, {"type": "noul", "noul": "0.9"}, "has no number"),
        (GOAL, {"type": "noul", "noul": True}, "has no number"),
        (GOAL, {"type": "noul", "noul": {"p": 1}}, "has no number"),
        (GOAL, {"type": "noul", "noul": 1.1}, "not within"),
        (GOAL, {"type": "noul", "noul": float("nan")}, "not within"),
        (GOAL, {"type": "noul", "noul": 10**400}, "not within"),
        (GOAL, {"type": "noul", "noul": 1, "confidence": "high"}, "has no number"),
        (ROUTE, {"type": "choice"}, "names no option"),
        (ROUTE, {"type": "choice", "choice": 0}, "names no option"),
        (ROUTE, {"type": "choice", "choice": ["billing"]}, "names no option"),
        (ROUTE, {"type": "choice", "choice": "support"}, "not offered"),
        (ROUTE, {"type": "choice", "choice": "billing", "probabilities": [0.5, 0.5]}, "no object"),
        (ROUTE, {"type": "choice", "choice": "billing", "probabilities": {"support": 1}}, "not offered"),
        (ROUTE, {"type": "choice", "choice": "billing", "probabilities": {"billing": "1"}}, "has no number"),
        (ROUTE, {"type": "choice", "choice": "billing", "probabilities": {}}, "sum to"),
        (USE, {"type": "score"}, "has no number"),
        (USE, {"type": "score", "score": 2.1}, "not within"),
        (USE, {"type": "score", "score": 1, "probabilities": {"0": 0.5, "1": 0.5}}, "other levels"),
        (USE, {"type": "score", "score": 1, "probabilities": {"1": 0, "2": 1, "3": 0}}, "other levels"),
        (USE, {"type": "score", "score": 1, "probabilities": {"0": 0, "1": 1, "2": None}}, "has no number"),
    ],
)
def test_what_is_no_answer(question: Question, answer: Any, problem: str) -> None:
    """What can't be an answer is an error that names the question and repeats nothing of it."""
    with pytest.raises(PlannerdError, match=problem) as caught:
        read(question, answer)
    assert caught.value.reason is Reason.DECISION_INVALID_ANSWER
    assert caught.value.metadata == {"question": question.name}


@pytest.mark.parametrize("answers", [None, [], "text", 7, {}])
def test_a_response_without_answers(answers: Any) -> None:
    """Without answers each is missing."""
    with pytest.raises(PlannerdError, match="'goal' is missing"):
        check_answers([GOAL], read_answers([GOAL], Reply(answers=answers)))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ("many", Usage()),
        ([1, 2], Usage()),
        ({}, Usage()),
        ({"input_tokens": 3, "output_tokens": 0}, Usage(3, 0)),
        ({"input_tokens": 3.0, "output_tokens": 1.5}, Usage(3, None)),
        ({"input_tokens": True, "output_tokens": "4"}, Usage()),
        ({"input_tokens": -1, "output_tokens": 2**63}, Usage()),
        ({"input_tokens": float("inf"), "output_tokens": float("nan")}, Usage()),
    ],
)
def test_usage(usage: Any, expected: Usage) -> None:
    """Tokens are kept where they are whole numbers; anything else is no reason to fail."""
    assert checked_usage(Reply(usage=usage).counts) == expected


@pytest.mark.parametrize(("model", "expected"), [("jev-1", "jev-1"), (None, ""), (7, ""), (["x"], "")])
def test_the_model_that_answered(model: Any, expected: str) -> None:
    """The model is what the host calls it, and empty where it says nothing."""
    assert Reply(model=model).resolved == expected
