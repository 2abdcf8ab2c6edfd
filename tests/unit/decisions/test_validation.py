"""Requests and answers are checked by the same rules for every model."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.decisions.validation import (
    check_answers,
    check_limits,
    check_question_limits,
    check_request,
    contradictory_means,
)
from plannerd.errors import PlannerdError, Reason
from plannerd.values import PENDING, Image, Opaque, Text

YES_NO = YesNo("goal", "Has the goal been reached?")
CHOICE = Choice("route", "Which agent?", (Option("billing", "invoices"), Option("support")))
SCALE = Scale("use", "How useful?", ("USELESS", "MARGINAL", "USEFUL", "ESSENTIAL"))
INPUT = (Field("request", "hello"),)


def request(*questions: Question, **fields: Any) -> DecisionRequest:
    return DecisionRequest(tuple(Field(name, value) for name, value in fields.items()) or INPUT, questions)


def refused(*questions: Question, **fields: Any) -> PlannerdError:
    with pytest.raises(PlannerdError) as caught:
        check_request(request(*questions, **fields))
    return caught.value


# --- requests


def test_valid_request() -> None:
    """Every kind of question, about every type of value, is a valid request."""
    fields = {
        "nothing": None,
        "yes": True,
        "count": 3,
        "share": 0.5,
        "text": "",
        "list": [None, [1, {"deep": Image("image/png", b"")}]],
        "map": {"": {"a": Text("t")}},
        "content": Text("hello"),
        "photo": Image("image/png", b"\x89"),
    }
    check_request(request(YES_NO, CHOICE, SCALE, **fields))


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (YesNo(" ", "text"), "questions[0].name"),
        (YesNo("goal", "\u3000"), "questions[0].text"),
        (Choice("c", "text", (Option("a"),)), "questions[0].options"),
        (Choice("c", "text", (Option("a"), Option("\t"))), "questions[0].options[1].name"),
        (Choice("c", "text", (Option("a"), Option("b"), Option("a"))), "questions[0].options[2].name"),
        (Scale("s", "text", ("low",)), "questions[0].levels"),
        (Scale("s", "text", ("low", "")), "questions[0].levels[1]"),
    ],
)
def test_invalid_question(question: Question, field: str) -> None:
    """A question that can't be asked is an invalid request whose violation names the field."""
    error = refused(question)
    assert error.reason is Reason.INVALID_REQUEST
    assert [violation.field for violation in error.violations] == [field]
    assert field in error.message


def test_no_question() -> None:
    """A request without questions is invalid."""
    assert [violation.field for violation in refused().violations] == ["questions"]


def test_same_names() -> None:
    """Names of questions and of input fields are unique, and all violations are reported at once."""
    with pytest.raises(PlannerdError) as caught:
        check_request(DecisionRequest((Field("a", 1), Field("a", 2)), (YES_NO, YES_NO)))
    assert [violation.field for violation in caught.value.violations] == ["questions[1].name", "input[1].name"]


def test_many_violations() -> None:
    """The number of reported violations is bounded, however wrong a request is."""
    assert len(refused(*[YesNo("", "")] * 1000).violations) == 20


def test_empty_input() -> None:
    """There is nothing to decide on without a field, and something with one that is null."""
    with pytest.raises(PlannerdError) as caught:
        check_request(DecisionRequest((), (YES_NO,)))
    assert caught.value.reason is Reason.EMPTY_DECISION_INPUT
    check_request(request(YES_NO, argument=None))


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        (b"\x00", "order", "bytes"),
        (Opaque(b"tag"), "order", "opaque"),
        (PENDING, "order", "pending"),
        (math.nan, "order", "not finite"),
        ({"lines": [1, {"photo": -math.inf}]}, "order.lines[1].photo", "not finite"),
        ({"lines": [[], [b""]]}, "order.lines[1][0]", "bytes"),
        ({"a": {1: "x"}}, "order.a", "keys"),
        ((1, 2), "order", "tuple"),
        (object(), "order", "object"),
    ],
)
def test_unsupported_input(value: Any, path: str, kind: str) -> None:
    """A value of another type is refused with its path, its type and the supported types."""
    error = refused(YES_NO, fine="x", order=value)
    assert error.reason is Reason.UNSUPPORTED_INPUT
    assert error.metadata == {"key": path}
    assert f"'{path}'" in error.message
    assert kind in error.message
    assert "finite double" in error.message


# --- limits


@pytest.mark.parametrize(
    ("limits", "limit", "allowed", "requested"),
    [
        (ModelLimits(questions=2), "questions", "2", "3"),
        (ModelLimits(options=1), "options", "1", "2"),
        (ModelLimits(levels=3), "levels", "3", "4"),
    ],
)
def test_limit_of_questions(limits: ModelLimits, limit: str, allowed: str, requested: str) -> None:
    """A request over a limit is refused with the limit's name, what is allowed, and what was asked for."""
    questions = (YES_NO, CHOICE, SCALE)
    with pytest.raises(PlannerdError) as caught:
        check_limits(request(*questions), limits, "tiny")
    with pytest.raises(PlannerdError) as without_input:
        check_question_limits(questions, limits, "tiny")
    error = caught.value
    facts = {"limit": limit, "allowed": allowed, "requested": requested, "model": "tiny"}
    assert error.reason is Reason.DECISION_MODEL_LIMIT
    assert error.metadata.items() >= facts.items()
    assert all(fact in error.message for fact in facts.values())
    assert without_input.value.metadata == error.metadata


def test_limits_reached() -> None:
    """A request exactly at the limits fits."""
    limits = ModelLimits(questions=3, options=2, levels=4, images=True)
    check_limits(request(YES_NO, CHOICE, SCALE, photo=Image("image/png", b"")), limits, "tiny")


def test_image_to_a_model_without() -> None:
    """An image anywhere in the input is over the limit of a model that takes none, and its key is named."""
    with pytest.raises(PlannerdError) as caught:
        check_limits(request(YES_NO, parts=[Text("a"), Image("image/png", b"")]), ModelLimits(), "tiny")
    assert caught.value.reason is Reason.DECISION_MODEL_LIMIT
    assert caught.value.metadata == {"limit": "images", "allowed": "0", "key": "parts[1]", "model": "tiny"}


# --- answers

VALID: list[tuple[Question, Answer]] = [
    (YES_NO, YesNoAnswer(0)),
    (YES_NO, YesNoAnswer(1, confidence=-3.5)),
    (CHOICE, ChoiceAnswer("support")),
    (CHOICE, ChoiceAnswer("billing", {"billing": 0.2, "support": 0.8}, 0.1)),
    (CHOICE, ChoiceAnswer("billing", {"billing": 1.0})),
    (SCALE, ScaleAnswer(3)),
    (SCALE, ScaleAnswer(0.5, (0.5, 0.5, 0, 0), confidence=-0.2)),
    (SCALE, ScaleAnswer(1, (0.255, 0.255, 0.255, 0.255))),
    (YES_NO, Refusal("I'd rather not")),
    (SCALE, Refusal()),
]


@pytest.mark.parametrize(("question", "answer"), VALID)
def test_valid_answer(question: Question, answer: Answer) -> None:
    """A valid answer, or a refusal, comes back as it is."""
    assert check_answers([question], {question.name: answer}) == {question.name: answer}


NUMBERS = [math.nan, math.inf, -math.inf, -0.001, True, "0.5", None, 10**400]
INVALID: list[tuple[Question, Answer]] = [
    *[(YES_NO, YesNoAnswer(bad)) for bad in [*NUMBERS, 1.001]],  # type: ignore[arg-type]
    *[(SCALE, ScaleAnswer(bad)) for bad in [*NUMBERS, 3.001]],  # type: ignore[arg-type]
    *[(CHOICE, ChoiceAnswer("billing", {"billing": 1, "support": bad})) for bad in NUMBERS],  # type: ignore[dict-item]
    *[(SCALE, ScaleAnswer(1, (1, 0, 0, bad))) for bad in NUMBERS],  # type: ignore[arg-type]
    *[(YES_NO, YesNoAnswer(0.5, bad)) for bad in (math.nan, math.inf, True, "high", 10**400)],  # type: ignore[arg-type]
    (YES_NO, ChoiceAnswer("yes")),
    (CHOICE, YesNoAnswer(0.5)),
    (SCALE, YesNoAnswer(0.5)),
    (CHOICE, ChoiceAnswer("Billing")),
    (CHOICE, ChoiceAnswer("sales", {"billing": 0.5, "support": 0.5})),
    (CHOICE, ChoiceAnswer("billing", {"billing": 0.5, "support": 0.5, "sales": 0})),
    (CHOICE, ChoiceAnswer("billing", {})),
    (CHOICE, ChoiceAnswer("billing", {"billing": 0.9})),
    (CHOICE, ChoiceAnswer("billing", {"billing": 0, "support": 0})),
    (SCALE, ScaleAnswer(1, (0.5, 0.5))),
    (SCALE, ScaleAnswer(1, (0.2,) * 5)),
    (SCALE, ScaleAnswer(1, (0, 0, 0, 0))),
    (SCALE, ScaleAnswer(1, (0.3, 0.3, 0.3, 0.3))),
]


@pytest.mark.parametrize(("question", "answer"), INVALID)
def test_invalid_answer(question: Question, answer: Answer) -> None:
    """An answer that breaks a rule is an error with the question's name, never a default value."""
    with pytest.raises(PlannerdError) as caught:
        check_answers([question], {question.name: answer})
    assert caught.value.reason is Reason.DECISION_INVALID_ANSWER
    assert caught.value.metadata == {"question": question.name}
    assert question.name in caught.value.message


def test_nothing_repeated() -> None:
    """The error does not repeat what the model said, since that may be content of the input."""
    for answer in (ChoiceAnswer("SECRET"), ChoiceAnswer("billing", {"SECRET": 1})):
        with pytest.raises(PlannerdError) as caught:
            check_answers([CHOICE], {CHOICE.name: answer})
        assert "SECRET" not in caught.value.message + repr(caught.value.metadata)


def test_missing_answer() -> None:
    """Every question needs an answer; those that were not asked are dropped, and the order is the questions'."""
    answers: dict[str, Answer] = {"use": ScaleAnswer(1), "extra": YesNoAnswer(7), "goal": YesNoAnswer(0.5)}
    assert list(check_answers([YES_NO, SCALE], answers)) == ["goal", "use"]
    with pytest.raises(PlannerdError, match="'route' is missing"):
        check_answers([YES_NO, CHOICE], answers)


@settings(deadline=None)
@given(st.floats(-1e-6, 1e-6))
def test_clamping(error: float) -> None:
    """A number within 1e-6 of its range is clamped to the range, not refused."""
    questions = (YES_NO, SCALE, CHOICE)
    checked = check_answers(
        questions,
        {
            "goal": YesNoAnswer(1 + error),
            "use": ScaleAnswer(error, (1 + error, error, 0, 0)),
            "route": ChoiceAnswer("billing", {"billing": 1 + error, "support": error}),
        },
    )
    yes_no, scale, choice = checked["goal"], checked["use"], checked["route"]
    assert isinstance(yes_no, YesNoAnswer)
    assert isinstance(scale, ScaleAnswer)
    assert isinstance(choice, ChoiceAnswer)
    assert scale.probabilities is not None
    assert choice.probabilities is not None
    assert 0 <= yes_no.probability <= 1
    assert 0 <= scale.mean <= 3
    for probability in (*scale.probabilities, *choice.probabilities.values()):
        assert 0 <= probability <= 1


@pytest.mark.parametrize(
    ("count", "total", "valid"),
    [
        (2, 1.0100005, True),
        (2, 1.01001, False),
        (2, 0.9899995, True),
        (2, 0.98999, False),
        (10, 1.05, True),
        (10, 1.051, False),
        (50, 1.25, True),
        (200, 1.25, True),
        (200, 0.75, True),
        (200, 1.251, False),
        (200, 0.749, False),
        (200, 0, False),
    ],
)
def test_rounded_probabilities(count: int, total: float, valid: bool) -> None:
    """Probabilities of n options or levels pass while their sum is within `min(0.25, 0.005 n)` of 1."""
    names = [f"o{i}" for i in range(count)]
    choice = Choice("c", "text", tuple(map(Option, names)))
    scale = Scale("s", "text", tuple(names))
    answers: dict[str, Answer] = {
        "c": ChoiceAnswer("o0", dict.fromkeys(names, total / count)),
        "s": ScaleAnswer(0, (total / count,) * count),
    }
    for question in (choice, scale):
        if valid:
            assert check_answers([question], answers) == {question.name: answers[question.name]}
        else:
            with pytest.raises(PlannerdError, match="sum to"):
                check_answers([question], answers)


@pytest.mark.parametrize(
    ("mean", "probabilities", "contradictory"),
    [
        (3.0, None, False),
        (1.5, (0.25, 0.25, 0.25, 0.25), False),
        (1.99, (0.0, 0.33, 0.33, 0.33), False),
        (1.535, (0.25, 0.25, 0.25, 0.25), False),
        (1.536, (0.25, 0.25, 0.25, 0.25), True),
        (2.0, (0.1, 0.2, 0.4, 0.3), True),
        (3.0, (0.2, 0.2, 0.2, 0.4), True),
    ],
)
def test_means_that_contradict_their_probabilities(
    mean: float, probabilities: tuple[float, ...] | None, contradictory: bool
) -> None:
    """A mean that is further from the expectation of its probabilities than rounding explains is found."""
    answers = check_answers([SCALE], {"use": ScaleAnswer(mean, probabilities)})
    assert contradictory_means([SCALE], answers) == (["use"] if contradictory else [])
