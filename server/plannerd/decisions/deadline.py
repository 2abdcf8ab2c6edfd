"""The deadline of the call that a decision is made for.

The call is cancelled when it passes. A provider that would wait longer than that should rather say so at once, so it
must know. It is not handed down through planners and engine, which have no other use for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def _none() -> float | None:
    return None


_remaining: ContextVar[Callable[[], float | None]] = ContextVar("time_remaining", default=_none)


@contextmanager
def call_deadline(remaining: Callable[[], float | None]) -> Iterator[None]:
    """What happens inside is done for a call that has `remaining` seconds left; None: without a deadline."""
    token = _remaining.set(remaining)
    try:
        yield
    finally:
        _remaining.reset(token)


def seconds_left(timeout: float | None) -> float | None:
    """The lesser of `timeout` and what the call has left, at least 0; None: no limit."""
    left = _remaining.get()()
    if left is None:
        return timeout
    return max(0.0, left if timeout is None else min(left, timeout))
