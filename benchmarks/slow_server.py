"""The command plannerd with decision models that take their time: `python -m benchmarks.slow_server serve`.

Each request to a model waits for a random time of up to SLOWEST seconds before the configured model
answers it. Everything else is a server as any other.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import plannerd.app
from plannerd.cli import main
from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.model import DecisionModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.settings import ModelSettings

SLOWEST = 0.1


class SlowModel:
    """Another model that thinks before it answers."""

    def __init__(self, inner: DecisionModel) -> None:
        self._inner = inner
        self._random = random.Random(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def decide(self, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
        """Wait, then ask the other one."""
        await asyncio.sleep(SLOWEST * self._random.random())
        return await self._inner.decide(request, timeout)


def make_models_slow() -> None:
    """From now on, whatever model this process makes takes its time."""
    configured = plannerd.app.build_model

    def slow(name: str, chosen: ModelSettings) -> DecisionModel:
        return SlowModel(configured(name, chosen))

    plannerd.app.build_model = slow


if __name__ == "__main__":
    make_models_slow()
    sys.exit(main())
