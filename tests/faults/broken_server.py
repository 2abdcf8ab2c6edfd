"""The command plannerd with a store that loses every second write: `python -m tests.faults.broken_server serve`.

The storm must notice that: it is how we know that it would notice a bug.
"""

from __future__ import annotations

import sys
from typing import Any

from plannerd.cli import main
from plannerd.invocations.record import Record
from plannerd.invocations.stores import MemoryStore
from plannerd.invocations.stores.store import Kept, Key

_put = MemoryStore.put
_written: dict[Key, int] = {}


async def _put_sometimes(store: MemoryStore, key: Key, record: Record, expected: Kept | None, *more: Any) -> bool:
    """Say that a record was kept, and keep every second step only."""
    _written[key] = _written.get(key, 0) + 1
    return (record.reply is not None and _written[key] % 2 == 0) or await _put(store, key, record, expected, *more)


if __name__ == "__main__":
    MemoryStore.put = _put_sometimes  # type: ignore[method-assign, assignment]
    sys.exit(main())
