"""The model of a replay: the answers of a recording, each to the question that it was given to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plannerd.decisions.answers import Answer, DecisionResponse
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import DecisionRequest, Question
from plannerd.decisions.wire import decode_question, decode_response
from plannerd.errors import PlannerdError, Reason
from plannerd_protos.planner.v1 import decision_pb2, step_pb2


class RecordedModel:
    """Answers what was asked in the recorded step, and nothing else."""

    provider: Final = "replay"
    repeatable: Final = True
    limits: Final = ModelLimits(images=True)

    def __init__(self) -> None:
        self._known: list[tuple[Question, Answer, DecisionResponse]] = []
        self.missing: list[Question] = []
        """What this step asks and the recording has no answer to."""

    def load(self, records: Iterable[step_pb2.DecisionRecord]) -> None:
        """Take the decisions of the step that is next."""
        self._known = []
        self.missing = []
        for record in records:
            response = _response(record)
            for question in record.questions:
                asked = decode_question(question, "question")
                if asked.name in response.answers:
                    self._known.append((asked, response.answers[asked.name], response))

    @property
    def recorded(self) -> list[Question]:
        """What the recorded step asked."""
        return [question for question, _, _ in self._known]

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Answer as it was recorded.

        Raises:
            PlannerdError: DECISION_INVALID_ANSWER for a question that is not the recorded one, word for word.
        """
        answers: dict[str, Answer] = {}
        source: DecisionResponse | None = None
        for question in request.questions:
            found = next((known for known in self._known if known[0] == question), None)
            if found is None:
                self.missing.append(question)
            else:
                answers[question.name] = found[1]
                source = found[2]
        if self.missing or source is None:
            raise PlannerdError(Reason.DECISION_INVALID_ANSWER, "the recording has no answer to this question")
        return DecisionResponse(answers, source.model, source.usage, source.retries, source.truncation)

    async def close(self) -> None:
        """Nothing to release."""


def _response(record: step_pb2.DecisionRecord) -> DecisionResponse:
    message = decision_pb2.DecideResponse(
        answers=record.answers, model=record.resolved_model, usage=record.usage, retries=record.retries
    )
    if record.HasField("truncation"):
        message.truncation.CopyFrom(record.truncation)
    return decode_response(message, "")
