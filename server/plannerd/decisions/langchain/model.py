"""A LangChain decision model, asked as one of ours.

Its questions are ours under other names (noul, choice, score) and so are its answers. It has no refusals: a model
that does not answer raises.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langchain_core import decisions as lc
from langsmith import tracing_context
from pydantic import ValidationError

from plannerd.decisions.answers import (
    Answer,
    ChoiceAnswer,
    DecisionResponse,
    ScaleAnswer,
    Usage,
    YesNoAnswer,
)
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.pacing import Pacing
from plannerd.decisions.questions import Choice, DecisionRequest, Question, Scale, YesNo
from plannerd.decisions.retries import AttemptError, Retries, RetryRules
from plannerd.errors import PlannerdError, Reason
from plannerd.values import Image, Text, Value

_PASSING: Final = frozenset({408, 425, 429, *range(500, 600)})
_CREDENTIALS: Final = frozenset({401, 402, 403})


@dataclass(frozen=True, slots=True)
class LangChainOptions:
    """How to ask.

    Attributes:
        limits: what one request may hold.
        retries: how a request is tried again.
        concurrent: requests at once.
        queue: further requests that may wait.
        tracing: let LangSmith record requests, with their content, where its environment variables ask for it.
    """

    limits: ModelLimits = field(default_factory=ModelLimits)
    retries: RetryRules = field(default_factory=RetryRules)
    concurrent: int = 16
    queue: int = 256
    tracing: bool = False


class LangChainModel:
    """Asks a `BaseDecisionModel`: in the event loop if it is asynchronous, else in threads of its own.

    Args:
        name: the configured name, for errors.
        model: the model.
        options: how to ask.
    """

    provider: Final = "langchain"
    repeatable: Final = False

    def __init__(self, name: str, model: lc.BaseDecisionModel, options: LangChainOptions) -> None:
        self._name = name
        self._model = model
        self._options = options
        self._pacing = Pacing(name, concurrent=options.concurrent, queue=options.queue)
        self._retries = Retries(name, options.retries)
        self._threads: ThreadPoolExecutor | None = None
        if type(model)._aclassify is lc.BaseDecisionModel._aclassify:
            # LangChain would use the event loop's own few threads, which a model that hangs must not take from others.
            self._threads = ThreadPoolExecutor(options.concurrent, thread_name_prefix=f"langchain-{name}")
        self.limits = options.limits

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Ask for an answer to every question of `request`.

        Raises:
            PlannerdError: DECISION_QUEUE_FULL, DECISION_MODEL_UNAVAILABLE, DECISION_MODEL_CREDENTIALS,
                DECISION_MODEL_REJECTED or DECISION_INVALID_ANSWER.
        """
        asked = lc.ClassifierRequest(
            state={item.name: _state(item.value) for item in request.input},
            questions={question.name: _question(question) for question in request.questions},
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with self._pacing.turn():
            left = None if timeout is None else max(0.0, timeout - (loop.time() - started))
            response, retries = await self._retries.run(lambda _: self._attempt(asked), left)
        return replace(self._response(request, response), retries=retries)

    async def close(self) -> None:
        """Let go of the threads. One that hangs is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _attempt(self, asked: lc.ClassifierRequest) -> object:
        try:
            if self._threads is None:
                with self._traced():
                    return await self._model.ainvoke(asked)
            return await asyncio.wrap_future(self._threads.submit(self._invoke, asked))
        except (PlannerdError, AttemptError):
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _invoke(self, asked: lc.ClassifierRequest) -> object:
        with self._traced():
            return self._model.invoke(asked)

    def _traced(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._options.tracing else tracing_context(enabled=False)

    def _failure(self, error: Exception) -> Exception:
        """What an exception of the model or its client library means. Their texts may have anything in them."""
        if isinstance(error, ValidationError):
            return self._error(Reason.DECISION_INVALID_ANSWER, "answered something that is no decision")
        status = _status(error)
        if status in _PASSING:
            return AttemptError(f"answered {status}")
        if status in _CREDENTIALS:
            return self._error(Reason.DECISION_MODEL_CREDENTIALS, f"rejects the credentials of this server ({status})")
        if status is not None and 400 <= status < 500:
            return self._error(Reason.DECISION_MODEL_REJECTED, f"rejects the request ({status})")
        if isinstance(error, TimeoutError | ConnectionError):
            return AttemptError(f"could not be asked ({type(error).__name__})")
        return self._error(Reason.DECISION_MODEL_UNAVAILABLE, f"failed with {type(error).__name__}")

    def _error(self, reason: Reason, problem: str) -> PlannerdError:
        return PlannerdError(reason, f"decision model '{self._name}' {problem}", metadata={"model": self._name})

    def _response(self, request: DecisionRequest, response: object) -> DecisionResponse:
        if not isinstance(response, lc.ClassifierResponse):
            raise self._error(Reason.DECISION_INVALID_ANSWER, "answered something that is no ClassifierResponse")
        levels = {question.name: len(question.levels) for question in request.questions if isinstance(question, Scale)}
        answers: dict[str, Answer] = {}
        for name, answer in response.answers.items():
            match answer:
                case lc.NoulAnswer():
                    answers[name] = YesNoAnswer(answer.noul)
                case lc.ChoiceAnswer():
                    answers[name] = ChoiceAnswer(answer.choice, answer.probabilities or None, answer.confidence)
                case lc.ScoreAnswer():
                    probabilities = self._levels(answer.probabilities, levels.get(name, 0))
                    answers[name] = ScaleAnswer(answer.score, probabilities, answer.confidence)
                case _:  # a place in an image, which nobody here asks for
                    continue
        usage = response.usage
        return DecisionResponse(
            answers,
            response.model,
            Usage() if usage is None else Usage(usage["input_tokens"], usage["output_tokens"]),
        )

    def _levels(self, probabilities: Mapping[int, float], levels: int) -> tuple[float, ...] | None:
        if not probabilities.keys() <= set(range(levels)):
            raise self._error(Reason.DECISION_INVALID_ANSWER, "gave a probability for a level that was not offered")
        return tuple(probabilities.get(level, 0.0) for level in range(levels)) if probabilities else None


def _question(question: Question) -> Any:
    match question:
        case YesNo():
            told = question.yes_when is not None or question.no_when is not None
            criteria = lc.NoulCriteria(true=question.yes_when, false=question.no_when) if told else None
            return lc.Noul(instructions=question.text, criteria=criteria)
        case Choice():
            return lc.Choice(
                instructions=question.text,
                criteria={option.name: option.description for option in question.options},
            )
        case Scale():
            return lc.Score(instructions=question.text, criteria=list(question.levels))


def _state(value: Value) -> Any:
    """A value as LangChain writes it; images are its standard blocks."""
    match value:
        case Text(text):
            return text
        case Image(media_type, data):
            return {"type": "image", "base64": base64.b64encode(data).decode("ascii"), "mime_type": media_type}
        case list():
            return [_state(item) for item in value]
        case dict():
            return {key: _state(item) for key, item in value.items()}
        case _:
            return value


def _status(error: Exception) -> int | None:
    """The HTTP status behind an exception, where it has one in one of the usual places."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if type(status) is int:
            return status
    return None
