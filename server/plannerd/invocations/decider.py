"""Asks an invocation's decision model, and keeps a record of each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.explanation import DecisionRecord, ExplainLevel
from plannerd.invocations.record import InvocationOptions
from plannerd.planners.moves import Warn, WarningCode
from plannerd.values import digest


class Decider:
    """The decisions of one step.

    Args:
        models: the server's models.
        named: the invocation's model; None where its planner asks none.
        options: of the invocation.
        default_timeout: seconds for one request where the client sets none.
        clock: monotonic seconds.
        claim: called before the first request, so that no other process decides the same at the same time.
    """

    def __init__(
        self,
        models: DecisionModels,
        named: NamedModel | None,
        options: InvocationOptions,
        default_timeout: float,
        clock: Callable[[], float],
        claim: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._models = models
        self._named = named
        self._options = options
        self._default_timeout = default_timeout
        self._clock = clock
        self._claim = claim
        self.records: list[DecisionRecord] = []
        self.warnings: list[Warn] = []

    async def ask(self, request: DecisionRequest) -> DecisionResponse:
        """Ask, within the model's time-out; when the call's own deadline passes, the call is cancelled.

        Raises:
            PlannerdError: what `DecisionModels.ask` raises, or DECISION_MODEL_UNEXPECTED.
            OutdatedError: somebody else went on with the invocation.
        """
        if self._named is None:
            raise RuntimeError("a planner that declared no questions asks one")
        if self._claim is not None:
            await self._claim()
            self._claim = None
        timeout = self._options.timeout or self._default_timeout
        started = self._clock()
        response = await self._models.ask(self._named, request, timeout)
        seconds = self._clock() - started
        self._expect(response)
        explain = self._options.explain is not ExplainLevel.NONE
        self.records.append(
            DecisionRecord(
                self._named.name,
                self._named.model.provider,
                request,
                response,
                digest([[field.name, field.value] for field in request.input]) if explain else b"",
                seconds,
            )
        )
        if response.truncation is not None:
            cut = response.truncation
            self.warnings.append(
                Warn(
                    WarningCode.INPUT_TRUNCATED,
                    f"The input of the decision was cut from {cut.original_chars} to {cut.used_chars} characters "
                    f"to fit the model '{response.model}'.",
                )
            )
        return response

    def _expect(self, response: DecisionResponse) -> None:
        expected = self._options.expected_model
        if not expected or response.model == expected:
            return
        message = (
            f"The thresholds were tuned on the model '{expected}', but '{response.model}' answered; "
            "tune them again or select the expected model."
        )
        if self._options.strict:
            raise PlannerdError(
                Reason.DECISION_MODEL_UNEXPECTED,
                message,
                metadata={"expected": expected, "resolved": response.model},
            )
        self.warnings.append(Warn(WarningCode.MODEL_UNEXPECTED, message))
