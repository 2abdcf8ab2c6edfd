"""An invocation is visible to the identity that started it, and to nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from plannerd.invocations.stores import MemoryBounds
from plannerd.transport.handlers import Service
from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.support.builders import agent, changed, output, scheduler, scope_update
from tests.support.engine import STORE_MAKER, Server
from tests.support.errors import SeenError
from tests.support.models import GatedModel, answering
from tests.support.redis import Stores
from tests.support.security import ALICE, BOB, Files, protected
from tests.support.services import PLANNER_SERVICE, Serving, serving
from tests.support.streams import until
from tests.support.ways import WAYS, Metadata, Way

HANGS = 30.0


@pytest.fixture(params=["memory", "shared"])
def server(request: pytest.FixtureRequest) -> Callable[..., Server]:
    """Makes a server with either store."""
    if request.param == "memory":
        return Server

    stores: Stores = request.getfixturevalue("stores")

    def make(*arguments: Any, **options: Any) -> Server:
        token = STORE_MAKER.set(lambda bounds, clock, definitions: stores.make(bounds, time.monotonic, definitions))
        try:
            return Server(*arguments, **options)
        finally:
            STORE_MAKER.reset(token)

    return make


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[str(request.param)]


class Person:
    """Sends requests with a token."""

    def __init__(self, running: Serving, way: Way, metadata: Metadata) -> None:
        self.stub, self.way, self.metadata = running.planner, way, metadata

    async def ask(self, request: Message) -> Any:
        return await asyncio.wait_for(self.way(self.stub, request, metadata=self.metadata), HANGS)

    async def begin(self, invocation_id: str = "i1") -> step_pb2.Step:
        """The first step of an invocation."""
        opened = await self.ask(system(invocation_id))
        assert isinstance(opened, planner_pb2.InitResponse), opened
        answer = await self.ask(first(opened.position, invocation_id))
        assert isinstance(answer, planner_pb2.FirstActionResponse), answer
        return answer.step


@asynccontextmanager
async def people(server: Server, way: Way, folder: Path) -> AsyncIterator[tuple[Person, Person]]:
    """Alice and Bob, at a server."""
    service = Service(PLANNER_SERVICE, server.service)
    async with serving(service, protection=protected(auth=Files(folder).tokens())) as running:
        yield Person(running, way, ALICE), Person(running, way, BOB)


def useful() -> Any:
    return answering(write=3, send=3)


def system(invocation_id: str = "i1") -> planner_pb2.InitRequest:
    request = scheduler(agent("write", "ticket", writes="draft"), agent("send", "draft", writes="sent"))
    request.invocation_id = invocation_id
    return request


def first(base: step_pb2.Position, invocation_id: str = "i1") -> planner_pb2.FirstActionRequest:
    scope = scope_update({"ticket": "the kettle leaks"})
    return planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=base, scope=scope)


def report(step: step_pb2.Step) -> planner_pb2.NextActionRequest:
    return planner_pb2.NextActionRequest(
        invocation_id="i1", base=step.position, results=[output(step.calls[0].id, "a draft")]
    )


def requests(step: step_pb2.Step) -> list[Message]:
    """Every request about the invocation that its owner could send now, but End."""
    return [
        first(step.position),
        report(step),
        planner_pb2.ExecutionStateRequest(invocation_id="i1"),
    ]


async def test_another_identitys_invocation_is_not_found(
    server: Callable[..., Server], way: Way, tmp_path: Path
) -> None:
    """Whatever is asked about somebody else's invocation fails exactly as for one that never was."""
    async with people(server(useful()), way, tmp_path) as (alice, bob):
        step = await alice.begin()
        for request in requests(step):
            foreign = await bob.ask(request)
            absent = await bob.ask(changed(request, invocation_id="i2"))
            assert isinstance(foreign, SeenError)
            assert isinstance(absent, SeenError)
            assert foreign.reason == "INVOCATION_NOT_FOUND"
            assert repr(foreign).replace("i1", "i2") == repr(absent)
        answer = await alice.ask(report(step))
        assert [call.agent_id for call in answer.step.calls] == ["send$1"]


async def test_ending_another_identitys_invocation_does_nothing(
    server: Callable[..., Server], way: Way, tmp_path: Path
) -> None:
    """End of somebody else's invocation is OK, like that of none, and its owner goes on."""
    async with people(server(useful()), way, tmp_path) as (alice, bob):
        step = await alice.begin()
        for base in (None, step.position):
            answer = await bob.ask(planner_pb2.EndRequest(invocation_id="i1", base=base))
            assert isinstance(answer, planner_pb2.EndResponse)
        answer = await alice.ask(report(step))
        assert isinstance(answer, planner_pb2.NextActionResponse), answer


async def test_an_ended_invocation_is_not_found_by_others(
    server: Callable[..., Server], way: Way, tmp_path: Path
) -> None:
    """That somebody ended an invocation is told to them alone."""
    async with people(server(useful()), way, tmp_path) as (alice, bob):
        step = await alice.begin()
        await alice.ask(planner_pb2.EndRequest(invocation_id="i1", base=step.position))
        own, foreign = await alice.ask(report(step)), await bob.ask(report(step))
        assert (own.reason, foreign.reason) == ("INVOCATION_ENDED", "INVOCATION_NOT_FOUND")


async def test_the_same_id_of_two_identities_is_two_invocations(
    server: Callable[..., Server], way: Way, tmp_path: Path
) -> None:
    """An Init with an id that somebody else uses makes another invocation, and neither touches the other."""
    async with people(server(useful()), way, tmp_path) as (alice, bob):
        hers = await alice.begin()
        his = await bob.begin()
        assert hers.calls[0].id != his.calls[0].id
        assert (await bob.ask(report(hers))).reason in ("OWNER_CHANGED", "UNKNOWN_CALL")
        for person, step in ((alice, hers), (bob, his)):
            answer = await person.ask(report(step))
            assert [call.agent_id for call in answer.step.calls] == ["send$1"]
        await bob.ask(planner_pb2.EndRequest(invocation_id="i1"))
        answer = await alice.ask(planner_pb2.ExecutionStateRequest(invocation_id="i1"))
        assert [call.agent_id for call in answer.step.calls] == ["send$1"]


async def test_a_state_is_no_credential(server: Callable[..., Server], way: Way, tmp_path: Path) -> None:
    """Who restores somebody else's state has an invocation of their own; the other one stays where it was."""
    async with people(server(useful()), way, tmp_path) as (alice, bob):
        step = await alice.begin()
        opened = await bob.ask(changed(system(), state=step.state, take_over=True))
        assert isinstance(opened, planner_pb2.InitResponse), opened
        answer = await bob.ask(first(opened.position))
        assert isinstance(answer, planner_pb2.FirstActionResponse), answer
        answer = await alice.ask(report(step))
        assert isinstance(answer, planner_pb2.NextActionResponse), answer


async def test_others_do_not_wait_for_a_decision(server: Callable[..., Server], way: Way, tmp_path: Path) -> None:
    """While a decision for an invocation takes its time, others who name its id are answered at once."""
    model = GatedModel(useful())
    async with people(server(model), way, tmp_path) as (alice, bob):
        opened = await alice.ask(system())
        pending = asyncio.ensure_future(alice.ask(first(opened.position)))
        await until(lambda: model.waiting == 1)
        for request in requests(step_pb2.Step(position=opened.position, calls=[step_pb2.Call(id="b1.1.0")])):
            assert (await bob.ask(request)).reason == "INVOCATION_NOT_FOUND"
        assert isinstance(await bob.ask(planner_pb2.EndRequest(invocation_id="i1")), planner_pb2.EndResponse)
        assert isinstance(await bob.ask(system()), planner_pb2.InitResponse)
        assert not pending.done()
        assert model.waiting == 1
        model.gate.set()
        assert isinstance(await pending, planner_pb2.FirstActionResponse)


async def test_each_identity_has_its_own_number_of_invocations(
    server: Callable[..., Server], way: Way, tmp_path: Path
) -> None:
    """Who has as many invocations as one may have is refused another, and everybody else is not."""
    limited = server(useful(), bounds=MemoryBounds(max_per_identity=2))
    async with people(limited, way, tmp_path) as (alice, bob):
        for number in (1, 2):
            assert isinstance(await alice.ask(system(f"i{number}")), planner_pb2.InitResponse)
        assert (await alice.ask(system("i3"))).reason == "TOO_MANY_INVOCATIONS"
        await bob.ask(planner_pb2.EndRequest(invocation_id="i1"))
        assert (await alice.ask(system("i3"))).reason == "TOO_MANY_INVOCATIONS"
        assert isinstance(await bob.ask(system("i3")), planner_pb2.InitResponse)
        await alice.ask(planner_pb2.EndRequest(invocation_id="i1"))
        assert isinstance(await alice.ask(system("i3")), planner_pb2.InitResponse)
