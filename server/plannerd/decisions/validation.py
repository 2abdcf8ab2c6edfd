"""What a request and its answers must look like, whatever the model.

One place for the rules that every provider shares: requests are checked before a model sees them, answers
before a planner does. An answer that breaks a rule is an error, never replaced by a default value.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, Usage, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Question, Scale, YesNo
from plannerd.errors import PlannerdError, Reason, Violation
from plannerd.values import PENDING, Image, Opaque, Text, is_blank

SUPPORTED_TYPES: Final = "null, boolean, integer, finite double, text, list, map with text keys, text or image content"
"""The types of input values, in the words of error messages."""

TOLERANCE: Final = 1e-6
"""How far out of its range a number may be and still be taken, clamped to the range."""

MAX_REFUSAL_CHARS: Final = 1000
"""How much of a model's own word for why it declined is kept."""

_ROUNDING: Final = 0.005  # by how much a number that has two digits may be off
_MAX_VIOLATIONS: Final = 20
_PLAIN: Final = frozenset({type(None), bool, int, str})  # needs no closer look, in any input
_SUPPORTED: Final = _PLAIN | {list, Text, Image}


# --- requests


def check_request(request: DecisionRequest) -> None:
    """Check what every request must fulfil: questions that can be asked, about an input that can be sent.

    Raises:
        PlannerdError: INVALID_REQUEST with up to 20 violations (`questions[1].options[0].name`);
            EMPTY_DECISION_INPUT for an input without fields (a field whose value is null is one);
            UNSUPPORTED_INPUT with the metadata `key`, the path of the first value of another type
            (`order.lines[2].photo`).
    """
    problems = chain(_question_problems(request.questions), _field_problems(request.input))
    if violations := list(islice(problems, _MAX_VIOLATIONS)):
        message = f"{violations[0].field}: {violations[0].problem}"
        raise PlannerdError(Reason.INVALID_REQUEST, message, violations=violations)
    if not request.input:
        raise PlannerdError(
            Reason.EMPTY_DECISION_INPUT,
            "there is nothing to decide on: the input of the decision is empty; give it at least one key",
        )
    if hit := _find(request.input, _is_unsupported):
        path, value = hit
        raise PlannerdError(
            Reason.UNSUPPORTED_INPUT,
            f"'{path}' in the input of the decision is {_describe(value)}; supported: {SUPPORTED_TYPES}",
            violations=[Violation(path, f"is {_describe(value)}")],
            metadata={"key": path},
        )


def check_limits(request: DecisionRequest, limits: ModelLimits, model_name: str) -> None:
    """Check that a request fits a model.

    Raises:
        PlannerdError: DECISION_MODEL_LIMIT as `check_question_limits` has it; for an image to a model that
            takes none with the metadata `limit` (`images`), `allowed` (`0`), `key` and `model`.
    """
    check_question_limits(request.questions, limits, model_name)
    if not limits.images and (hit := _find(request.input, lambda value: type(value) is Image)):
        raise PlannerdError(
            Reason.DECISION_MODEL_LIMIT,
            f"decision model '{model_name}' takes no images, and '{hit[0]}' in the input of the decision is one",
            metadata={"limit": "images", "allowed": "0", "key": hit[0], "model": model_name},
        )


def check_question_limits(questions: Iterable[Question], limits: ModelLimits, model_name: str) -> None:
    """Check that questions fit a model; needs no input, so configurations can be checked with it too.

    Raises:
        PlannerdError: DECISION_MODEL_LIMIT with the metadata `limit` (`questions`, `options` or `levels`),
            `allowed`, `requested` and `model`, and `question` for the latter two.
    """
    questions = tuple(questions)
    _check_limit("questions", limits.questions, len(questions), model_name)
    for question in questions:
        if isinstance(question, Choice):
            _check_limit("options", limits.options, len(question.options), model_name, question)
        elif isinstance(question, Scale):
            _check_limit("levels", limits.levels, len(question.levels), model_name, question)


def _check_limit(limit: str, allowed: int | None, requested: int, model: str, question: Question | None = None) -> None:
    if allowed is None or requested <= allowed:
        return
    subject = "the request" if question is None else f"question '{question.name}'"
    advice = "; ask fewer at a time, as planners do with decision.split" if limit == "questions" else ""
    metadata = {"limit": limit, "allowed": str(allowed), "requested": str(requested), "model": model}
    raise PlannerdError(
        Reason.DECISION_MODEL_LIMIT,
        f"decision model '{model}' takes at most {allowed} {limit}, and {subject} has {requested}{advice}",
        metadata=metadata if question is None else {**metadata, "question": question.name},
    )


def _question_problems(questions: tuple[Question, ...]) -> Iterator[Violation]:
    if not questions:
        yield Violation("questions", "must not be empty: ask at least one question")
    yield from _name_problems("questions", [question.name for question in questions])
    for i, question in enumerate(questions):
        if is_blank(question.text):
            yield Violation(f"questions[{i}].text", "must not be blank")
        if isinstance(question, Choice):
            yield from _count_problems(f"questions[{i}].options", len(question.options))
            yield from _name_problems(f"questions[{i}].options", [option.name for option in question.options])
        elif isinstance(question, Scale):
            yield from _count_problems(f"questions[{i}].levels", len(question.levels))
            for j, level in enumerate(question.levels):
                if is_blank(level):
                    yield Violation(f"questions[{i}].levels[{j}]", "must not be blank")


def _field_problems(fields: tuple[Field, ...]) -> Iterator[Violation]:
    return _name_problems("input", [field.name for field in fields])


def _count_problems(path: str, count: int) -> Iterator[Violation]:
    if count < 2:
        yield Violation(path, f"must be at least 2, not {count}")


def _name_problems(path: str, names: list[str]) -> Iterator[Violation]:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if is_blank(name):
            yield Violation(f"{path}[{i}].name", "must not be blank")
        elif name in seen:
            yield Violation(f"{path}[{i}].name", f"must be unique, and '{name}' is taken")
        seen.add(name)


# --- values of the input


def _find(fields: tuple[Field, ...], wanted: Callable[[object], bool]) -> tuple[str, object] | None:
    """The first value in the input that is `wanted`, with its path, looking into lists and maps."""
    for field in fields:
        if hit := _search(field.value, wanted):
            return field.name + hit[0], hit[1]
    return None


def _search(value: object, wanted: Callable[[object], bool]) -> tuple[str, object] | None:
    # The path is put together on the way back, so that a search without a hit builds none.
    if wanted(value):
        return "", value
    if isinstance(value, list):
        for i, item in enumerate(value):
            if type(item) not in _PLAIN and (hit := _search(item, wanted)):
                return f"[{i}]{hit[0]}", hit[1]
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(item) not in _PLAIN and (hit := _search(item, wanted)):
                return f".{key}{hit[0]}", hit[1]
    return None


def _is_unsupported(value: object) -> bool:
    # Exact types: a subclass may behave in ways that nobody has thought of.
    if type(value) is float:
        return not math.isfinite(value)
    if type(value) is dict:
        return not all(type(key) is str for key in value)
    return type(value) not in _SUPPORTED


def _describe(value: object) -> str:
    if isinstance(value, Opaque):
        return "an opaque value"
    if value is PENDING:
        return "an output that is still pending"
    if isinstance(value, float):
        return "a double that is not finite"
    if isinstance(value, dict):
        return "a map with keys that are not text"
    return f"of type {type(value).__name__}"


# --- answers


def check_answers(questions: Iterable[Question], answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Check a model's answers against the questions it was asked.

    Every question needs an answer of its own kind, or a refusal, whose message is cut. Numbers within 1e-6 of
    their range are clamped to it. Probabilities may be absent; where given, those of n options (or levels) must
    sum to 1 up to `min(0.25, 0.005 n) + 1e-6`, so that rounded ones pass; an option left out counts as 0. A
    confidence must be finite and nothing else, since its range differs from model to model. Answers to
    questions that were not asked are dropped.

    Args:
        questions: what was asked.
        answers: what the model answered, by question name.

    Returns:
        The answers, clamped, in the order of the questions.

    Raises:
        PlannerdError: DECISION_INVALID_ANSWER with the metadata `question`; the message repeats nothing that
            the model said, since that may be content of the input.
    """
    return {question.name: _check_answer(question, answers.get(question.name)) for question in questions}


def sendable(text: str, most: int) -> str:
    """A text of a model, cut to `most` characters, with `?` for what is no Unicode and so can't be sent."""
    return text[:most].encode("utf-8", "replace").decode()


def checked_usage(usage: Usage) -> Usage:
    """A usage without what can't be a number of tokens. It decides nothing, so it fails nothing."""
    return Usage(_tokens(usage.input_tokens), _tokens(usage.output_tokens))


def _tokens(count: object) -> int | None:
    return count if type(count) is int and 0 <= count < 2**63 else None


def contradictory_means(questions: Iterable[Question], answers: Mapping[str, Answer]) -> list[str]:
    """The scale questions whose mean is not what the probabilities of its levels come to, rounding aside.

    Args:
        questions: what was asked.
        answers: as `check_answers` returns them.
    """
    found = []
    for question in questions:
        answer = answers[question.name]
        if isinstance(answer, ScaleAnswer) and answer.probabilities is not None:
            expected = math.fsum(level * p for level, p in enumerate(answer.probabilities))
            # Each probability and the mean may be rounded to two digits.
            rounding = _ROUNDING * (1 + sum(range(len(answer.probabilities))))
            if abs(answer.mean - expected) > rounding + TOLERANCE:
                found.append(question.name)
    return found


def _check_answer(question: Question, answer: Answer | None) -> Answer:
    if answer is None:
        raise invalid_answer(question, "is missing")
    if isinstance(answer, Refusal):
        return Refusal(sendable(answer.message, MAX_REFUSAL_CHARS))
    if isinstance(question, YesNo) and isinstance(answer, YesNoAnswer):
        probability = _number(question, "probability", answer.probability, 1)
        return replace(answer, probability=probability, confidence=_confidence(question, answer.confidence))
    if isinstance(question, Choice) and isinstance(answer, ChoiceAnswer):
        return _check_choice(question, answer)
    if isinstance(question, Scale) and isinstance(answer, ScaleAnswer):
        return _check_scale(question, answer)
    raise invalid_answer(question, f"is a {type(answer).__name__}, which does not fit a {type(question).__name__}")


def _check_choice(question: Choice, answer: ChoiceAnswer) -> ChoiceAnswer:
    offered = [option.name for option in question.options]
    if answer.value not in offered:
        raise invalid_answer(question, "names an option that was not offered")
    probabilities = answer.probabilities
    if probabilities is not None:
        if not isinstance(probabilities, Mapping):
            raise invalid_answer(question, "has no probability per option")
        if not probabilities.keys() <= set(offered):
            raise invalid_answer(question, "has a probability for an option that was not offered")
        probabilities = {name: _number(question, "probability", p, 1) for name, p in probabilities.items()}
        _check_sum(question, probabilities.values(), len(offered))
    return ChoiceAnswer(answer.value, probabilities, _confidence(question, answer.confidence))


def _check_scale(question: Scale, answer: ScaleAnswer) -> ScaleAnswer:
    levels = len(question.levels)
    mean = _number(question, "mean", answer.mean, levels - 1)
    probabilities = answer.probabilities
    if probabilities is not None:
        if not isinstance(probabilities, Sequence):
            raise invalid_answer(question, "has no probability per level")
        if len(probabilities) != levels:
            problem = f"has probabilities for {len(probabilities)} levels, and the question has {levels}"
            raise invalid_answer(question, problem)
        probabilities = tuple(_number(question, "probability", p, 1) for p in probabilities)
        _check_sum(question, probabilities, levels)
    return ScaleAnswer(mean, probabilities, _confidence(question, answer.confidence))


def _check_sum(question: Question, probabilities: Iterable[float], count: int) -> None:
    total = math.fsum(probabilities)
    if abs(total - 1) > min(0.25, _ROUNDING * count) + TOLERANCE:
        raise invalid_answer(question, f"has probabilities that sum to {total:.6g} instead of 1")


def _number(question: Question, what: str, value: object, high: float, low: float = 0) -> float:
    """`value` as a float within [low, high]; booleans are no numbers, and NaN is within no range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_answer(question, f"has no number as {what}")
    if not low - TOLERANCE <= value <= high + TOLERANCE:
        raise invalid_answer(question, f"has a {what} that is not within {low:g} and {high:g}")
    return float(min(max(value, low), high))


def _confidence(question: Question, value: float | None) -> float | None:
    biggest = sys.float_info.max
    return None if value is None else _number(question, "confidence", value, biggest, -biggest)


def invalid_answer(question: Question, problem: str) -> PlannerdError:
    """The error of an answer that breaks a rule; `problem` goes on after its name and repeats nothing of it."""
    return PlannerdError(
        Reason.DECISION_INVALID_ANSWER,
        f"the decision model's answer to '{question.name}' {problem}",
        metadata={"question": question.name},
    )
