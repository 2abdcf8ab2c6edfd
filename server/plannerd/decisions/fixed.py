"""The provider `fixed`: answers from a script, for tests and replays."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from plannerd.decisions.answers import Answer, ChoiceAnswer, DecisionResponse, Refusal, ScaleAnswer, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Question, Scale
from plannerd.decisions.script import (
    Script,
    Step,
    Written,
    WrittenChoice,
    WrittenError,
    WrittenRefusal,
    WrittenScale,
    WrittenStep,
    WrittenYesNo,
    parse_script,
)
from plannerd.errors import PlannerdError, Reason


class FixedModel:
    """A model that answers from a script, with the answers as they are written there, valid or not.

    Each question is answered by the step whose turn it is, else by the rule for its name, else by the default
    for its kind. Every request takes one step, also one that fails. The place in the script belongs to this
    instance, so whoever shares the model shares its steps.

    Args:
        script: the script, or its parts as `parse_script` takes them.
        remember: how many of the latest requests `asked` keeps; 0 where nobody looks at them, since requests
            hold the content of the scope.

    Raises:
        ValueError: the script can't be understood; the message has a line for each problem.
    """

    provider: Final = "fixed"
    repeatable: Final = False

    def __init__(self, script: Script | Mapping[str, object], *, remember: int = 1000) -> None:
        self._script = script if isinstance(script, Script) else parse_script(dict(script))
        self._taken = 0
        self._asked: deque[DecisionRequest] = deque(maxlen=remember)
        self.name = self._script.model
        self.limits = ModelLimits(**self._script.limits.model_dump())

    @property
    def asked(self) -> list[DecisionRequest]:
        """The latest requests, oldest first."""
        return list(self._asked)

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Answer from the script, at once.

        Raises:
            PlannerdError: what the script says; DECISION_INVALID_ANSWER for a question that nothing in it
                answers, as when its steps are used up.
        """
        self._asked.append(request)
        step = self._next_step()
        if isinstance(step, WrittenError):
            raise _failure(step)
        name, answers = (step.model, step.answers) if isinstance(step, WrittenStep) else (self.name, step)
        return DecisionResponse({q.name: self._answer(q, answers) for q in request.questions}, name)

    async def close(self) -> None:
        """Nothing to release."""

    def _next_step(self) -> Step:
        self._taken += 1
        steps = self._script.steps
        return steps[self._taken - 1] if self._taken <= len(steps) else {}

    def _answer(self, question: Question, step: Mapping[str, Written]) -> Answer:
        for written in (step.get(question.name), self._script.rules.get(question.name), self._default(question)):
            if written is not None:
                return _answer(question, written)
        raise PlannerdError(
            Reason.DECISION_INVALID_ANSWER,
            f"no fixed answer to '{question.name}' in request {self._taken}: the script has "
            f"{len(self._script.steps)} steps, and no rule or default for it",
            metadata={"question": question.name, "request": str(self._taken)},
        )

    def _default(self, question: Question) -> Written | None:
        if isinstance(question, Choice):
            return self._script.defaults.choice
        return self._script.defaults.scale if isinstance(question, Scale) else self._script.defaults.yes_no


def _answer(question: Question, written: Written) -> Answer:
    match written:
        case WrittenError():
            raise _failure(written)
        case WrittenRefusal():
            return Refusal(written.refuse)
        case WrittenYesNo():
            return YesNoAnswer(written.probability, written.confidence)
        case WrittenChoice():
            return ChoiceAnswer(written.value, written.probabilities, written.confidence)
        case WrittenScale():
            probabilities = None if written.probabilities is None else tuple(written.probabilities)
            return ScaleAnswer(written.mean, probabilities, written.confidence)
        case str():
            return ChoiceAnswer(written)
        case _:
            return ScaleAnswer(written) if isinstance(question, Scale) else YesNoAnswer(written)


def _failure(written: WrittenError) -> PlannerdError:
    return PlannerdError(written.error, written.message, retry_after=written.retry_after)
