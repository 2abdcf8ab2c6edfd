"""plannerd in this process, with a model behind a host of System One."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from plannerd.app import build
from plannerd.settings import Settings
from plannerd_protos.planner.v1 import decision_pb2, decision_pb2_grpc, planner_pb2, planner_pb2_grpc
from tests.support.builders import agent, router, scope_update, wire
from tests.support.errors import SeenError, seen
from tests.support.services import Serving, captured_log, serving

HANGS: Final = 60.0
"""Seconds after which a call hangs; nothing that works comes near."""

PATIENCE: Final = 10.0
"""Seconds within which what is about to happen has happened, however busy the machine is."""

QUICK: Final[dict[str, Any]] = {"attempt_timeout_seconds": 0.5, "retry_wait_seconds": 0.01}
"""Settings of a model that is given up soon."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A plannerd that asks a host, and what its clients can do."""

    serving: Serving

    @property
    def planner(self) -> planner_pb2_grpc.PlannerServiceAsyncStub:
        """A stub of PlannerService."""
        return self.serving.planner

    @property
    def decisions(self) -> decision_pb2_grpc.DecisionModelServiceAsyncStub:
        """A stub of DecisionModelService."""
        return decision_pb2_grpc.DecisionModelServiceStub(self.serving.channel)

    async def init(self, request: planner_pb2.InitRequest, name: str = "i") -> planner_pb2.InitResponse:
        """Start an invocation that explains itself."""
        request.invocation_id = name
        request.explain = planner_pb2.EXPLAIN_LEVEL_FULL
        return await self.planner.Init(request, timeout=HANGS)

    async def routing(self, timeout: float | None = None, name: str = "i") -> planner_pb2.FirstActionRequest:
        """Start a router between two agents, whose first decision may take `timeout`; the request that decides."""
        request = router(agent("billing"), agent("support"), threshold=None)
        if timeout is not None:
            request.decision.timeout.FromMilliseconds(round(timeout * 1000))
        started = await self.init(request, name)
        return planner_pb2.FirstActionRequest(
            invocation_id=name, base=started.position, scope=scope_update({"ticket": "kumquat"})
        )

    async def failing(
        self, request: planner_pb2.FirstActionRequest | decision_pb2.DecideRequest, timeout: float = HANGS
    ) -> SeenError:
        """Send a request that must fail."""
        call: Any
        if isinstance(request, decision_pb2.DecideRequest):
            call = self.decisions.Decide(request, timeout=timeout)
        else:
            call = self.planner.FirstAction(request, timeout=timeout)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return seen(caught.value)


def yes_or_no(name: str = "goal") -> decision_pb2.DecideRequest:
    """A request with one question."""
    question = decision_pb2.Question(name=name, text="Reached?")
    question.yes_no.SetInParent()
    return decision_pb2.DecideRequest(
        input=[decision_pb2.InputField(name="request", value=wire("kumquat"))], questions=[question]
    )


@asynccontextmanager
async def asking(url: str, *, decision_timeout: float = HANGS, **model: Any) -> AsyncIterator[Asking]:
    """A plannerd whose only model, `jev`, is at `url`, with `model` as further settings of it."""
    async with asking_all({"jev": {"base_url": url, **model}}, decision_timeout=decision_timeout) as plannerd:
        yield plannerd


@asynccontextmanager
async def asking_all(
    models: Mapping[str, Mapping[str, Any]], *, decision_timeout: float = HANGS
) -> AsyncIterator[Asking]:
    """A plannerd with these models, of which the first is the default.

    When it has stopped, no task is left. Whether connections are is for the host to say.
    """
    before = asyncio.all_tasks()
    chosen = {name: {"provider": "systemone", "model": "jev-latest", **model} for name, model in models.items()}
    decisions = {"models": chosen, "default": next(iter(chosen)), "timeout_seconds": decision_timeout}
    with captured_log():
        app = build(Settings.model_validate({"decisions": decisions}))
    try:
        async with serving(*app.services, error_messages=True) as running:
            yield Asking(running)
    finally:
        await app.close()
    await until(lambda: asyncio.all_tasks() <= before)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that must come true by itself."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)
