"""Row 14 of the contract's state table: requests that come while a step is being made."""

from __future__ import annotations

import asyncio

from plannerd.errors import Reason
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import agent, scheduler
from tests.support.engine import Server, refused
from tests.support.models import GatedModel, answering, settle

SYSTEM = scheduler(
    agent("lookup", "ticket", writes="facts"),
    agent("expert", "facts", writes="advice"),
    agent("approver", "advice", writes="approval", human=True),
)
TICKET = {"ticket": "t1"}
ANSWERS = {"lookup": 3, "expert": 3, "approver": 3}


async def test_row_14_a_second_step_waits_for_the_first_and_is_then_judged() -> None:
    """A step that comes while another one is decided waits, and is then held against the new position."""
    model = GatedModel(answering(**ANSWERS))
    client = Server(model).client(SYSTEM)
    await client.init()
    first = asyncio.create_task(client.first(TICKET))
    await model.entered.wait()
    other = client.at(client.server)
    second = asyncio.create_task(other.first({"ticket": "t2"}))
    await settle()
    assert not second.done()
    assert model.waiting == 1
    model.gate.set()
    await first
    with refused(Reason.STALE_REVISION):
        await second
    assert client.server.decisions == 1


async def test_row_14_a_repeat_that_comes_early_waits_for_the_one_answer() -> None:
    """A client that resends before the answer is there gets the same bytes for both, for one decision."""
    model = GatedModel(answering(**ANSWERS))
    client = Server(model).client(SYSTEM)
    await client.init()
    request = planner_pb2.FirstActionRequest(invocation_id="i1", base=client.position)
    request.scope.set["ticket"].string_value = "t1"
    both = [asyncio.create_task(client.send_raw(request)) for _ in range(2)]
    await model.entered.wait()
    model.gate.set()
    replies = await asyncio.gather(*both)
    assert replies[0] == replies[1]
    assert client.server.decisions == 1


async def test_row_14_end_waits_for_the_step_in_flight() -> None:
    """End and a step in flight do not mix: the step is answered, and the invocation is gone afterwards."""
    model = GatedModel(answering(**ANSWERS))
    client = Server(model).client(SYSTEM)
    await client.init()
    step = asyncio.create_task(client.first(TICKET))
    await model.entered.wait()
    end = asyncio.create_task(client.at(client.server).end())
    model.gate.set()
    assert (await step).action.WhichOneof("kind") == "start"
    await end
    with refused(Reason.INVOCATION_ENDED):
        await client.where()
