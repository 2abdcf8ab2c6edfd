"""When a failed request is sent again, and when an invocation is set up again first."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plannerd_client.errors import PlannerdError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long a failed request is sent again. Requests are safe to repeat: a step happens once.

    Args:
        attempts: how often one request is sent at most; 1 never repeats it.
        total: seconds from the first failure of a request after which it is not repeated any more.
        first: seconds before the first repetition; each further one waits twice as long.
        longest: the longest wait in seconds. A server that asks for more is given more.
        jitter: the share of each wait that is left to chance, from 0 to 1.
    """

    attempts: int = 20
    total: float = 60.0
    first: float = 0.1
    longest: float = 5.0
    jitter: float = 0.5


class Remedy(enum.Enum):
    """What to do about a failed request."""

    RESEND = "resend"
    """Send it again as it is."""
    RESTORE = "restore"
    """Continue the invocation from its last state here, then send it again."""
    STOP = "stop"
    """Nothing helps."""


_RESEND_REASONS: Final = frozenset(
    {
        "DECISION_MODEL_UNAVAILABLE",
        "DECISION_QUEUE_FULL",
        "STORE_UNAVAILABLE",
        "STORE_FULL",
        "DRAINING",
        "DEADLINE_EXCEEDED",
        "STATE_NEWER",
    }
)
# OUT_OF_ORDER: this replica was told of the invocation, but the scope that followed went to another one.
_RESTORE_REASONS: Final = frozenset({"INVOCATION_NOT_FOUND", "REPLICA_BEHIND", "STALE_REVISION", "OUT_OF_ORDER"})
# The server has sent the request to its decision model as often as it may; each repetition would be as many attempts.
_RETRIES_SPENT: Final = "retries_spent"
# Without a reason the failure is not plannerd's own: a broken connection, a proxy, a process that was killed.
_RESEND_CODES: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})


def remedy(error: PlannerdError) -> Remedy:
    """What to do about `error`."""
    if error.metadata.get(_RETRIES_SPENT) == "true":
        return Remedy.STOP
    if error.reason in _RESTORE_REASONS:
        return Remedy.RESTORE
    if error.reason in _RESEND_REASONS or (error.reason and error.retry_after is not None):
        return Remedy.RESEND
    if not error.reason and error.code is not None and error.code.name in _RESEND_CODES:
        return Remedy.RESEND
    return Remedy.STOP


class Budget:
    """The attempts and the time that one request has left.

    Args:
        policy: the bounds.
        clock: seconds, from any start.
        chance: numbers from 0 to 1.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float], chance: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._started: float | None = None
        self.failures = 0

    def wait_before_next(self, retry_after: float | None) -> float | None:
        """Count a failure; seconds to wait before the next attempt, None when nothing is left.

        Args:
            retry_after: the least wait that the server asks for.
        """
        now = self._clock()
        self._started = now if self._started is None else self._started
        self.failures += 1
        if self.failures >= self._policy.attempts:
            return None
        wait = min(self._policy.first * 2.0 ** (self.failures - 1), self._policy.longest)
        wait = max(wait * (1 - self._policy.jitter * self._chance()), retry_after or 0.0)
        return wait if now + wait - self._started <= self._policy.total else None
