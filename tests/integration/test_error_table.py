"""The error table, walked from end to end: each reason is provoked at a real server, by unary calls and by streams."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import grpc
import grpc.aio
import pytest

from plannerd.errors import Reason
from plannerd.services.failures import CODES
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2
from tests.support.builders import scope_update
from tests.support.error_table import OF_CLIENTS, OF_OPERATORS, TABLE, UNPROVOKED, Entry
from tests.support.errors import SeenError
from tests.support.provocations import HANGS, gated
from tests.support.streams import until
from tests.support.ways import WAYS, unary

SOURCES = Path(__file__).resolve().parents[2] / "server" / "plannerd"


def test_the_table_is_whole() -> None:
    """Every reason of the enum is in the table, or is named with the reason why it can't be provoked."""
    names = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.DESCRIPTOR.values_by_name} - {
        "UNSPECIFIED"
    }
    listed = [entry.reason for entry in TABLE] + list(UNPROVOKED) + list(OF_OPERATORS) + list(OF_CLIENTS)
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize("reason", UNPROVOKED)
def test_what_cant_be_provoked_is_raised_nowhere(reason: str) -> None:
    """No code gives a reason that the table leaves out."""
    users = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if f"Reason.{reason}" in path.read_text() and path.name != "failures.py"
    ]
    assert users == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.reason)
async def test_each_reason_over_the_wire(entry: Entry, way: str) -> None:
    """A reason comes with its code, its text, and the details that its row names: no more and no less."""
    async with entry.server(WAYS[way]) as walk:
        found = await asyncio.wait_for(entry.provoke(walk), 2 * HANGS)
    assert isinstance(found, SeenError), f"it did not fail: {found}"
    assert found.code is CODES[Reason[entry.reason]]
    assert found.code.name == entry.code
    if way in entry.unseen:
        assert found.reason is None
        return
    assert (found.domain, found.reason) == ("plannerd.dev", entry.reason)
    assert re.fullmatch(entry.text, found.text), found.text
    assert set(found.metadata) == entry.metadata
    assert all(found.metadata.values())
    assert tuple(path for path, _ in found.violations or ()) == entry.fields
    assert all(problem for _, problem in found.violations or ())
    assert (found.retry_after is not None) is entry.retry
    assert not re.search(r"Traceback|plannerd/|tangerine", found.text)


async def test_a_cancelled_call_is_logged_as_such() -> None:
    """Who cancels sees their own status, and the log has the reason CANCELLED."""
    async with gated(unary) as walk:
        await walk.init()
        request = planner_pb2.FirstActionRequest(
            invocation_id="i1", base=walk.position, scope=scope_update({"ticket": "t"})
        )
        call = walk.running.planner.FirstAction(request)
        await until(lambda: walk.server.model.waiting == 1)
        call.cancel()
        assert await call.code() is grpc.StatusCode.CANCELLED
        await until(lambda: walk.running.server.calls == 0)
    [line] = [line for line in walk.running.events("call") if line["method"].endswith("/FirstAction")]
    assert (line["code"], line["reason"]) == ("CANCELLED", "CANCELLED")
