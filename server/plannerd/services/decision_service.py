"""planner.v1.DecisionModelService: decode, one call of a model, encode."""

from __future__ import annotations

import time
from collections.abc import Callable

from plannerd.decisions import hops
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.wire import decode_request, encode_response
from plannerd.services.codec.configuration import check_limit
from plannerd.services.codec.replies import encode_duration
from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import decision_pb2


class DecisionModelService:
    """Serves the configured decision models.

    Args:
        models: the models by name.
        timeout: seconds for one request to a model.
        max_fields: fields of one input.
        max_questions: questions of one request.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        models: DecisionModels,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_fields: int = 1000,
        max_questions: int = 201,
    ) -> None:
        self._models = models
        self._timeout = timeout
        self._clock = clock
        self._max_fields = max_fields
        self._max_questions = max_questions

    async def Decide(self, request: decision_pb2.DecideRequest, call: CallContext) -> decision_pb2.DecideResponse:
        """Answer questions about an input."""
        hops.arrived(call.hops)
        check_limit("max_scope_keys", "The fields of the input", len(request.input), self._max_fields)
        check_limit("max_agents", "The questions", len(request.questions), self._max_questions)
        decision = decode_request(request)
        named = self._models.get(request.model or None)
        started = self._clock()
        response = await self._models.ask(named, decision, self._timeout)
        reply = encode_response(decision, response)
        reply.latency.CopyFrom(encode_duration(self._clock() - started))
        return reply
