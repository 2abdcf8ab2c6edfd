"""Questions and answers of the wire."""

from __future__ import annotations

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, YesNoAnswer
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.errors import invalid
from plannerd.services.codec.values import decode_value
from plannerd_protos.planner.v1 import decision_pb2


def decode_request(request: decision_pb2.DecideRequest) -> DecisionRequest:
    """Input and questions; `decisions.validation` checks what they say.

    Raises:
        PlannerdError: INVALID_REQUEST or INVALID_VALUE.
    """
    fields = tuple(
        Field(item.name, decode_value(item.value, f"input[{position}].value"))
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
