"""Runs agents in threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from plannerd_client._effects import Launch, Outcome


class Worker:
    """One attempt of an agent in a thread. A coroutine function gets an event loop there.

    A thread does not keep the program alive: one that was abandoned can't hold up its end.

    Args:
        launch: what to run.
        deliver: is called from the thread with the outcome.
    """

    def __init__(self, launch: Launch, deliver: Callable[[Outcome], None]) -> None:
        self._launch = launch
        self._deliver = deliver
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(self._work), name=f"plannerd-{launch.context.call_id}", daemon=True
        )
        thread.start()

    def cancel(self) -> None:
        """Cancel a coroutine. A plain function can't be stopped from outside: it may look at its context."""
        self._launch.context.abandon()
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    def _work(self) -> None:
        launch = self._launch
        try:
            value = asyncio.run(self._coroutine()) if launch.agent.is_coroutine else launch.function()
            outcome = Outcome(launch.token, value)
        except Exception as error:  # noqa: BLE001 -- the run decides what becomes of it
            outcome = Outcome(launch.token, error=error)
        except (asyncio.CancelledError, SystemExit) as error:
            outcome = Outcome(launch.token, error=RuntimeError(f"the agent ended by {type(error).__name__}"))
        self._deliver(outcome)

    async def _coroutine(self) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        return await self._launch.function()
