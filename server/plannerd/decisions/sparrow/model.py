"""The decision model that is always there: no network, no key, about a millisecond a request."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from plannerd.decisions.answers import (
    Answer,
    ChoiceAnswer,
    DecisionResponse,
    ScaleAnswer,
    Truncation,
    YesNoAnswer,
)
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.decisions.sparrow import library
from plannerd.decisions.sparrow.scoring import Scorer, State
from plannerd.decisions.sparrow.tokens import WordPieces
from plannerd.decisions.text import InputText
from plannerd.errors import PlannerdError, Reason

CHARS_PER_TOKEN: Final = 6
"""More characters than this for each word piece that a model uses are never looked at."""

_LEVELS: Final = 10  # what the package says; more are not refused by its arithmetic
_CUTS: Final = 4  # after so many cuts the rest is left to the model, which ignores what is too much
_MARGIN: Final = 0.97  # the kept part may need more word pieces per character than the whole


class SparrowModel:
    """A model of the package sparrow-decider, inside this process.

    The input is rendered as plain text and cut to the word pieces that the model uses (512). Requests are
    answered one after the other in a thread of the model's own, because more threads make them slower.

    Args:
        model: the name of a model inside the package, such as `sparrow-nano-general-v1.1`; None: the
            package's default.
        queue: how many requests may be waiting or running, at least 1.
        options: how many options a choice question may have, at least 2.
        retry_after: what a client is told to wait when the queue is full, in seconds.

    Raises:
        ValueError: there is no such model; `queue` or `options` is too small.
        RuntimeError: the installed package differs from what this class knows.
    """

    provider: Final = "sparrow"
    repeatable: Final = True

    def __init__(
        self, model: str | None = None, *, queue: int = 256, options: int = 1000, retry_after: float = 0.1
    ) -> None:
        if queue < 1:
            raise ValueError(f"queue must be at least 1, not {queue}")
        if options < 2:
            raise ValueError(f"options must be at least 2, not {options}")
        self.limits = ModelLimits(options=options, levels=_LEVELS)
        weights = library.load(model)
        self.name = weights.name
        self._pieces = WordPieces(weights.tokenizer)
        self._scorer = Scorer(weights, self._pieces)
        self._max_tokens = weights.max_tokens
        self._queue = queue
        self._retry_after = retry_after
        self._places = threading.Semaphore(queue)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparrow")
        self._compare(weights)

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Answer every question of `request`; `timeout` is left to the caller, who cancels.

        A cancelled request that waits is dropped; one that is running ends within milliseconds, unheard.

        Raises:
            PlannerdError: DECISION_QUEUE_FULL, with `retry_after`.
        """
        if not self._places.acquire(blocking=False):
            raise PlannerdError(
                Reason.DECISION_QUEUE_FULL,
                f"{self._queue} requests are waiting for decision model '{self.name}'; try again later",
                metadata={"model": self.name, "queue": str(self._queue)},
                retry_after=self._retry_after,
            )
        try:
            future = self._thread.submit(self.answer, request)
        except RuntimeError:  # closed
            self._places.release()
            raise
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Answer what is waiting, then end the thread."""
        await asyncio.to_thread(self._thread.shutdown)

    def answer(self, request: DecisionRequest) -> DecisionResponse:
        """Answer a request here and now. Not for several threads at a time."""
        state, truncation = self.read(request.input)
        probabilities = self._scorer.probabilities(state, request.questions)
        return DecisionResponse(
            answers={q.name: _answer(q, p) for q, p in zip(request.questions, probabilities, strict=True)},
            model=self.name,
            truncation=truncation,
        )

    def read(self, fields: Sequence[Field]) -> tuple[State, Truncation | None]:
        """The input as the model sees it: cut by characters until its word pieces are few enough."""
        whole = InputText(fields)
        most = budget = self._max_tokens * CHARS_PER_TOKEN
        text, pieces = "", list[int]()
        for _ in range(_CUTS):
            text = whole.cut(budget).text[:most]  # longer than asked for where names alone exceed the budget
            pieces = self._pieces.encode(text)
            if len(pieces) <= self._max_tokens or len(text) > budget:
                break
            budget = int(len(text) * self._max_tokens / len(pieces) * _MARGIN)
        truncation = None if len(text) == whole.size else Truncation(whole.size, len(text))
        return State(text, pieces[: self._max_tokens]), truncation

    def _leave(self, _: Future[DecisionResponse]) -> None:
        self._places.release()

    def _compare(self, weights: library.Weights) -> None:
        """Fail now, not by wrong decisions, if the package computes something else than `Scorer`."""
        text = "Größe: 4.5, the battery: 6% of pump-2 is low!"
        questions: tuple[Question, ...] = (
            YesNo("noul", "Is the battery low?"),
            Choice("choice", "What next?", (Option("dock", "charge the battery"), Option("drive"))),
            Scale("score", "How urgent?", ("can wait", "soon", "now")),
        )
        criteria = (None, {"dock": "charge the battery", "drive": None}, ["can wait", "soon", "now"])
        answers = self._scorer.probabilities(State(text, self._pieces.encode(text)), questions)
        for question, criterion, probabilities in zip(questions, criteria, answers, strict=True):
            asked = {"type": question.name, "instructions": question.text, "criteria": criterion}
            if not np.allclose(probabilities, weights.decider.probs(text, asked)[-1], atol=1e-4):
                raise RuntimeError(f"sparrow model '{self.name}' computes its answers in a way that is unknown here")


def _answer(question: Question, probabilities: list[float]) -> Answer:
    """The answer that a question's probabilities mean, with the library's measure of confidence."""
    count = len(probabilities)
    if isinstance(question, YesNo):
        return YesNoAnswer(probabilities[1])
    if isinstance(question, Choice):
        names = [option.name for option in question.options]
        highest = max(probabilities)
        value = names[probabilities.index(highest)]
        return ChoiceAnswer(value, dict(zip(names, probabilities, strict=True)), (count * highest - 1) / (count - 1))
    mean = sum(level * p for level, p in enumerate(probabilities))
    deviation = math.sqrt(sum((level - mean) ** 2 * p for level, p in enumerate(probabilities)))
    return ScaleAnswer(mean, tuple(probabilities), 1 - deviation / ((count - 1) / 2))
