"""An invocation in a line, for operators: nothing of its content."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from plannerd.invocations.position import Position
from plannerd.invocations.record import AwaitCalls, Ending, Finished, Record, SuspendCalls, Tombstone
from plannerd.planners.moves import GiveUp


class InvocationStatus(enum.Enum):
    """How an invocation stands; the names are those of `planner.v1.InvocationStatus`."""

    READY = "ready"
    RUNNING = "running"
    AWAITING = "awaiting"
    SUSPENDED = "suspended"
    DONE = "done"
    GAVE_UP = "gave_up"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Summary:
    """An invocation in a line.

    Attributes:
        identity: whose it is.
        invocation_id: its id.
        planner: the planner's name; empty where it is not known any more.
        status: how it stands.
        position: where it is.
        model: the configured name of its decision model.
        began: when Init made it here, in seconds since the epoch.
        changed: when it was changed last, in the same way.
        calls: how many live calls it has.
        ending: how it was ended.
    """

    identity: str
    invocation_id: str
    planner: str
    status: InvocationStatus
    position: Position
    model: str = ""
    began: float = 0.0
    changed: float = 0.0
    calls: int = 0
    ending: Ending | None = None


def status_of(record: Record) -> InvocationStatus:
    """How an invocation stands."""
    match record.action:
        case None:
            return InvocationStatus.READY
        case AwaitCalls():
            return InvocationStatus.AWAITING
        case SuspendCalls():
            return InvocationStatus.SUSPENDED
        case Finished():
            return InvocationStatus.DONE
        case GiveUp():
            return InvocationStatus.GAVE_UP
        case _:
            return InvocationStatus.RUNNING


def summarize(identity: str, invocation_id: str, content: Record | Tombstone) -> Summary:
    """What is kept of an invocation, in a line."""
    if isinstance(content, Record):
        return Summary(
            identity,
            invocation_id,
            content.definition.kind,
            status_of(content),
            content.position,
            content.options.model,
            content.began,
            content.changed,
            len(content.calls),
        )
    ending = content.ending
    if ending is None:
        return Summary(identity, invocation_id, "", InvocationStatus.ENDED, content.position)
    return Summary(
        identity,
        invocation_id,
        ending.planner,
        InvocationStatus.ENDED,
        content.position,
        ending.model,
        ending.began,
        ending.at,
        ending=ending,
    )
