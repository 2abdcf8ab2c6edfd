"""Questions and answers in the System One wire format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from typesafe_sdk import ChoiceModel, NoulCriteria, NoulModel, QuestionModel, ScoreModel

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, Usage, YesNoAnswer
from plannerd.decisions.questions import Choice, Question, Scale, YesNo
from plannerd.decisions.validation import invalid_answer

_UNSAFE: Final = re.compile("[^A-Za-z0-9_]")
_LONGEST_NAME: Final = 64  # characters of a question's name on the wire


class Reply(BaseModel):
    """A response as it comes: only its frame is checked here. What else is in it is left out of account."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: Any = None
    answers: Any = None
    usage: Any = None

    @property
    def resolved(self) -> str:
        """The model as it names itself; empty where it does not."""
        return _text(self.model)

    @property
    def counts(self) -> Usage:
        """The tokens as they come, 3.0 as 3; `decisions.validation` leaves out what is no number of tokens."""
        usage = self.usage if isinstance(self.usage, dict) else {}
        return Usage(_whole(usage.get("input_tokens")), _whole(usage.get("output_tokens")))


def wire_names(questions: Sequence[Question]) -> list[str]:
    """A name on the wire for each question: its own if it is a plain word, which all hosts take, else one like it.

    Models are not told these names.
    """
    taken = {question.name for question in questions if _is_plain(question.name)}
    return [question.name if _is_plain(question.name) else _word(question.name, taken) for question in questions]


def _is_plain(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _UNSAFE.search(name) is None


def _word(name: str, taken: set[str]) -> str:
    """A plain word like `name` that is not taken yet; it is afterwards."""
    base = _UNSAFE.sub("_", name)[:_LONGEST_NAME]
    word, number = base, 1
    while word in taken:
        number += 1
        word = f"{base}_{number}"
    taken.add(word)
    return word


def wire_questions(questions: Sequence[Question]) -> dict[str, QuestionModel]:
    """The questions as they are sent, under their wire names, in order."""
    return dict(zip(wire_names(questions), map(_wire_question, questions), strict=True))


def _wire_question(question: Question) -> QuestionModel:
    if isinstance(question, YesNo):
        outcomes = NoulCriteria()
        if question.yes_when is not None:
            outcomes["true"] = question.yes_when
        if question.no_when is not None:
            outcomes["false"] = question.no_when
        noul = NoulModel(type="noul", instructions=question.text)
        if outcomes:
            noul["criteria"] = outcomes
        return noul
    if isinstance(question, Choice):
        criteria = {option.name: option.description for option in question.options}
        return ChoiceModel(type="choice", instructions=question.text, criteria=criteria)
    return ScoreModel(type="score", instructions=question.text, criteria=list(question.levels))


def read_answers(questions: Sequence[Question], reply: Reply) -> dict[str, Answer]:
    """The answers by question name. Numbers and names in them are checked by `decisions.validation`.

    Raises:
        PlannerdError: DECISION_INVALID_ANSWER for what can't be read as an answer of the question's type.
    """
    given = reply.answers if isinstance(reply.answers, dict) else {}
    found = zip(questions, (given.get(name) for name in wire_names(questions)), strict=True)
    return {question.name: _read(question, raw) for question, raw in found if raw is not None}


def _read(question: Question, raw: object) -> Answer:
    if not isinstance(raw, dict):
        raise invalid_answer(question, "is no object")
    kind = raw.get("type")
    if kind == "refusal":
        return Refusal(_text(raw.get("message")))
    wanted = "noul" if isinstance(question, YesNo) else "choice" if isinstance(question, Choice) else "score"
    if kind != wanted:
        raise invalid_answer(question, f"is not of the type '{wanted}'")
    confidence: Any = raw.get("confidence")
    if isinstance(question, YesNo):
        return YesNoAnswer(_any(raw.get("noul")), confidence)
    probabilities = raw.get("probabilities")
    if probabilities is not None and not isinstance(probabilities, dict):
        raise invalid_answer(question, "has probabilities that are no object")
    if isinstance(question, Choice):
        value = raw.get("choice")
        if not isinstance(value, str):
            raise invalid_answer(question, "names no option")
        return ChoiceAnswer(value, probabilities, confidence)
    levels = None if probabilities is None else _by_level(question, probabilities)
    return ScaleAnswer(_any(raw.get("score")), levels, confidence)


def _by_level(question: Scale, probabilities: Mapping[str, Any]) -> tuple[Any, ...]:
    """The probabilities in the order of the levels, whose numbers from 0 are the keys."""
    keys = [str(level) for level in range(len(question.levels))]
    if set(probabilities) != set(keys):
        problem = f"has probabilities for other levels than 0 to {len(keys) - 1}, those of the question"
        raise invalid_answer(question, problem)
    return tuple(probabilities[key] for key in keys)


def _any(value: object) -> Any:
    """What stands in the place of a number; whether it is one is for `decisions.validation` to say."""
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
