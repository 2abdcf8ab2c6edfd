"""What other replicas may do to an invocation while one of them asks a decision model about it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine

import pytest

from plannerd.errors import Reason
from tests.support.builders import agent, output, scheduler
from tests.support.engine import STORE_MAKER, Client, Server, refused
from tests.support.models import GatedModel, answering
from tests.support.redis import Stores

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))

Replicas = Callable[[], tuple[Server, GatedModel]]


@pytest.fixture
def replica(stores: Stores) -> Replicas:
    """Makes replicas that share a store, each with a decision model that is let go until a test says otherwise."""
    prefix = uuid.uuid4().hex

    def make() -> tuple[Server, GatedModel]:
        model = GatedModel(answering(lookup=3, expert=3))
        model.gate.set()
        token = STORE_MAKER.set(
            lambda bounds, clock, definitions: stores.make(bounds, clock, definitions, prefix=prefix)
        )
        try:
            return Server(model), model
        finally:
            STORE_MAKER.reset(token)

    return make


async def attach(client: Client) -> None:
    """Give the scope again."""
    with refused(Reason.STALE_REVISION):
        await client.first({"ticket": "t1"})


async def resume(client: Client) -> None:
    """Set the invocation up again."""
    with refused(Reason.STATE_OUTDATED):
        await client.init(client.state)


@pytest.mark.parametrize("other_request", [attach, resume, Client.end])
async def test_a_decision_is_not_made_worthless(
    replica: Replicas, other_request: Callable[[Client], Coroutine[None, None, None]]
) -> None:
    """Whatever another replica would write in the middle of a decision waits until that is committed."""
    (server, slow), (other, idle) = replica(), replica()
    here = await server.started(SYSTEM)
    there = here.at(other)
    slow.gate.clear()
    slow.entered.clear()
    asked = len(slow.asked)
    deciding = asyncio.create_task(here.next(output(here.call("lookup"), "f1")))
    await slow.entered.wait()
    writing = asyncio.create_task(other_request(there))
    await asyncio.sleep(0.3)
    assert not writing.done()
    slow.gate.set()
    assert (await deciding).position.revision == 2
    await writing
    assert (len(slow.asked) - asked, len(idle.asked)) == (1, 0)
