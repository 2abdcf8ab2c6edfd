"""Marks stand for values in execution states, without telling which values are equal in different invocations."""

from __future__ import annotations

import json

import pytest

from tests.support.builders import agent, output, scheduler
from tests.support.engine import Server
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))


async def mark(invocation_id: str) -> str:
    """The mark of the same output in an invocation of that id."""
    client = await Server(answering(lookup=3, expert=3)).started(SYSTEM, invocation_id=invocation_id)
    await client.next(output(client.call("lookup"), "f1"))
    return str(json.loads(client.state.data)["marks"]["facts"])


@pytest.mark.parametrize("common", ["", "i" * 63, "i" * 127, "\U0001f642" * 127])
async def test_equal_values_of_different_invocations_have_different_marks(common: str) -> None:
    """However long the ids are and however late they differ, marks can't be compared across invocations."""
    assert await mark(common + "1") == await mark(common + "1")
    assert await mark(common + "1") != await mark(common + "2")
