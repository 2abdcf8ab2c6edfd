"""Questions and answers as messages, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd.decisions.answers import (
    Answer,
    ChoiceAnswer,
    DecisionResponse,
    Refusal,
    ScaleAnswer,
    Truncation,
    Usage,
    YesNoAnswer,
)
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.decisions.wire import decode_request, decode_response, encode_request, encode_response
from plannerd.errors import PlannerdError, Reason
from plannerd_protos.planner.v1 import decision_pb2
from tests.support.values import TEXTS, VALUES

NUMBERS = st.floats(0, 1)
OPTIONAL = st.none() | NUMBERS
QUESTIONS: st.SearchStrategy[Question] = st.one_of(
    st.builds(YesNo, TEXTS, TEXTS, st.none() | TEXTS, st.none() | TEXTS),
    st.builds(
        Choice, TEXTS, TEXTS, st.lists(st.builds(Option, TEXTS, st.none() | TEXTS), min_size=2, max_size=4).map(tuple)
    ),
    st.builds(Scale, TEXTS, TEXTS, st.lists(TEXTS, min_size=2, max_size=4).map(tuple)),
)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(YesNoAnswer, NUMBERS, OPTIONAL),
    st.builds(ChoiceAnswer, TEXTS, st.none() | st.dictionaries(TEXTS, NUMBERS, min_size=1, max_size=4), OPTIONAL),
    st.builds(ScaleAnswer, NUMBERS, st.none() | st.lists(NUMBERS, min_size=1, max_size=4).map(tuple), OPTIONAL),
    st.builds(Refusal, TEXTS),
)
FIELDS = st.builds(Field, TEXTS, VALUES, st.integers(-(2**31), 2**31 - 1))
COUNTS = st.none() | st.integers(0, 2**63 - 1)


def by_name(questions: list[Question]) -> tuple[Question, ...]:
    return tuple({question.name: question for question in questions}.values())


@given(
    st.lists(
        st.builds(Field, TEXTS, VALUES, st.integers(-(2**31), 2**31 - 1)),
        unique_by=lambda field: field.name,
        max_size=4,
    ).map(tuple),
    st.lists(QUESTIONS, min_size=1, max_size=4).map(by_name),
)
def test_a_request_survives(fields: tuple[Field, ...], questions: tuple[Question, ...]) -> None:
    """What one plannerd asks is what another one is asked, with every value and rank, text and image."""
    request = DecisionRequest(fields, questions)
    sent = encode_request(request, "theirs").SerializeToString()
    received = decision_pb2.DecideRequest.FromString(sent)
    assert received.model == "theirs"
    assert decode_request(received) == request


@given(
    st.dictionaries(TEXTS, ANSWERS, min_size=1, max_size=4),
    st.builds(Usage, COUNTS, COUNTS),
    st.integers(0, 1_000_000),
    st.none() | st.integers(0, 99).map(lambda used: Truncation(100, used)),
)
def test_a_response_survives(
    answers: dict[str, Answer], usage: Usage, retries: int, truncation: Truncation | None
) -> None:
    """What one plannerd answers is what another one is answered: answers, model, usage, retries, truncation."""
    request = DecisionRequest((), tuple(YesNo(name, "?") for name in answers))
    response = DecisionResponse(answers, "theirs", usage, retries, truncation)
    sent = encode_response(request, response).SerializeToString()
    assert decode_response(decision_pb2.DecideResponse.FromString(sent), "unnamed") == response


def test_numbers_that_can_not_be_are_unknown() -> None:
    """Negative or absurd retries and a truncation that grew decide nothing and are left out."""
    message = decision_pb2.DecideResponse(
        retries=-5, truncation=decision_pb2.Truncation(original_chars=5, used_chars=9)
    )
    response = decode_response(message, "unnamed")
    assert (response.retries, response.truncation) == (0, None)
    assert decode_response(decision_pb2.DecideResponse(retries=2**31 - 1), "unnamed").retries == 1_000_000


def test_a_model_without_a_name_has_one() -> None:
    """A model that does not name itself is called something, so that explanations are not silent about it."""
    assert decode_response(decision_pb2.DecideResponse(), "unnamed").model == "unnamed"


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([decision_pb2.Answer(question="q")], "neither a known kind nor a refusal"),
        (
            [decision_pb2.Answer(question="q", yes_no=decision_pb2.YesNoAnswer(probability=p)) for p in (0.1, 0.9)],
            "came twice",
        ),
    ],
)
def test_answers_that_say_nothing_clear_are_invalid(answers: list[decision_pb2.Answer], problem: str) -> None:
    """An answer of no kind, and two answers to one question, are DECISION_INVALID_ANSWER with the question."""
    with pytest.raises(PlannerdError, match=problem) as raised:
        decode_response(decision_pb2.DecideResponse(answers=answers), "unnamed")
    assert raised.value.reason is Reason.DECISION_INVALID_ANSWER
    assert raised.value.metadata == {"question": "q"}
