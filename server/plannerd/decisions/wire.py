"""Questions and answers as protobuf messages, and back.

For both ends of a `DecisionModelService`: plannerd serves one, and asks those of others.
"""

from __future__ import annotations

from typing import Final

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
from plannerd.errors import PlannerdError, Reason, invalid
from plannerd.wire.values import DEFAULT_LIMITS, ValueLimits, ValueReader, encode_value
from plannerd_protos.planner.v1 import decision_pb2

_MAX_RETRIES: Final = 1_000_000


def decode_request(request: decision_pb2.DecideRequest, limits: ValueLimits = DEFAULT_LIMITS) -> DecisionRequest:
    """Input and questions; `decisions.validation` checks what they say.

    Raises:
        PlannerdError: INVALID_REQUEST, INVALID_VALUE or LIMIT_EXCEEDED.
    """
    reader = ValueReader(limits)
    fields = tuple(
        Field(item.name, reader.value(item.value, f"input[{position}].value"), item.rank)
        for position, item in enumerate(request.input)
    )
    questions = tuple(
        decode_question(item, f"questions[{position}]") for position, item in enumerate(request.questions)
    )
    seen: set[str] = set()
    for position, field in enumerate(fields):
        if field.name in seen:
            raise invalid(f"input[{position}].name", f"'{field.name}' stands twice")
        seen.add(field.name)
    return DecisionRequest(fields, questions)


def decode_question(message: decision_pb2.Question, path: str) -> Question:
    """One question.

    Raises:
        PlannerdError: INVALID_REQUEST.
    """
    match message.WhichOneof("kind"):
        case "yes_no":
            kind = message.yes_no
            return YesNo(
                message.name,
                message.text,
                kind.yes_when if kind.HasField("yes_when") else None,
                kind.no_when if kind.HasField("no_when") else None,
            )
        case "choice":
            options = tuple(
                Option(option.name, option.description if option.HasField("description") else None)
                for option in message.choice.options
            )
            return Choice(message.name, message.text, options)
        case "scale":
            return Scale(message.name, message.text, tuple(message.scale.levels))
        case _:
            raise invalid(path, "one of yes_no, choice and scale must be set")


def encode_question(question: Question) -> decision_pb2.Question:
    """The wire form of a question."""
    message = decision_pb2.Question(name=question.name, text=question.text)
    match question:
        case YesNo():
            message.yes_no.CopyFrom(decision_pb2.YesNoQuestion(yes_when=question.yes_when, no_when=question.no_when))
        case Choice():
            message.choice.options.extend(
                decision_pb2.ChoiceOption(name=option.name, description=option.description)
                for option in question.options
            )
        case Scale():
            message.scale.levels.extend(question.levels)
    return message


def encode_answer(question: str, answer: Answer) -> decision_pb2.Answer:
    """The wire form of the answer to `question`."""
    message = decision_pb2.Answer(question=question)
    match answer:
        case YesNoAnswer():
            message.yes_no.CopyFrom(
                decision_pb2.YesNoAnswer(probability=answer.probability, confidence=answer.confidence)
            )
        case ChoiceAnswer():
            message.choice.CopyFrom(
                decision_pb2.ChoiceAnswer(
                    value=answer.value, probabilities=answer.probabilities, confidence=answer.confidence
                )
            )
        case ScaleAnswer():
            message.scale.CopyFrom(
                decision_pb2.ScaleAnswer(
                    mean=answer.mean, probabilities=answer.probabilities, confidence=answer.confidence
                )
            )
        case Refusal():
            message.refusal.CopyFrom(decision_pb2.RefusalAnswer(message=answer.message))
    return message


def encode_request(request: DecisionRequest, model: str) -> decision_pb2.DecideRequest:
    """The wire form of a request to the `model` of that name; empty: the default of whoever is asked."""
    return decision_pb2.DecideRequest(
        model=model,
        input=[encode_field(field) for field in request.input],
        questions=[encode_question(question) for question in request.questions],
    )


def encode_field(field: Field) -> decision_pb2.InputField:
    """The wire form of one part of an input."""
    return decision_pb2.InputField(name=field.name, value=encode_value(field.value), rank=field.rank)


def encode_response(request: DecisionRequest, response: DecisionResponse) -> decision_pb2.DecideResponse:
    """The wire form of a response, with the answers in the order of the questions."""
    message = decision_pb2.DecideResponse(
        answers=[encode_answer(question.name, response.answers[question.name]) for question in request.questions],
        model=response.model,
        usage=encode_usage(response.usage),
        retries=response.retries,
    )
    if response.truncation is not None:
        message.truncation.CopyFrom(encode_truncation(response.truncation))
    return message


def encode_usage(usage: Usage) -> decision_pb2.Usage:
    """The wire form of a usage."""
    return decision_pb2.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


def encode_truncation(cut: Truncation) -> decision_pb2.Truncation:
    """The wire form of a truncation."""
    return decision_pb2.Truncation(original_chars=cut.original_chars, used_chars=cut.used_chars)


def decode_response(message: decision_pb2.DecideResponse, unnamed: str) -> DecisionResponse:
    """A response; `decisions.validation` checks answers, name and usage.

    Retries and truncations that can't be, such as more characters used than there were, count as unknown: they
    decide nothing.

    Args:
        message: from the wire.
        unnamed: what to call a model that does not name itself.

    Raises:
        PlannerdError: DECISION_INVALID_ANSWER for two answers to one question, or one of no kind.
    """
    answers: dict[str, Answer] = {}
    for item in message.answers:
        if item.question in answers:
            raise _invalid_answer(item.question, "came twice")
        answers[item.question] = decode_answer(item)
    usage = message.usage
    return DecisionResponse(
        answers,
        message.model or unnamed,
        Usage(
            usage.input_tokens if usage.HasField("input_tokens") else None,
            usage.output_tokens if usage.HasField("output_tokens") else None,
        ),
        min(max(message.retries, 0), _MAX_RETRIES),
        _decode_truncation(message.truncation) if message.HasField("truncation") else None,
    )


def decode_answer(message: decision_pb2.Answer) -> Answer:
    """One answer.

    Raises:
        PlannerdError: DECISION_INVALID_ANSWER for one of no kind.
    """
    match message.WhichOneof("kind"):
        case "yes_no":
            yes_no = message.yes_no
            return YesNoAnswer(yes_no.probability, yes_no.confidence if yes_no.HasField("confidence") else None)
        case "choice":
            choice = message.choice
            return ChoiceAnswer(
                choice.value,
                dict(choice.probabilities) or None,
                choice.confidence if choice.HasField("confidence") else None,
            )
        case "scale":
            scale = message.scale
            return ScaleAnswer(
                scale.mean,
                tuple(scale.probabilities) or None,
                scale.confidence if scale.HasField("confidence") else None,
            )
        case "refusal":
            return Refusal(message.refusal.message)
        case _:
            raise _invalid_answer(message.question, "has neither a known kind nor a refusal")


def _decode_truncation(cut: decision_pb2.Truncation) -> Truncation | None:
    possible = 0 <= cut.used_chars <= cut.original_chars
    return Truncation(cut.original_chars, cut.used_chars) if possible else None


def _invalid_answer(question: str, problem: str) -> PlannerdError:
    return PlannerdError(
        Reason.DECISION_INVALID_ANSWER,
        f"the decision model's answer to '{question}' {problem}",
        metadata={"question": question},
    )
