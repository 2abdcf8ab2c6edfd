"""Attempts: how many, how far apart, and never beyond the time that the request has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from email.utils import formatdate

import pytest

from plannerd.decisions.retries import (
    LONGEST_RETRY_AFTER,
    RETRIES_SPENT,
    AttemptError,
    Retries,
    RetryRules,
    retry_after,
)
from plannerd.errors import PlannerdError, Reason

RULES = RetryRules(retries=2, first_wait=1, longest_wait=3)
NOW = 1_800_000_000.0


class World:
    """A clock that only sleeping moves, and attempts that fail as they are told."""

    def __init__(self, failures: Iterable[Exception] = (), *, chance: float = 0.0, takes: float = 0.0) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.given: list[float | None] = []
        self.failures = list(failures)
        self.chance = chance
        self.takes = takes

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def attempt(self, seconds: float | None) -> str:
        self.given.append(seconds)
        self.now += self.takes
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    def run(self, timeout: float | None = None, rules: RetryRules = RULES) -> tuple[str, int]:
        retries = Retries("m", rules, clock=lambda: self.now, sleep=self.sleep, chance=lambda: self.chance)
        return asyncio.run(retries.run(self.attempt, timeout))

    def failure(self, timeout: float | None = None, rules: RetryRules = RULES) -> PlannerdError:
        with pytest.raises(PlannerdError) as caught:
            self.run(timeout, rules)
        assert caught.value.reason is Reason.DECISION_MODEL_UNAVAILABLE
        return caught.value


def failures(count: int, retry_after: float | None = None) -> list[AttemptError]:
    return [AttemptError("answered 503", retry_after) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_retried_until_it_works(count: int) -> None:
    """A request whose attempts fail in passing succeeds in the end, and it is known how often it was retried."""
    world = World(failures(count))
    assert world.run() == ("answer", count)
    assert world.slept == [1, 2][:count]


def test_spent() -> None:
    """When no retry is left the error says so, how many attempts there were, and what the last one met."""
    error = World(failures(9)).failure()
    assert error.metadata == {"model": "m", "attempts": "3", RETRIES_SPENT: "true"}
    assert error.message == "decision model 'm' answered 503 (3 attempts)"
    assert error.retry_after is None


def test_no_retries() -> None:
    """With no retries the first failure is the last."""
    error = World(failures(1)).failure(rules=RetryRules(retries=0))
    assert error.metadata["attempts"] == "1"
    assert error.metadata[RETRIES_SPENT] == "true"


def test_other_errors_are_not_retried() -> None:
    """An error that does not pass ends the request at once."""
    world = World([PlannerdError(Reason.DECISION_MODEL_CREDENTIALS, "rejected")])
    with pytest.raises(PlannerdError, match="rejected"):
        world.run()
    assert len(world.given) == 1


def test_waits_grow_to_a_bound_and_leave_something_to_chance() -> None:
    """Waits double up to the longest one, and chance shortens each by no more than its share."""
    rules = RetryRules(retries=4, first_wait=1, longest_wait=3, jitter=0.5)
    for chance, expected in ((0.0, [1, 2, 3, 3]), (1.0, [0.5, 1, 1.5, 1.5])):
        world = World(failures(4), chance=chance)
        world.run(rules=rules)
        assert world.slept == expected


def test_never_sooner_than_the_model_asks() -> None:
    """What the model asks for is waited in full."""
    world = World(failures(2, retry_after=7), chance=1.0)
    world.run()
    assert all(wait >= 7 for wait in world.slept)


def test_a_wait_that_does_not_fit_is_not_begun() -> None:
    """If the wait is longer than the time that is left the request fails at once, and says what the model asks."""
    world = World(failures(1, retry_after=30))
    error = world.failure(timeout=10)
    assert world.slept == []
    assert error.retry_after == 30
    assert RETRIES_SPENT not in error.metadata
    assert "10 s are left" in error.message


def test_long_waits_are_said_in_plain_numbers() -> None:
    """A wait of a day is said in seconds that people can read."""
    error = World(failures(1, retry_after=86_400)).failure(timeout=1000)
    assert "have to wait 86401 s, and 1000 s are left" in error.message


def test_a_backoff_that_does_not_fit_is_not_begun_either() -> None:
    """The wait of the backoff is held against the deadline in the same way."""
    world = World(failures(2), takes=2)
    error = world.failure(timeout=6)
    assert world.slept == [1]
    assert world.given == [6, 3]
    assert error.metadata == {"model": "m", "attempts": "2", RETRIES_SPENT: "true"}
    assert error.retry_after is None


def test_an_attempt_has_no_more_than_what_is_left() -> None:
    """An attempt is given its own limit, or what is left of the request's time if that is less."""
    world = World(failures(1), takes=3)
    world.run(timeout=10, rules=RetryRules(retries=1, attempt_seconds=8, first_wait=1, jitter=0))
    assert world.given == [8, 6]


def test_slow_attempts_are_cancelled_and_retried() -> None:
    """An attempt that takes longer than it may is cancelled, and another one is made."""
    cancelled = 0

    async def attempt(seconds: float | None) -> str:
        nonlocal cancelled
        if cancelled == 1:
            return "answer"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        raise AssertionError("nobody waits that long")

    rules = RetryRules(retries=1, attempt_seconds=0.01, first_wait=0)
    assert asyncio.run(Retries("m", rules).run(attempt, 60)) == ("answer", 1)


def test_time_is_up_in_an_attempt() -> None:
    """When the request's time ends inside an attempt there is no other one, and clients need not try again."""

    async def attempt(seconds: float | None) -> str:
        await asyncio.sleep(3600)
        return "answer"

    with pytest.raises(PlannerdError, match=r"within 0\.02 s") as caught:
        asyncio.run(Retries("m", RULES).run(attempt, 0.02))
    assert caught.value.metadata == {"model": "m", "attempts": "1", RETRIES_SPENT: "true"}


def test_time_outs_of_an_attempt_itself_are_no_time_outs_of_the_request() -> None:
    """A TimeoutError that an attempt raises by itself is not taken for the end of its time."""

    async def attempt(seconds: float | None) -> str:
        raise TimeoutError("own")

    with pytest.raises(TimeoutError, match="own"):
        asyncio.run(Retries("m", RULES).run(attempt, 60))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5),
        ({"retry-after": " 5 "}, 5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0),
        ({"retry-after": "Sunday, 06-Nov-94 08:49:37 GMT"}, 0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 99 Foo 2026 08:49:37 GMT"}, None),
        ({"retry-after": "9" * 30}, LONGEST_RETRY_AFTER),
        ({"retry-after-ms": "250", "retry-after": "5"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "5"}, 5),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Retry-After is understood as seconds and as a date; what makes no sense is as if it were not there."""
    found = retry_after(headers, lambda: NOW)
    assert found == seconds if seconds is None else found == pytest.approx(seconds, abs=1e-6)
