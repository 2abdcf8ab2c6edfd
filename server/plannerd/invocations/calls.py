"""Calls of agents, and what clients report of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from plannerd.values import Opaque, Value


class CallStatus(enum.Enum):
    """How a live call stands; the names are those of `planner.v1.CallStatus`."""

    OUTSTANDING = "outstanding"
    PENDING = "pending"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class LiveCall:
    """A call that is not finished.

    Attributes:
        id: `<branch>.<revision>.<index>`.
        agent: the agent's position in the declaration.
        status: how it stands.
        told: the planner heard of it as pending, so it is not told again when the output arrives.
        response_id: where an answer is expected, for a suspended call.
        external: a pending answer comes from outside the client's process.
        final: no other call will follow.
    """

    id: str
    agent: int
    status: CallStatus = CallStatus.OUTSTANDING
    told: bool = False
    response_id: str = ""
    external: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Withheld:
    """The output stays with the client, as the server needs nothing of it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The call answered; `size` is the size of the output in bytes."""

    output: Value | Opaque | Withheld
    size: int = 0
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The client skipped the call."""


@dataclass(frozen=True, slots=True)
class WillAnswer:
    """The answer comes later by itself."""

    external: bool = False


@dataclass(frozen=True, slots=True)
class Suspended:
    """The call waits for somebody."""

    response_id: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The call failed and the client gave up."""

    type: str
    message: str


CallOutcome: TypeAlias = Answered | Skipped | WillAnswer | Suspended | Failed


@dataclass(frozen=True, slots=True)
class CallResult:
    """What became of the call `call_id`."""

    call_id: str
    outcome: CallOutcome


class IssuedCalls:
    """Which call ids an invocation ever issued: per branch the revision of each call, in order.

    It tells a call that was reported before from one that never was, at a few bytes a call.
    """

    __slots__ = ("branches",)

    def __init__(self, branches: dict[str, tuple[int, ...]] | None = None) -> None:
        self.branches = branches or {}

    def add(self, branch: str, revision: int) -> tuple[IssuedCalls, str]:
        """One more call of the step `revision`, and its id."""
        revisions = self.branches.get(branch, ())
        call_id = f"{branch}.{revision}.{revisions.count(revision)}"
        return IssuedCalls({**self.branches, branch: (*revisions, revision)}), call_id

    def __contains__(self, call_id: str) -> bool:
        branch, _, rest = call_id.partition(".")
        revision, _, index = rest.partition(".")
        if not (revision.isdecimal() and index.isdecimal() and len(rest) < 24):
            return False
        return int(index) < self.branches.get(branch, ()).count(int(revision))
