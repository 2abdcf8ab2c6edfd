"""Init on top of what is already there: resume, replace, take over (docs/contract.md, rows 3 to 8b)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.commands import InitCommand
from plannerd.invocations.position import Position, Relation, relate
from plannerd.invocations.record import Definition, Record
from plannerd.invocations.state_format import restore
from plannerd.values import digest


def init_digest(command: InitCommand, definition: Definition) -> bytes:
    """Equal for two Inits that mean the same."""
    parts = hashlib.blake2b(digest_size=16)
    parts.update(definition.digest.encode())
    # Only what is set: a later version that knows more options gives the same digest for the same request.
    parts.update(repr((command.options.given(), command.state, command.take_over)).encode())
    parts.update(digest(command.planner_map))
    return parts.digest()


def resumed(fresh: Record, command: InitCommand) -> Record:
    """`fresh`, or where the command's state or planner map says.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE, STATE_OF_OTHER_PLANNER, STATE_NEWER, LIVE_AGENT_MISSING.
    """
    if command.state is not None:
        return restore(fresh, command.state)
    if command.planner_map:  # an empty one says that nothing was saved: begin anew
        state, warnings = fresh.definition.planner.load(command.planner_map, None)
        return replace(fresh, planner_state=state, warnings=tuple(warnings))
    return fresh


def check_replaceable(existing: Record, command: InitCommand) -> None:
    """Refuse an Init without take-over unless it resumes from where the invocation is, or from further on.

    Raises:
        PlannerdError: INVOCATION_ALREADY_EXISTS or STATE_OUTDATED.
    """
    current = existing.position
    if command.state is None:
        raise PlannerdError(
            Reason.INVOCATION_ALREADY_EXISTS,
            f"The invocation id '{command.invocation_id}' is in use by another Init. Choose another id, or "
            "resume with take_over.",
            metadata=current.metadata(),
        )
    relation = relate(command.state.position, current)
    never_stepped = existing.action is None and relation is Relation.FORKED
    if relation not in (Relation.CURRENT, Relation.AHEAD) and not never_stepped:
        raise PlannerdError(
            Reason.STATE_OUTDATED,
            f"The state is of revision {command.state.position.revision}, but the invocation is at "
            f"{current.revision} here. Use the newer state, or take the invocation over with take_over.",
            metadata=current.metadata(),
        )


def taken_over(record: Record, existing: Record | None, branch: str) -> Record:
    """`record` on a new branch, in an epoch after every one that is known: former owners are fenced."""
    epoch = max(record.position.epoch, existing.position.epoch if existing else 0)
    return replace(record, position=Position(epoch + 1, record.position.revision, branch))
