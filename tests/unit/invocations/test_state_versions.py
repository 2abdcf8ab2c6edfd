"""Replicas are upgraded one by one: a new one writes what the old ones can read, until it is told otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from plannerd.app import BuildError, build
from plannerd.errors import Reason
from plannerd.invocations import state_format
from plannerd.invocations.record import Record
from plannerd.invocations.state_format import FORMATS, StateFormat
from plannerd.planners.fields import Fields
from plannerd.settings import load
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import agent, output, router, scheduler
from tests.support.engine import Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
PARALLEL = router(agent("billing", "ticket"), agent("shipping", "ticket"))
TICKET = {"ticket": "t1"}


_SHARED = (
    "planner", "cursor", "action", "issued", "finished", "waiting", "held", "marks", "config", "model", "traceparent",
)  # fmt: skip


def _dump_2(record: Record) -> Mapping[str, object]:
    """As format 1, with another name for the live calls, and a field more."""
    data = dict(FORMATS[1].dump(record))
    return {"live": data.pop("calls"), "known": sorted(record.scope.values), **data}


def _load_2(fresh: Record, fields: Fields) -> Record:
    fields.items("known")
    inner = Fields({"calls": fields.items("live"), **{name: fields.get(name) for name in _SHARED}}, "state")
    record = FORMATS[1].load(fresh, inner)
    inner.done()
    return record


@contextmanager
def a_second_format() -> Iterator[None]:
    """Until the end of the context servers know a format 2."""
    FORMATS[2] = StateFormat(_dump_2, _load_2)
    try:
        yield
    finally:
        del FORMATS[2]


@pytest.mark.parametrize("request_", [SYSTEM, PARALLEL], ids=["scheduler", "router"])
async def test_the_newest_format_is_written_by_default(request_: planner_pb2.InitRequest) -> None:
    """Without the setting a server writes its newest format, restores that and every older one, and goes on."""
    rules = {"lookup": 3, "expert": 3, "billing": 0.9, "shipping": 0.8}
    old = await Server(answering(**rules)).started(request_)
    with a_second_format():
        new = await Server(answering(**rules)).started(request_)
        assert (old.state.format_version, new.state.format_version) == (1, 2)
        assert "live" in json.loads(new.state.data)
        for client in (old, new):
            there = client.at(Server(answering(**rules)))
            await there.resume(TICKET)
            assert there.live == client.live
            assert there.state.format_version == 2
            await there.next(output(next(call.id for call in there.step.calls), "f1"))


async def test_the_previous_format_may_be_written() -> None:
    """A new replica that is told to writes the previous format; an old one goes on from it, and a new one from that."""
    with a_second_format():
        new = await Server(answering(lookup=3, expert=3), state_format=1).started(SYSTEM)
    assert new.state.format_version == 1
    old = new.at(Server(answering(lookup=3, expert=3)))
    await old.resume(TICKET)
    await old.next(output(old.call("lookup"), "f1"))
    with a_second_format():
        back = old.at(Server(answering(expert=3, goal=1), state_format=1))
        await back.resume({**TICKET, "facts": "f1"})
        assert back.agents == {"expert": "outstanding"}
        await back.next(output(back.call("expert"), "a1"))
        assert back.kind == "done"
        assert back.state.format_version == 1


async def test_a_new_state_is_refused_by_an_old_replica_as_newer() -> None:
    """An old replica says STATE_NEWER and what it knows, so that the client tries another one, which goes on."""
    with a_second_format():
        new = await Server(answering(lookup=3)).started(SYSTEM)
    old = new.at(Server(answering(lookup=3)))
    with refused(Reason.STATE_NEWER) as caught:
        await old.init(old.state)
    assert caught.metadata == {"format_version": "2", "newest_known": "1"}
    assert len(old.server.memory) == 0
    with a_second_format():
        there = new.at(Server(answering(lookup=3)))
        await there.resume(TICKET)
        assert there.agents == {"lookup": "outstanding"}


async def test_formats_are_as_strict_as_each_other() -> None:
    """What is unknown or missing in a state is refused in every format, and one format's fields are not another's."""
    with a_second_format():
        new = await Server(answering(lookup=3)).started(SYSTEM)
        data = json.loads(new.state.data)
        for changed in ({**data, "unknown": 1}, {**data, "calls": data["live"]}):
            new.state.data = json.dumps(changed).encode()
            with refused(Reason.INVALID_EXECUTION_STATE):
                await new.at(Server()).init(new.state)


async def test_both_formats_are_listed() -> None:
    """ListPlanners says which formats a server restores."""
    with a_second_format():
        assert sorted(FORMATS) == [1, 2]
        server = Server()
        reply = await server.service.ListPlanners(planner_pb2.ListPlannersRequest(), server.client(SYSTEM)._context)
    assert all(list(info.state_formats) == [1, 2] for info in reply.planners)


def test_a_format_that_does_not_exist_is_refused_at_the_start() -> None:
    """A server that is told to write a format that it does not know does not start, and says which it knows."""
    settings = load(overrides={"invocations": {"state_format_version": 2}})
    with pytest.raises(BuildError, match=r"invocations\.state_format_version: .* known: 1$"):
        build(settings)
    with a_second_format():
        assert build(settings).services


def test_a_released_format_stays() -> None:
    """Format 1 is known, and the newest one is the highest number."""
    assert 1 in FORMATS
    assert state_format.newest_format() == max(FORMATS)
