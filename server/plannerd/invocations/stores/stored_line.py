"""An invocation in a line, from the few fields of a stored record that this takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from plannerd.invocations.stores.stored_record import OWNER, load_tombstone, read_position
from plannerd.invocations.summary import InvocationStatus, Summary, summarize

LINE_FIELDS: Final = (b"p", b"m", b"ended", OWNER)
"""What `load_line` reads."""


def load_line(place: str, stored: Mapping[bytes, bytes | None]) -> Summary | None:
    """The line of an invocation; None if it is gone meanwhile, or can't be read.

    Args:
        place: the part of the key that is the invocation's: a digest of the identity, and the id.
        stored: the fields.
    """
    invocation_id = place.partition(":")[2]
    position, meta, ended = (stored.get(name) for name in LINE_FIELDS[:3])
    if position is None:
        return None
    identity = (stored.get(OWNER) or b"").decode()
    try:
        if ended is not None:
            return summarize(identity, invocation_id, load_tombstone(position, ended))
        given = json.loads(meta or b"{}")
        planner, status, model, calls = given["line"]
        began, changed = given["times"]
        return Summary(
            identity,
            invocation_id,
            planner,
            InvocationStatus[status],
            read_position(position),
            model,
            began,
            changed,
            calls,
        )
    except (ValueError, KeyError, TypeError):
        return None  # of a newer version, or damaged: a listing is of what can be read
