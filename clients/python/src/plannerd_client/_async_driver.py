"""Runs a program of effects with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from plannerd_client._effects import Abandon, Collect, Effect, Invoke, Launch, Outcome, Pause, Program, Send
from plannerd_client._workers import Worker

T = TypeVar("T")


class AsyncSender(Protocol):
    """Sends a request of the RPC `method` and returns the response, or raises a `PlannerdError`."""

    async def __call__(self, method: str, request: Message, timeout: float | None) -> Message: ...


async def drive_async(program: Program[T], send: AsyncSender) -> T:
    """Perform the effects of `program` and return what it returns.

    Coroutine functions run as tasks of this loop, plain functions in threads. When this coroutine is cancelled, the
    tasks are cancelled with it.
    """
    driver = _Driver(send)
    value: Any = None
    error: Exception | None = None
    try:
        while True:
            effect = program.send(value) if error is None else program.throw(error)
            value, error = None, None
            try:
                value = await driver.perform(effect)
            except Exception as raised:  # noqa: BLE001 -- the program decides
                error = raised
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        program.close()
        await driver.close()


class _Driver:
    def __init__(self, send: AsyncSender) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._running: dict[int, tuple[Launch, Worker | asyncio.Task[None]]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()

    async def perform(self, effect: Effect) -> Any:
        match effect:
            case Send(method, request, timeout):
                return await self._send(method, request, timeout)
            case Launch():
                self._running[effect.token] = (effect, self._launch(effect))
            case Collect(seconds):
                return await self._collect(seconds)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Abandon(token):
                self._abandon(*self._running.pop(token))
            case Invoke(function, arguments):
                value = function(*arguments)
                return await value if inspect.isawaitable(value) else value
        return None

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has noticed."""
        for token in list(self._running):
            self._abandon(*self._running.pop(token))
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    def _launch(self, launch: Launch) -> Worker | asyncio.Task[None]:
        if launch.agent.is_coroutine:
            return self._loop.create_task(self._work(launch), name=f"plannerd-{launch.context.call_id}")
        return Worker(launch, self._deliver)

    async def _work(self, launch: Launch) -> None:
        try:
            outcome = Outcome(launch.token, await launch.function())
        except Exception as error:  # noqa: BLE001 -- the run decides what becomes of it
            outcome = Outcome(launch.token, error=error)
        except asyncio.CancelledError:
            if launch.context.cancelled:  # abandoned
                raise
            outcome = Outcome(launch.token, error=RuntimeError("the agent cancelled itself"))
        self._outcomes.put_nowait(outcome)

    def _deliver(self, outcome: Outcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over and nobody waits
            self._loop.call_soon_threadsafe(self._outcomes.put_nowait, outcome)

    async def _collect(self, seconds: float | None) -> list[Outcome]:
        outcomes = []
        try:
            async with asyncio.timeout(seconds):
                outcomes.append(await self._outcomes.get())
        except TimeoutError:
            pass
        while not self._outcomes.empty():
            outcomes.append(self._outcomes.get_nowait())
        for outcome in outcomes:
            self._running.pop(outcome.token, None)
        return outcomes

    def _abandon(self, launch: Launch, running: Worker | asyncio.Task[None]) -> None:
        launch.context.abandon()
        running.cancel()
        if isinstance(running, asyncio.Task):
            self._abandoned.add(running)
