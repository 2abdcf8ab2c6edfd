"""One call, as it stands in this process."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from plannerd_client._agents import AnyAgent
from plannerd_client._context import AgentContext
from plannerd_protos.planner.v1 import step_pb2


class Phase(enum.Enum):
    """Where a call stands in this process."""

    WAITING = enum.auto()
    """Not started: an argument has not arrived yet."""
    RUNNING = enum.auto()
    DELAYED = enum.auto()
    """Will be started again at `due`."""
    SUSPENDED = enum.auto()
    FINISHED = enum.auto()


@dataclass(slots=True)
class LiveCall:
    """One call. `due` is when its time is over, or when it is started again; `reported` says that it is pending."""

    message: step_pb2.Call
    agent: AnyAgent
    phase: Phase = Phase.WAITING
    attempt: int = 1
    token: int = 0
    due: float | None = None
    reported: bool = False
    context: AgentContext | None = None

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.message.id

    @property
    def busy(self) -> bool:
        """Whether it goes on by itself."""
        return self.phase in {Phase.RUNNING, Phase.DELAYED}
