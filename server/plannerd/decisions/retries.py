"""Attempts at a request to a model: how long each may take, how many there are, how long to wait in between.

Everything stays inside the time that the request has. A wait that does not fit is not begun: who asks is
told at once, and how long the model wants to be left alone.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from plannerd.errors import PlannerdError, Reason

T = TypeVar("T")

RETRIES_SPENT: Final = "retries_spent"
"""The metadata key of an error after which the server has tried as often as it may: clients should not repeat it."""

LONGEST_RETRY_AFTER: Final = 86_400.0
"""What a model asks for beyond this counts as this, in seconds."""


class AttemptError(Exception):
    """An attempt failed in a way that may pass.

    Args:
        problem: what happened, as it goes on after the model's name: "answered 503". No content, address or secret.
        retry_after: seconds for which the model wants to be left alone, where it says so.
    """

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How a request is tried again.

    Attributes:
        retries: attempts after the first; 0: none.
        attempt_seconds: how long one attempt may take; None: as long as the request has.
        first_wait: seconds before the first retry; each further one waits twice as long.
        longest_wait: the longest of these waits. A model that asks for more is given more.
        jitter: the share of each wait that is left to chance, from 0 to 1.
    """

    retries: int = 2
    attempt_seconds: float | None = None
    first_wait: float = 0.25
    longest_wait: float = 5.0
    jitter: float = 0.5


class Retries:
    """Makes attempts at requests to one model.

    Args:
        model: the configured name, for errors.
        rules: how often, and how long to wait.
        clock: monotonic seconds.
        sleep: waits so many seconds.
        chance: numbers from 0 to 1.
    """

    def __init__(
        self,
        model: str,
        rules: RetryRules,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._model = model
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    async def run(self, attempt: Callable[[float | None], Awaitable[T]], timeout: float | None = None) -> tuple[T, int]:
        """What the first attempt that succeeds returns, and how many retries there were.

        Args:
            attempt: makes one attempt; is given the seconds that it has, after which it is cancelled. It raises
                AttemptError to be tried again; whatever else it raises ends the request.
            timeout: seconds for everything; None: no limit.

        Raises:
            PlannerdError: DECISION_MODEL_UNAVAILABLE, with the metadata `model`, `attempts` and, when no retry is
                left or no time for one, `retries_spent`; with `retry_after` if the last failure had one. What caused
                the last failure is its cause.
        """
        deadline = None if timeout is None else self._clock() + timeout
        tried = 0
        while True:
            tried += 1
            left = None if deadline is None else max(0.0, deadline - self._clock())
            try:
                return await self._attempt(attempt, left), tried - 1
            except AttemptError as error:
                failure = error
            if tried > self._rules.retries:
                raise self._given_up(failure, tried, "", spent=True) from failure.__cause__
            wait = self._wait(tried, failure.retry_after)
            left = math.inf if deadline is None else deadline - self._clock()
            if left <= 0:
                raise self._given_up(
                    failure, tried, "no time is left for another attempt", spent=True
                ) from failure.__cause__
            if wait >= left:
                what = f"another attempt would have to wait {_shown(wait)} s, and {_shown(left)} s are left"
                # What the model asks to wait may fit into another request; without that, the time is used up.
                spent = failure.retry_after is None
                raise self._given_up(failure, tried, what, spent=spent) from failure.__cause__
            await self._sleep(wait)

    async def _attempt(self, attempt: Callable[[float | None], Awaitable[T]], left: float | None) -> T:
        most = self._rules.attempt_seconds
        seconds = left if most is None else most if left is None else min(most, left)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await attempt(seconds)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AttemptError(f"did not answer within {seconds:.3g} s") from None

    def _wait(self, failures: int, asked: float | None) -> float:
        """What the model asks for, and the backoff on top, so that not all who were told the same come at once."""
        rules = self._rules
        backoff = min(rules.first_wait * 2.0 ** min(failures - 1, 64), rules.longest_wait)
        return (asked or 0.0) + backoff * (1 - rules.jitter * self._chance())

    def _given_up(self, failure: AttemptError, tried: int, why: str, *, spent: bool = False) -> PlannerdError:
        attempts = "1 attempt" if tried == 1 else f"{tried} attempts"
        message = f"decision model '{self._model}' {failure.problem} ({attempts})"
        metadata = {"model": self._model, "attempts": str(tried)}
        if spent:
            metadata[RETRIES_SPENT] = "true"
        return PlannerdError(
            Reason.DECISION_MODEL_UNAVAILABLE,
            f"{message}; {why}" if why else message,
            metadata=metadata,
            retry_after=failure.retry_after,
        )


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """The seconds that an HTTP response asks to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date.

    None where it says nothing, or nothing that can be understood. A date that is over means 0.

    Args:
        headers: of the response; lower-case names must find them.
        now: seconds since 1970.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, LONGEST_RETRY_AFTER)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value is not None:
        try:
            seconds = max(0.0, parsedate_to_datetime(value).timestamp() - now())
        except (ValueError, OverflowError):
            return None
    return None if seconds is None else min(seconds, LONGEST_RETRY_AFTER)


def _shown(seconds: float) -> str:
    """Seconds as people write them."""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
