"""The execution states that are kept, for tests that change them."""

from __future__ import annotations

import json
from typing import Any

from plannerd.errors import PlannerdError, Reason
from plannerd_protos.planner.v1 import step_pb2
from tests.golden.states import files, resuming, state_of
from tests.support.engine import Client, refused

REASONS = {
    Reason.INVALID_EXECUTION_STATE,
    Reason.STATE_OF_OTHER_PLANNER,
    Reason.STATE_NEWER,
    Reason.LIVE_AGENT_MISSING,
    Reason.LIMIT_EXCEEDED,  # of the larger ones
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files() if path.parent.name == "v1"
}
STATES: dict[str, dict[str, Any]] = {name: json.loads(item["state"]["data"]) for name, item in DOCUMENTS.items()}


async def resumed(client: Client, state: step_pb2.ExecutionState) -> bool:
    """Whether a state is restored; if it is refused, then for a known reason, and nothing is stored."""
    try:
        await client.init(state)
    except PlannerdError as error:
        refusal = error
    else:
        return True
    assert refusal.reason in REASONS, refusal
    assert len(refusal.message) < 8000
    assert len(client.server.memory) == 0
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.where()
    return False


async def attempt(name: str, data: bytes) -> bool:
    """Whether the state of a document is restored with other data."""
    state = state_of(DOCUMENTS[name])
    state.data = data
    return await resumed(resuming(DOCUMENTS[name]), state)
