"""Every case, against replicas that share a store."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from plannerd.invocations.definitions import Definitions
from plannerd.invocations.stores import MemoryBounds, Store
from tests.conformance.cases import Case, load
from tests.conformance.runner import run
from tests.conformance.scripts import MODES
from tests.conformance.targets import InProcess
from tests.support.redis import Stores


@pytest.mark.parametrize("case", load(), ids=lambda case: case.id)
async def test_replicas_with_a_shared_store(case: Case, stores: Stores) -> None:
    """Each request goes to another replica than the one before, nobody carries a state, and nothing is different."""

    def shared() -> Callable[[Definitions], Store]:
        prefix = uuid.uuid4().hex
        return lambda definitions: stores.make(MemoryBounds(), time.monotonic, definitions, prefix=prefix)

    (minimal,) = (mode for mode in MODES if mode.name == "minimal")
    await run(case, InProcess(shared, in_turns=True), minimal)
