"""Calls of agents, and what clients report of them."""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from plannerd.values import Opaque, Value

MAX_NUMBER_CHARS: Final = 24


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


Run: TypeAlias = tuple[int, int, int]
"""Steps from one revision to another that issued the same number of calls each: (first, last, calls)."""


@dataclass(frozen=True, slots=True)
class IssuedCalls:
    """Which call ids an invocation ever issued, per branch, as runs of steps.

    It tells a call that was reported before from one that never was, and stays small however long the
    invocation gets.
    """

    branches: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)

    def add(self, branch: str, revision: int) -> tuple[IssuedCalls, str]:
        """One more call of the step `revision`, the latest so far, and its id."""
        runs = list(self.branches.get(branch, ()))
        index = 0
        if runs and runs[-1][1] == revision:
            first, last, index = runs.pop()
            if first < last:
                runs.append((first, last - 1, index))
        calls = index + 1
        if runs and runs[-1][1] == revision - 1 and runs[-1][2] == calls:
            runs[-1] = (runs[-1][0], revision, calls)
        else:
            runs.append((revision, revision, calls))
        return IssuedCalls({**self.branches, branch: tuple(runs)}), f"{branch}.{revision}.{index}"

    def __contains__(self, call_id: str) -> bool:
        branch, _, rest = call_id.partition(".")
        revision, _, index = rest.partition(".")
        # ASCII digits in their shortest form, or one call would have several ids.
        if len(rest) > MAX_NUMBER_CHARS or rest != f"{_number(revision)}.{_number(index)}":
            return False
        runs = self.branches.get(branch, ())
        place = bisect_right(runs, int(revision), key=_first) - 1  # they are in order, and a hostile state has many
        return place >= 0 and int(revision) <= runs[place][1] and int(index) < runs[place][2]


def _first(run: Run) -> int:
    return run[0]


def _number(text: str) -> str:
    return str(int(text)) if text.isascii() and text.isdecimal() else "?"
