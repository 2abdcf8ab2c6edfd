"""Asks an invocation's decision model, and keeps a record of each request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.decisions.splitting import split
from plannerd.decisions.validation import check_request, contradictory_means
from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.explanation import DecisionRecord, ExplainLevel
from plannerd.invocations.observer import UNOBSERVED, DecisionObserver
from plannerd.invocations.record import InvocationOptions
from plannerd.planners.moves import Warn, WarningCode
from plannerd.planners.planner import Answers, AskedAtMost
from plannerd.values import digest

_ADVICE: Final = {
    "questions": "Use another model, fewer agents, or decision.split, which asks in several requests.",
    "options": "Use another model, or fewer agents. decision.split does not help: it divides questions, and the "
    "options of one question can be weighed against each other only in one request.",
    "levels": "Use another model, or fewer levels.",
}


def check_fits(asks: AskedAtMost, named: NamedModel, options: InvocationOptions) -> None:
    """Check at Init that a model takes as much as a planner is certain to ask.

    Raises:
        PlannerdError: DECISION_MODEL_LIMIT. Questions that are split are no reason for it.
    """
    limits = named.model.limits
    for limit, requested, allowed in (
        ("questions", asks.questions, None if options.split else limits.questions),
        ("options", asks.options, limits.options),
        ("levels", asks.levels, limits.levels),
    ):
        if allowed is not None and requested > allowed:
            raise PlannerdError(
                Reason.DECISION_MODEL_LIMIT,
                f"The decision model '{named.name}' takes at most {allowed} {limit} in one request, but this "
                f"planner may need {requested}. {_ADVICE[limit]}",
                metadata={
                    "limit": limit,
                    "allowed": str(allowed),
                    "requested": str(requested),
                    "model": named.name,
                },
            )


class Decider:
    """The decisions of one step.

    Args:
        models: the server's models.
        named: the invocation's model; None where its planner asks none.
        options: of the invocation.
        default_timeout: seconds for one request where the client sets none.
        clock: monotonic seconds.
        claim: called before the first request, so that no other process decides the same at the same time.
        parts_at_once: how many parts of one decision are asked side by side.
        model: as it named itself in the step before; empty where there was none.
        observer: hears of each request.

    Attributes:
        records: the requests that were answered, each part of a decision on its own.
        warnings: what went not quite right with them.
        model: as it named itself last.
    """

    def __init__(
        self,
        models: DecisionModels,
        named: NamedModel | None,
        options: InvocationOptions,
        default_timeout: float,
        clock: Callable[[], float],
        claim: Callable[[], Awaitable[None]] | None = None,
        *,
        parts_at_once: int = 4,
        model: str = "",
        observer: DecisionObserver = UNOBSERVED,
    ) -> None:
        self._models = models
        self._named = named
        self._options = options
        self._timeout = options.timeout or default_timeout
        self._clock = clock
        self._claim = claim
        self._at_once = parts_at_once
        self._observer = observer
        self._input_digest = b""
        self.records: list[DecisionRecord] = []
        self.warnings: list[Warn] = []
        self.model = model

    async def ask(self, request: DecisionRequest) -> Answers:
        """Ask; each request within the model's time-out. A call whose own deadline passes is cancelled.

        Raises:
            PlannerdError: what `DecisionModels.ask` raises, or DECISION_MODEL_UNEXPECTED. What fails one part of
                a decision fails all of it: no record is kept, and parts that are still being asked are cancelled.
            OutdatedError: somebody else went on with the invocation.
        """
        if self._named is None:
            raise RuntimeError("a planner that declared no questions asks one")
        if self._claim is not None:
            await self._claim()
            self._claim = None
        parts = split(request, self._named.model.limits.questions if self._options.split else None)
        self._input_digest = b""
        if self._options.explain is not ExplainLevel.NONE:
            self._input_digest = digest([[field.name, field.value] for field in request.input])
        if len(parts) == 1:
            records = [await self._ask(self._named, request)]
        else:
            check_request(request)  # two parts could have questions of the same name
            records = await self._side_by_side(self._named, parts)
        for record in records:
            self._note(record)
        self.records.extend(records)
        return {name: answer for record in records for name, answer in record.response.answers.items()}

    async def _side_by_side(self, named: NamedModel, parts: Sequence[DecisionRequest]) -> list[DecisionRecord]:
        """Ask all parts, a few at a time; their records in the order of the parts."""
        answered: dict[int, DecisionRecord] = {}
        failed: dict[int, Exception] = {}
        waiting = iter(enumerate(parts, start=1))

        async def worker() -> None:
            # A worker whose part fails takes no other: nothing is asked, and paid for, in vain.
            for number, part in waiting:
                try:
                    answered[number] = await self._ask(named, part, number, len(parts))
                except Exception as error:
                    failed[number] = error
                    raise

        try:
            async with asyncio.TaskGroup() as group:
                workers = [group.create_task(worker()) for _ in range(min(self._at_once, len(parts)))]
        except ExceptionGroup:
            # One failure tells the client enough; of several it is that of the earliest part.
            raise failed[min(failed)] from None
        for ended in workers:
            ended.result()  # a model that cancels itself is no failure to a task group
        return [answered[number] for number in sorted(answered)]

    async def _ask(self, named: NamedModel, request: DecisionRequest, part: int = 0, parts: int = 0) -> DecisionRecord:
        started = self._clock()
        try:
            response = await self._models.ask(named, request, self._timeout)
        except BaseException as error:
            self._observer.unanswered(named, request, error, self._clock() - started, part, parts)
            raise
        seconds = self._clock() - started
        record = DecisionRecord(
            named.name, named.model.provider, request, response, self._input_digest, seconds, part, parts
        )
        self._observer.answered(record)
        if self._options.strict and self._is_unexpected(response.model):
            raise PlannerdError(
                Reason.DECISION_MODEL_UNEXPECTED,
                self._unexpected(response.model),
                metadata={"expected": self._options.expected_model, "resolved": response.model},
            )
        return record

    # ---- warnings ----------------------------------------------------------------------------------

    def _note(self, record: DecisionRecord) -> None:
        """Warn of what is odd about an answer. What several parts have in common is said once."""
        response = record.response
        if response.truncation is not None:
            cut = response.truncation
            self._warn(
                WarningCode.INPUT_TRUNCATED,
                f"The input of the decision was cut from {cut.original_chars} to {cut.used_chars} characters "
                f"to fit the model '{response.model}'.",
            )
        if questions := contradictory_means(record.request.questions, response.answers):
            others = f" and {len(questions) - 1} more" if len(questions) > 1 else ""
            self._warn(
                WarningCode.MEAN_CONTRADICTS_PROBABILITIES,
                f"The mean in the answer to '{questions[0]}'{others} is not what the probabilities of the levels come "
                "to; the mean counts.",
            )
        if self._is_unexpected(response.model):
            self._warn(WarningCode.MODEL_UNEXPECTED, self._unexpected(response.model))
        if self.model and self.model != response.model:
            self._warn(
                WarningCode.MODEL_CHANGED,
                f"The parts of one decision were answered by '{self.model}' and by '{response.model}'; numbers of "
                "two models may not be comparable."
                if record.part > 1
                else f"The model '{response.model}' answered, and '{self.model}' the time before; the same "
                "thresholds may mean something else now.",
            )
        self.model = response.model

    def _warn(self, code: WarningCode, message: str) -> None:
        warning = Warn(code, message)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _is_unexpected(self, model: str) -> bool:
        return bool(self._options.expected_model) and model != self._options.expected_model

    def _unexpected(self, model: str) -> str:
        return (
            f"The thresholds were tuned on the model '{self._options.expected_model}', but '{model}' answered; "
            "tune them again or select the expected model."
        )
