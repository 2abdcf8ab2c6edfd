"""What an agent is given, and what it may return instead of an output."""

from __future__ import annotations

import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any


class Suspend(Exception):  # noqa: N818 -- it is no error: an agent raises or returns it
    """Returned or raised by an agent whose answer will come from outside, later.

    From a human agent it suspends the run until somebody answers. From an asynchronous agent it lets the planner
    go on, and the run suspends once the answer is needed.

    Args:
        request: what is asked, for whoever shows it to a human; any value that travels.
        response_id: under which the answer is given, unique in its invocation. Default: the id of the call.
    """

    def __init__(self, request: Any = None, *, response_id: str | None = None) -> None:
        super().__init__(request)
        self.request = request
        self.response_id = response_id


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Which call an agent serves. A parameter with this annotation gets it.

    Args:
        invocation_id: the invocation.
        call_id: the call. The same when it is retried, and when it runs again after a crash: an agent with side
            effects can make them happen once by remembering it.
        agent: the id of the agent.
        attempt: 1, and one more with each retry that an error handler asks for.
        scope: the shared scope. Agents may read and write any key; what they write reaches the planner with the
            next report. Changing a value in place is not noticed.
        deadline: when the time limit of the call ends, in seconds since the epoch; None without one.
        traceparent: the W3C trace context of the invocation; empty where it is not traced.
        final: whatever this call answers, no other call will follow.
    """

    invocation_id: str
    call_id: str
    agent: str
    attempt: int
    scope: MutableMapping[str, Any]
    deadline: float | None = None
    traceparent: str = ""
    final: bool = False
    _abandoned: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any longer: its time is over, or the run ended. Its output is dropped."""
        return self._abandoned.is_set()

    def abandon(self) -> None:
        """Tell the agent that nobody waits for it. For the runner."""
        self._abandoned.set()

    def remaining(self) -> float | None:
        """Seconds until the deadline, 0 when it is over, None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.time())
