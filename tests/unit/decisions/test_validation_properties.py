"""Whatever a model answers: what is accepted is sound, and honest answers are accepted."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, Usage, YesNoAnswer
from plannerd.decisions.questions import Choice, Option, Question, Scale, YesNo
from plannerd.decisions.validation import check_answers, checked_usage
from plannerd.errors import PlannerdError, Reason

MOST_ROUNDED = 50
"""Up to here `0.005 n` is what rounding to two digits can add up to; beyond it 0.25 is the bound."""


def choice_of(count: int) -> Choice:
    return Choice("c", "Which?", tuple(Option(f"o{i}") for i in range(count)))


def scale_of(count: int) -> Scale:
    return Scale("s", "How much?", tuple(f"level {i}" for i in range(count)))


def both(probabilities: list[float]) -> tuple[tuple[Question, ...], dict[str, Answer]]:
    """A choice and a scale, answered with these probabilities."""
    count = len(probabilities)
    named = {f"o{i}": probability for i, probability in enumerate(probabilities)}
    return (choice_of(count), scale_of(count)), {
        "c": ChoiceAnswer("o0", named),
        "s": ScaleAnswer(0, tuple(probabilities)),
    }


weights = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1e-9, 1.0]), min_size=2, max_size=MOST_ROUNDED)


@settings(deadline=None)
@given(weights.filter(lambda found: math.fsum(found) > 1e-6), st.sampled_from([None, 6, 4, 3, 2]))
def test_a_distribution_is_accepted(found: list[float], digits: int | None) -> None:
    """A distribution over up to 50 options or levels is accepted as it is and rounded to two digits or more."""
    total = math.fsum(found)
    probabilities = [weight / total for weight in found]
    if digits is not None:
        probabilities = [round(probability, digits) for probability in probabilities]
    questions, answers = both(probabilities)
    assert check_answers(questions, answers) == answers


@pytest.mark.parametrize(
    ("probabilities", "accepted"),
    [
        ([0.03] * 40, True),  # 40 times 0.025 rounded up: 1.2
        ([0.02] * 40, True),  # and rounded to even: 0.8
        ([0.01] * 40, False),
        ([0.04] * 40, False),
        ([0.0] * 200, False),
        ([0.01] * 200, False),  # 200 times 0.005 rounded up: 2
        ([0.01] * 100, True),
        ([1.0] + [0.0] * 199, True),
        ([0.0] * 2, False),
        ([0.5, 0.5 + 0.01 + 9e-7], True),
        ([0.5, 0.5 + 0.01 + 2e-6], False),
    ],
)
def test_rounding(probabilities: list[float], accepted: bool) -> None:
    """Rounded probabilities pass within the bound; many zeros, and twice too much, are no distribution."""
    questions, answers = both(probabilities)
    for question in questions:
        if accepted:
            assert check_answers([question], answers)
        else:
            with pytest.raises(PlannerdError) as caught:
                check_answers([question], answers)
            assert caught.value.reason is Reason.DECISION_INVALID_ANSWER


numbers: st.SearchStrategy[Any] = (
    st.floats()
    | st.floats(-0.1, 1.1)
    | st.sampled_from([0, 1, 1 + 9e-7, 1 + 2e-6, -9e-7, True, None, "0.5", 10**400, [1], b"1"])
)
names = st.sampled_from(["o0", "o1", "o2", "O0", "", "\ud800", None, 1, ["o0"]])
hashable_names = st.sampled_from(["o0", "o1", "o2", "O0", "", 1, None])
confidences = st.none() | numbers
answers_of_any_kind: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just(0.5),
    st.builds(YesNoAnswer, numbers, confidences),
    st.builds(
        ChoiceAnswer, names, st.none() | numbers | st.dictionaries(hashable_names, numbers, max_size=4), confidences
    ),
    st.builds(ScaleAnswer, numbers, st.none() | numbers | st.lists(numbers, max_size=4).map(tuple), confidences),
    st.builds(Refusal, st.text(st.characters(), max_size=5)),
)


def within(value: float, high: float) -> bool:
    return type(value) is float and 0 <= value <= high


@settings(deadline=None, max_examples=500)
@given(st.sampled_from([YesNo("q", "Is it?"), choice_of(3), scale_of(3)]), answers_of_any_kind)
def test_what_is_accepted_is_sound(question: Question, answer: Any) -> None:
    """Any answer is either an invalid one, by its own reason, or has finite numbers in their ranges."""
    refused = None
    checked: Answer | None = None
    try:
        checked = check_answers([question], {question.name: answer})[question.name]
    except PlannerdError as error:
        refused = (error.reason, error.metadata)
    if checked is None:
        assert refused == (Reason.DECISION_INVALID_ANSWER, {"question": question.name})
        return
    match question, checked:
        case _, Refusal(message):
            message.encode()
            return
        case YesNo(), YesNoAnswer(probability=probability):
            assert within(probability, 1)
        case Choice(), ChoiceAnswer(value=value, probabilities=probabilities):
            assert value in {"o0", "o1", "o2"}
            assert probabilities is None or probabilities.keys() <= {"o0", "o1", "o2"}
            assert probabilities is None or all(within(item, 1) for item in probabilities.values())
            assert probabilities is None or abs(sum(probabilities.values()) - 1) < 0.0151
        case Scale(), ScaleAnswer(mean=mean, probabilities=levels):
            assert within(mean, 2)
            assert levels is None or len(levels) == 3
            assert levels is None or all(within(item, 1) for item in levels)
            assert levels is None or abs(sum(levels) - 1) < 0.0151
        case _:
            pytest.fail(f"{checked} passes as an answer to {question}")
    assert checked.confidence is None or math.isfinite(checked.confidence)


def test_a_refusal_can_be_sent() -> None:
    """The message of a refusal is cut, and what is no Unicode in it is replaced."""
    checked = check_answers([choice_of(2)], {"c": Refusal("no\ud800" + "x" * 5000)})["c"]
    assert checked == Refusal("no?" + "x" * 997)


@pytest.mark.parametrize("count", [-1, 2**63, 1.5, True, "7"])
def test_impossible_usage(count: Any) -> None:
    """A number of tokens that can't be one counts as unknown; it decides nothing, so it fails nothing."""
    assert checked_usage(Usage(count, 5)) == Usage(None, 5)
    assert checked_usage(Usage(0, count)) == Usage(0, None)
