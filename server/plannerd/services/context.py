"""What a service knows about the call that it serves, beside the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _no_deadline() -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call, as the transport sees it.

    Attributes:
        identity: who calls; invocations are kept apart by it. Empty without authentication.
        operator: whether they are an operator (the setting `auth.operators`).
        time_remaining: seconds until the call's deadline; None without one.
        traceparent: the caller's W3C trace context, or empty.
        hops: through how many servers a question came, as the caller says it; or empty.
    """

    identity: str = ""
    operator: bool = False
    time_remaining: Callable[[], float | None] = _no_deadline
    traceparent: str = ""
    hops: str = ""
