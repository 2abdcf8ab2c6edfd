"""Where a request stands with the invocation that it is for (docs/contract.md, rows 2, 9 to 13 and 27)."""

from __future__ import annotations

from plannerd.conditions import Beliefs
from plannerd.errors import PlannerdError, Reason, Violation, invalid
from plannerd.invocations.position import Position, Relation, relate
from plannerd.invocations.record import Definition, Record, Tombstone
from plannerd.invocations.stores import Kept


def live(kept: Kept | None, invocation_id: str) -> Record:
    """The record that is kept (rows 2 and 27).

    Raises:
        PlannerdError: INVOCATION_NOT_FOUND or INVOCATION_ENDED.
    """
    if kept is None:
        raise PlannerdError(
            Reason.INVOCATION_NOT_FOUND,
            f"There is no invocation '{invocation_id}' here. Start it with Init, or continue it with "
            "Init(resume) from its last execution state.",
            metadata={"invocation_id": invocation_id},
        )
    if isinstance(kept.content, Tombstone):
        raise ended(invocation_id, kept.content)
    return kept.content


def place(record: Record, base: Position, digest: bytes) -> bytes | None:
    """Hold the base against the position (rows 9 to 13): the stored reply for a repeat, None to go on.

    Raises:
        PlannerdError: INVALID_REQUEST, STALE_REVISION, REPLICA_BEHIND or OWNER_CHANGED.
    """
    current = record.position
    if base.epoch < 1 or base.revision < 0 or not base.branch:
        raise invalid("base", "is no position: send back the one of the last answer, whole")
    match relate(base, current):
        case Relation.CURRENT:
            return None
        case Relation.FORKED if record.action is not None:
            raise owner_changed(record.invocation_id, current)
        case Relation.FENCED:
            raise owner_changed(record.invocation_id, current)
        case Relation.AHEAD | Relation.FORKED:
            # A fork of an invocation that has made no step here is one that went on elsewhere.
            raise PlannerdError(
                Reason.REPLICA_BEHIND,
                "This replica has an older copy of the invocation and dropped it. Continue here with "
                "Init(resume) from your last execution state.",
                metadata=current.metadata(),
            )
        case Relation.PREVIOUS if (
            record.reply is not None and record.reply.request_digest == digest and record.reply.base == base
        ):
            return record.reply.encoded
        case _:
            raise PlannerdError(
                Reason.STALE_REVISION,
                f"The base is revision {base.revision}, but the invocation is at {current.revision}: another "
                "request made that step. Ask ExecutionState where it stands.",
                metadata=current.metadata(),
            )


def check_beliefs(definition: Definition, beliefs: Beliefs) -> None:
    """Refuse a step without all beliefs.

    Raises:
        PlannerdError: MISSING_BELIEF.
    """
    missing = [name for name in definition.beliefs if name not in beliefs]
    if missing:
        raise PlannerdError(
            Reason.MISSING_BELIEF,
            f"beliefs: {', '.join(missing)} must be sent with every step; InitResponse.beliefs names them all.",
            violations=[Violation(f"beliefs[{name}]", "is missing") for name in missing],
            metadata={"beliefs": ",".join(missing)},
        )


def ended(invocation_id: str, tombstone: Tombstone) -> PlannerdError:
    """The error of whoever asks for an invocation that was ended."""
    how, metadata = "", {"invocation_id": invocation_id}
    if tombstone.ending is not None and tombstone.ending.by_operator:
        how, metadata["ended_by"] = f" by an operator ({tombstone.ending.message})", "operator"
    return PlannerdError(
        Reason.INVOCATION_ENDED,
        f"The invocation '{invocation_id}' was ended{how}. Start another one under a new id.",
        metadata=metadata,
    )


def owner_changed(invocation_id: str, current: Position) -> PlannerdError:
    """The error of who is not the owner, or not any more."""
    return PlannerdError(
        Reason.OWNER_CHANGED,
        f"Somebody took the invocation '{invocation_id}' over, or this is another fork of it. Stop.",
        metadata=current.metadata(),
    )
