"""planner.v1.DecisionModelService: decode, one call of a model, encode."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from plannerd.decisions import hops
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.wire import decode_request, encode_response
from plannerd.errors import check_limit
from plannerd.invocations.explanation import DecisionRecord
from plannerd.invocations.observer import UNOBSERVED, DecisionObserver
from plannerd.services.codec.replies import encode_duration
from plannerd.services.context import CallContext
from plannerd.wire.values import DEFAULT_LIMITS, ValueLimits
from plannerd_protos.planner.v1 import decision_pb2


@dataclass(frozen=True, slots=True)
class DecideLimits:
    """What one Decide may bring.

    Attributes:
        max_fields: fields of the input.
        max_questions: questions.
        max_parts: options and levels of all questions together.
        values: how deep the values of the input are nested, and how many there are.
    """

    max_fields: int = 1000
    max_questions: int = 201
    max_parts: int = 10_000
    values: ValueLimits = DEFAULT_LIMITS


class DecisionModelService:
    """Serves the configured decision models.

    Args:
        models: the models by name.
        timeout: seconds for one request to a model.
        clock: monotonic seconds.
        limits: what one request may bring.
        observer: hears of each request.
    """

    def __init__(
        self,
        models: DecisionModels,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        limits: DecideLimits = DecideLimits(),
        observer: DecisionObserver = UNOBSERVED,
    ) -> None:
        self._models = models
        self._timeout = timeout
        self._clock = clock
        self._limits = limits
        self._observer = observer

    async def Decide(self, request: decision_pb2.DecideRequest, call: CallContext) -> decision_pb2.DecideResponse:
        """Answer questions about an input."""
        hops.arrived(call.hops)
        limits = self._limits
        parts = sum(len(question.choice.options) + len(question.scale.levels) for question in request.questions)
        check_limit("max_scope_keys", "The fields of the input", len(request.input), limits.max_fields)
        check_limit("max_questions", "The questions", len(request.questions), limits.max_questions)
        check_limit("max_parts", "The options and levels", parts, limits.max_parts)
        decision = decode_request(request, limits.values)
        named = self._models.get(request.model or None)
        started = self._clock()
        try:
            response = await self._models.ask(named, decision, self._timeout)
        except BaseException as error:
            self._observer.unanswered(named, decision, error, self._clock() - started, 0, 0)
            raise
        seconds = self._clock() - started
        self._observer.answered(DecisionRecord(named.name, named.model.provider, decision, response, b"", seconds))
        reply = encode_response(decision, response)
        reply.latency.CopyFrom(encode_duration(seconds))
        return reply
