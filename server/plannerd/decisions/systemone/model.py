"""A decision model behind `POST /v1/systemone`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.pacing import Pacing
from plannerd.decisions.questions import DecisionRequest
from plannerd.decisions.retries import Retries, RetryRules
from plannerd.decisions.systemone.host import Host, HostOptions
from plannerd.decisions.systemone.state import Form, make_state
from plannerd.decisions.systemone.wire import Reply, read_answers, wire_questions

LIMITS: Final = ModelLimits(options=255, levels=10)
"""What TypeSafe's own models take; other hosts take less."""

RETRIES: Final = RetryRules(attempt_seconds=10)
"""How requests are tried again by default."""


class SystemOneModel:
    """Asks a host that speaks System One: TypeSafe, OpenRouter, Ollama, llama.cpp, vLLM and others.

    Args:
        name: the configured name, for errors.
        host: how to reach it.
        limits: what one request may hold.
        form: whether the input is sent as a JSON object or as plain text.
        max_input_bytes: what the input is cut to, images aside.
        retries: how a request is tried again.
        concurrent: how many requests are under way at once.
        queue: how many more may wait.
        clock: monotonic seconds.

    Raises:
        ValueError: the host's certificates can't be read, or a number is too small.
    """

    provider: Final = "systemone"
    repeatable: Final = False

    def __init__(
        self,
        name: str,
        host: HostOptions,
        *,
        limits: ModelLimits = LIMITS,
        form: Form = "json",
        max_input_bytes: int = 256 << 10,
        retries: RetryRules = RETRIES,
        concurrent: int = 16,
        queue: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._name = name
        self._form = form
        self._max_input_bytes = max_input_bytes
        self._clock = clock
        self._pacing = Pacing(name, concurrent=concurrent, queue=queue, clock=clock)
        self._retries = Retries(name, retries, clock=clock)
        self._key = host.key
        self._host = Host(name, host)

    async def decide(self, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Answer every question of `request` within `timeout` seconds, the time in the queue included.

        Raises:
            PlannerdError: as `DecisionModel.decide` says, or DECISION_MODEL_REJECTED.
        """
        started = self._clock()
        # Beside the event loop: a megabyte of small values takes some hundred milliseconds.
        state = await asyncio.to_thread(make_state, request.input, self._form, self._max_input_bytes, self._name)
        questions = wire_questions(request.questions)

        async def attempt(_: float | None) -> Reply:
            return await self._host.ask(state.content, questions)

        async with self._pacing.turn():
            left = None if timeout is None else max(0.0, timeout - (self._clock() - started))
            reply, retries = await self._retries.run(attempt, left)
        return DecisionResponse(
            answers=read_answers(request.questions, reply),
            model=reply.resolved,
            usage=reply.counts,
            retries=retries,
            truncation=state.truncation,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, should the host repeat it."""
        return self._key.secrets

    async def close(self) -> None:
        """Close all connections."""
        await self._host.close()
