"""Ways to make a request fail, at real servers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.message import Message

from plannerd.app import build
from plannerd.invocations.stores import MemoryBounds
from plannerd.settings import Settings
from plannerd.transport.handlers import Service
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2
from tests.support import hosts
from tests.support.builders import agent, beliefs_of, changed, output, router, scheduler, scope_update, withheld
from tests.support.engine import STORE_MAKER, Server
from tests.support.errors import SeenError
from tests.support.models import GatedModel, answering
from tests.support.redis import Stores, running_redis
from tests.support.security import Files, protected
from tests.support.services import PLANNER_SERVICE, Serving, captured_log, serving
from tests.support.streams import until
from tests.support.ways import Way

HANGS = 30.0
ID = "i1"


@dataclass
class Walk:
    """A client on its way to an error.

    Attributes:
        running: the server.
        way: how requests are sent.
        position: where the invocation is.
        step: its last step.
        server: the engine behind the server, where the test made it.
    """

    running: Serving
    way: Way
    server: Any = None
    position: step_pb2.Position = field(default_factory=step_pb2.Position)
    step: step_pb2.Step = field(default_factory=step_pb2.Step)

    async def ask(self, request: Message, timeout: float | None = None) -> Any:
        """Send a request; its answer, or how it failed."""
        answer: Any = await asyncio.wait_for(self.way(self.running.planner, request, timeout=timeout), HANGS)
        if isinstance(answer, planner_pb2.InitResponse):
            self.position = answer.position
        elif not isinstance(answer, SeenError | planner_pb2.EndResponse):
            self.step = answer.step
            self.position = self.step.position
        return answer

    async def init(self, request: planner_pb2.InitRequest | None = None, **fields: Any) -> Any:
        """Init, by default of a scheduler with two agents."""
        request = changed(request or system(), **fields)
        request.invocation_id = request.invocation_id or ID
        return await self.ask(request)

    async def first(self, scope: Any = None, timeout: float | None = None, **fields: Any) -> Any:
        """FirstAction with a ticket."""
        scope = {"ticket": "the kettle leaks"} if scope is None else scope
        request: Any = planner_pb2.FirstActionRequest(
            invocation_id=ID, base=self.position, scope=scope_update(scope), **fields
        )
        return await self.ask(request, timeout)

    async def next(self, *results: planner_pb2.AgentResult, base: step_pb2.Position | None = None) -> Any:
        """NextAction with these results."""
        request = planner_pb2.NextActionRequest(invocation_id=ID, base=base or self.position, results=results)
        return await self.ask(request)

    async def begun(self, request: planner_pb2.InitRequest | None = None, **fields: Any) -> None:
        """Init and FirstAction, which must work."""
        await self.init(request, **fields)
        answer = await self.first()
        assert isinstance(answer, planner_pb2.FirstActionResponse), answer

    @property
    def call(self) -> str:
        """The id of the first live call."""
        return self.step.calls[0].id


def system(*agents: agent_pb2.Agent, **options: Any) -> planner_pb2.InitRequest:
    """A scheduler, by default with two agents that run one after the other."""
    chosen = agents or (agent("write", "ticket", writes="draft"), agent("send", "draft", writes="sent"))
    return scheduler(*chosen, **options)


def useful(**more: Any) -> Any:
    """A model that finds both useful and the goal not reached."""
    return answering(**({"write": 3, "send": 3} | more))


# --- servers


@asynccontextmanager
async def at(way: Way, model: Any = None, **options: Any) -> AsyncIterator[Walk]:
    """A server with a model of the test."""
    server = Server(model or useful(), **options)
    async with serving(Service(PLANNER_SERVICE, server.service)) as running:
        yield Walk(running, way, server)


@asynccontextmanager
async def at_host(way: Way, behaviour: Any, **model: Any) -> AsyncIterator[Walk]:
    """A server whose model is at a host of System One."""
    async with hosts.host(always=behaviour) as found:
        chosen = {"provider": "systemone", "model": "m", "base_url": found.url, "retry_wait_seconds": 0.01} | model
        with captured_log():
            app = build(Settings.model_validate({"decisions": {"models": {"far": chosen}}}))
        try:
            async with serving(*app.services) as running:
                yield Walk(running, way, found)
        finally:
            await app.close()


@asynccontextmanager
async def at_redis(way: Way, *arguments: str) -> AsyncIterator[Walk]:
    """A server with a Redis of its own, which is the walk's `server`."""
    with running_redis(*arguments) as redis:
        stores = Stores(redis.port)
        token = STORE_MAKER.set(
            lambda bounds, clock, definitions: stores.make(MemoryBounds(), clock, definitions, timeout=0.5)
        )
        try:
            server = Server(useful())
        finally:
            STORE_MAKER.reset(token)
        async with serving(Service(PLANNER_SERVICE, server.service)) as running:
            yield Walk(running, way, redis)
        await stores.close()


# --- ways to fail


async def no_id(walk: Walk) -> Any:
    return await walk.ask(system())


async def no_agents(walk: Walk) -> Any:
    request = system()
    del request.agents[:]
    return await walk.init(request)


async def not_finite(walk: Walk) -> Any:
    await walk.init()
    return await walk.first({"ticket": math.nan})


async def bad_condition(walk: Walk) -> Any:
    bad = agent("write", "ticket", writes="draft")
    bad.activation.cel = "scope.ticket =="
    return await walk.init(system(bad))


async def bad_state(walk: Walk) -> Any:
    await walk.begun()
    return await walk.init(state=changed(walk.step.state, data=b"{"))


async def unknown_call(walk: Walk) -> Any:
    await walk.begun()
    return await walk.next(output("nobody", "x"))


async def no_belief(walk: Walk) -> Any:
    await walk.init(system(agent("write", "ticket", writes="draft", when_believed="it rains")))
    return await walk.first()


async def failed_belief(walk: Walk) -> Any:
    await walk.init(system(agent("write", "ticket", writes="draft", when_believed="it rains")))
    return await walk.first(beliefs=beliefs_of({"it rains": None}))


async def raw_bytes(walk: Walk) -> Any:
    await walk.init()
    return await walk.first({"ticket": b"raw"})


async def no_invocation(walk: Walk) -> Any:
    return await walk.ask(planner_pb2.ExecutionStateRequest(invocation_id=ID))


async def no_planner(walk: Walk) -> Any:
    request = system()
    request.plugin.name = "nobody.planner"
    return await walk.init(request)


async def no_model(walk: Walk) -> Any:
    return await walk.init(decision=planner_pb2.DecisionOptions(model="oracle"))


async def same_id(walk: Walk) -> Any:
    await walk.init()
    return await walk.init(system(goal="another one"))


async def too_early(walk: Walk) -> Any:
    await walk.init()
    return await walk.next()


async def reported_twice(walk: Walk) -> Any:
    await walk.begun()
    call = walk.call
    await walk.next(output(call, "a draft"))
    return await walk.next(output(call, "another one"))


async def finished(walk: Walk) -> Any:
    await walk.begun(system(agent("write", "ticket", writes="draft")))
    await walk.next(output(walk.call, "a draft"))
    assert walk.step.action.HasField("done")
    return await walk.next()


async def ended(walk: Walk) -> Any:
    await walk.begun()
    await walk.ask(planner_pb2.EndRequest(invocation_id=ID))
    return await walk.next(output(walk.call, "a draft"))


async def other_planner(walk: Walk) -> Any:
    await walk.begun()
    other = router(agent("write", "ticket", writes="draft"), agent("send", "ticket"), threshold=0.5)
    return await walk.init(other, state=walk.step.state)


async def newer_state(walk: Walk) -> Any:
    await walk.begun()
    return await walk.init(state=changed(walk.step.state, format_version=999))


async def no_live_agent(walk: Walk) -> Any:
    await walk.begun()
    return await walk.init(system(agent("send", "ticket", writes="sent")), state=walk.step.state)


async def opaque_where_read(walk: Walk) -> Any:
    await walk.begun()
    return await walk.next(withheld(walk.call))


async def nothing_to_decide_on(walk: Walk) -> Any:
    blind = (agent("look", "other?", writes="ticket"), agent("write", writes="draft"))
    await walk.init(system(*blind, excluded_output_keys=["ticket"]))
    return await walk.first()


async def stale(walk: Walk) -> Any:
    await walk.init()
    early = step_pb2.Position()
    early.CopyFrom(walk.position)
    await walk.first()
    await walk.next(output(walk.call, "a draft"))
    return await walk.next(base=early)


async def ahead(walk: Walk) -> Any:
    await walk.begun()
    return await walk.next(output(walk.call, "x"), base=changed(walk.position, revision=99))


async def outdated(walk: Walk) -> Any:
    await walk.begun()
    old = step_pb2.ExecutionState()
    old.CopyFrom(walk.step.state)
    await walk.next(output(walk.call, "a draft"))
    return await walk.init(state=old)


async def other_owner(walk: Walk) -> Any:
    await walk.begun()
    old, call = step_pb2.Position(), walk.call
    old.CopyFrom(walk.position)
    await walk.init(state=walk.step.state, take_over=True)
    return await walk.next(output(call, "a draft"), base=old)


async def too_many_agents(walk: Walk) -> Any:
    return await walk.init(system(*(agent(f"a{number}", "ticket", writes=f"k{number}") for number in range(6))))


async def one_more(walk: Walk) -> Any:
    await walk.init()
    return await walk.init(invocation_id="another")


async def too_long_a_reply(walk: Walk) -> Any:
    await walk.init(max_reply_bytes=100)
    return await walk.first()


async def busy(walk: Walk) -> Any:
    """While one decision is under way and another one waits."""
    others = []
    for number in range(2):
        request = system()
        request.invocation_id = f"other{number}"
        opened = await walk.ask(request)
        others.append(
            asyncio.ensure_future(
                walk.way(
                    walk.running.planner,
                    planner_pb2.FirstActionRequest(
                        invocation_id=f"other{number}", base=opened.position, scope=scope_update({"ticket": "t"})
                    ),
                )
            )
        )
    await until(lambda: len(walk.server.requests) == 1)
    await asyncio.sleep(0.2)  # the second one waits in the server, where nobody sees it
    await walk.init()
    try:
        return await walk.first()
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def decide(walk: Walk) -> Any:
    await walk.init()
    return await walk.first()


async def two_questions(walk: Walk) -> Any:
    return await walk.init()


async def other_model(walk: Walk) -> Any:
    await walk.init(decision=planner_pb2.DecisionOptions(expected_model="oracle-2", strict=True))
    return await walk.first()


async def without_store(walk: Walk) -> Any:
    await walk.init()
    walk.server.stop()
    return await walk.first()


async def full_store(walk: Walk) -> Any:
    big = "x" * 60_000
    for number in range(200):
        request = system(goal=f"{number}{big}")
        request.invocation_id = f"big{number}"
        answer = await walk.ask(request)
        if isinstance(answer, SeenError):
            return answer
    raise AssertionError("the store is not full")


async def stopping(walk: Walk) -> Any:
    """A server that shuts down, over a connection that it has not closed yet."""
    gated = walk.server.model
    await walk.init()
    pending = asyncio.ensure_future(walk.first())
    await until(lambda: gated.waiting == 1)
    stop = asyncio.ensure_future(walk.running.server.stop())
    await asyncio.sleep(0.1)
    try:
        return await walk.ask(planner_pb2.ExecutionStateRequest(invocation_id=ID))
    finally:
        gated.gate.set()
        await pending
        await stop


async def unknown_token(walk: Walk) -> Any:
    return await walk.ask(planner_pb2.ExecutionStateRequest(invocation_id=ID))


async def out_of_time(walk: Walk) -> Any:
    await walk.init()
    try:
        return await walk.first(timeout=0.3)
    finally:
        walk.server.model.gate.set()


@asynccontextmanager
async def at_strict(way: Way) -> AsyncIterator[Walk]:
    """A server that wants a token, of which the walk has none."""
    with TemporaryDirectory() as folder:
        protection = protected(auth=Files(Path(folder)).tokens())
        async with serving(Service(PLANNER_SERVICE, Server(useful()).service), protection=protection) as running:
            yield Walk(running, way)


def scripted(**step: Any) -> Callable[[Way], Any]:
    """A server whose model answers, or fails, as it is written."""
    return lambda way: at(way, answering(step))


def gated(way: Way) -> Any:
    """A server whose model waits until it is let go."""
    return at(way, GatedModel(useful()))


class Broken:
    """A model with a bug."""

    provider = "fixed"
    repeatable = False
    limits = answering().limits
    asked: tuple[Any, ...] = ()

    async def decide(self, request: Any, timeout: float | None) -> Any:
        raise ZeroDivisionError("the secret is tangerine")

    async def close(self) -> None:
        pass
