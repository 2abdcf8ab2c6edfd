"""Positions: where an invocation stands, and what a request's base says about its sender."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the history of an invocation.

    Attributes:
        epoch: +1 whenever somebody takes the invocation over.
        revision: +1 with every committed step.
        branch: random; tells two forks of one history apart.
    """

    epoch: int
    revision: int
    branch: str

    def next(self) -> Position:
        """The position after one more step."""
        return replace(self, revision=self.revision + 1)

    def metadata(self) -> dict[str, str]:
        """For the metadata of an error."""
        return {"epoch": str(self.epoch), "revision": str(self.revision), "branch": self.branch}


class Relation(enum.Enum):
    """How a base relates to the current position (docs/contract.md, rows 9 to 13)."""

    CURRENT = "current"
    PREVIOUS = "previous"
    STALE = "stale"
    AHEAD = "ahead"
    FENCED = "fenced"
    FORKED = "forked"


def relate(base: Position, current: Position) -> Relation:
    """What a request based on `base` is to an invocation at `current`."""
    if base.epoch > current.epoch:
        return Relation.AHEAD
    if base.epoch < current.epoch:
        return Relation.FENCED
    if base.branch != current.branch:
        return Relation.FORKED
    if base.revision == current.revision:
        return Relation.CURRENT
    if base.revision > current.revision:
        return Relation.AHEAD
    return Relation.PREVIOUS if base.revision == current.revision - 1 else Relation.STALE
