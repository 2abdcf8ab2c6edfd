"""The agents and steps that several tests share: a request is answered by a draft, which is polished."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from plannerd_client import RetryPolicy, Scheduler, agent
from plannerd_client._values import decode
from plannerd_protos.planner.v1 import step_pb2
from tests.client.world import PRESENCE, VALUE, call, done, start, step

calls: list[str] = []
"""Which agents ran."""


@agent(output_key="draft")
def write(request: str) -> str:
    calls.append("write")
    return f"draft of {request}"


@agent(output_key="reply")
def polish(draft: str) -> str:
    calls.append("polish")
    return draft.upper()


def broken() -> None:
    raise ValueError("no")


READS = {"request": VALUE, "draft": VALUE, "approved": PRESENCE}

WRITE = step(1, start("w"), call("w", "write$0"))
POLISH = step(2, start("p"), call("p", "polish$1"))
DONE = step(3, done())


def failed_step() -> step_pb2.Step:
    give_up = step_pb2.GiveUp(reason=step_pb2.GIVE_UP_REASON_AGENT_FAILED)
    return step(9, step_pb2.Action(give_up=give_up))


def scope_of(request: Any) -> dict[str, Any]:
    """The values that a request carries, without those that are only tags."""
    return {
        key: "<pending>" if value.HasField("pending") else decode(value, key)
        for key, value in request.scope.set.items()
        if not value.HasField("opaque")
    }


# --- for real servers

SCHEDULER = Scheduler(goal="The reply is written", goal_threshold=0.6, activation_threshold=0.3)
REQUEST = {"request": "Where is my order?"}
PATIENT = RetryPolicy(attempts=50, total=60, first=0.05, longest=0.5)


class Log:
    """Agents that note when they ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def agent(self, name: str, reads: str, before: Callable[[], None] = lambda: None) -> Any:
        def work(**values: Any) -> str:
            self.calls.append(name)
            before()
            return f"{name} of {values[reads]}"

        work.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(reads, inspect.Parameter.KEYWORD_ONLY)]
        )
        return agent(name=name, output_key=name)(work)
