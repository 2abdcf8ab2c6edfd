"""Runs a program of effects with threads."""

from __future__ import annotations

import inspect
import queue
import time
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from plannerd_client._effects import Abandon, Collect, Effect, Invoke, Launch, Outcome, Pause, Program, Send
from plannerd_client._workers import Worker

T = TypeVar("T")


class Sender(Protocol):
    """Sends a request of the RPC `method` and returns the response, or raises a `PlannerdError`."""

    def __call__(self, method: str, request: Message, timeout: float | None) -> Message: ...


def drive(program: Program[T], send: Sender) -> T:
    """Perform the effects of `program` and return what it returns. Blocks until then."""
    driver = _Driver(send)
    value: Any = None
    error: Exception | None = None
    try:
        while True:
            effect = program.send(value) if error is None else program.throw(error)
            value, error = None, None
            try:
                value = driver.perform(effect)
            except Exception as raised:  # noqa: BLE001 -- the program decides
                error = raised
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        program.close()
        driver.close()


class _Driver:
    def __init__(self, send: Sender) -> None:
        self._send = send
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._workers: dict[int, Worker] = {}

    def perform(self, effect: Effect) -> Any:
        match effect:
            case Send(method, request, timeout):
                return self._send(method, request, timeout)
            case Launch():
                self._workers[effect.token] = Worker(effect, self._outcomes.put)
            case Collect(seconds):
                return self._collect(seconds)
            case Pause(seconds):
                time.sleep(seconds)
            case Abandon(token):
                self._workers.pop(token).cancel()
            case Invoke(function, arguments):
                value = function(*arguments)
                if inspect.isawaitable(value):
                    if inspect.iscoroutine(value):
                        value.close()
                    raise TypeError(f"{function!r} is a coroutine function: only AsyncClient can call it")
                return value
        return None

    def close(self) -> None:
        """Tell agents that still run that nobody waits for them."""
        for worker in self._workers.values():
            worker.cancel()

    def _collect(self, seconds: float | None) -> list[Outcome]:
        outcomes = []
        try:
            outcomes.append(self._outcomes.get(timeout=seconds))
            while True:
                outcomes.append(self._outcomes.get_nowait())
        except queue.Empty:
            pass
        for outcome in outcomes:
            self._workers.pop(outcome.token, None)
        return outcomes
