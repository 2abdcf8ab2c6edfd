"""Every limit, over the wire: what is just within it works, what is just beyond is refused and told so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from plannerd.app import build
from plannerd.settings import load
from plannerd.transport.server import Server
from plannerd_protos.planner.v1 import (
    agent_pb2,
    decision_pb2,
    decision_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
    step_pb2,
    value_pb2,
)
from tests.support.builders import agent, bdi, desire, router, scheduler, scope_update
from tests.support.errors import SeenError, seen
from tests.support.services import captured_log

Call = Callable[["Caller"], Awaitable[object]]

BDI = bdi(agent("a", writes="x"), desires=(desire("d", "a", achievable="ticket", satisfied="x"),))


class Caller:
    """Calls one server.

    Args:
        channel: to it.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.planner: planner_pb2_grpc.PlannerServiceAsyncStub = planner_pb2_grpc.PlannerServiceStub(channel)
        self.models: decision_pb2_grpc.DecisionModelServiceAsyncStub = decision_pb2_grpc.DecisionModelServiceStub(
            channel
        )

    async def init(
        self, system: planner_pb2.InitRequest, invocation_id: str = "i", **fields: Any
    ) -> planner_pb2.InitResponse:
        request = planner_pb2.InitRequest(invocation_id=invocation_id, **fields)
        request.MergeFrom(system)
        return await self.planner.Init(request)

    async def first(
        self, system: planner_pb2.InitRequest, scope: Mapping[str, Any], invocation_id: str = "i"
    ) -> step_pb2.Step:
        base = (await self.init(system, invocation_id)).position
        request = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=base, scope=scope_update(scope))
        return (await self.planner.FirstAction(request)).step

    async def end(self, invocation_id: str) -> None:
        await self.planner.End(planner_pb2.EndRequest(invocation_id=invocation_id))


@asynccontextmanager
async def limited(**settings: Any) -> AsyncIterator[Caller]:
    """A caller of a server with these settings, `limits__max_agents=3`."""
    overrides: dict[str, Any] = {"server": {"port": 0}}
    for path, value in settings.items():
        section, _, name = path.partition("__")
        overrides.setdefault(section, {})[name] = value
    chosen = load(overrides=overrides)
    app = build(chosen)
    try:
        with captured_log():
            async with (
                Server(chosen.server, app.services) as server,
                grpc.aio.insecure_channel(server.targets[0]) as to,
            ):
                yield Caller(to)
    finally:
        await app.close()


async def refusal(call: Awaitable[object]) -> SeenError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return seen(caught.value)


# ---- what a request brings


def agents(count: int) -> Call:
    return lambda to: to.init(router(*(agent(f"a{number}", "ticket") for number in range(count))))


def questions(count: int) -> Call:
    """A scheduler needs one for each agent, beside the one about its goal."""
    return lambda to: to.init(scheduler(*(agent(f"a{number}", "ticket") for number in range(count))))


def parts(count: int) -> Call:
    """The argument of the planner agent, and those of the agent."""
    return lambda to: to.init(scheduler(agent("a", *(f"k{number}" for number in range(count - 1)))))


def cel(characters: int) -> Call:
    condition = agent_pb2.Condition(cel="scope.x == 1".ljust(characters))
    return lambda to: to.init(router(agent("a", activation=condition), agent("b")))


def decide(fields: int = 1, asked: int = 1, options: int = 2, value: value_pb2.Value | None = None) -> Call:
    value = value or value_pb2.Value(string_value="the kettle leaks")
    choice = decision_pb2.ChoiceQuestion(options=[decision_pb2.ChoiceOption(name=f"o{n}") for n in range(options)])
    request = decision_pb2.DecideRequest(
        input=[decision_pb2.InputField(name=f"f{number}", value=value) for number in range(fields)],
        questions=[decision_pb2.Question(name=f"q{number}", text="Which?", choice=choice) for number in range(asked)],
    )
    return lambda to: to.models.Decide(request)


def bytes_of_request(count: int) -> Call:
    request = planner_pb2.InitRequest(invocation_id="i")
    request.MergeFrom(BDI)
    request.planner_agent.name = "n" * 256
    request.planner_agent.name += "n" * (count - request.ByteSize())
    assert request.ByteSize() == count
    return lambda to: to.planner.Init(request)


def bytes_of_reply(calls: int) -> Call:
    """A reply that names as many calls, each with an id of a hundred characters."""
    names = [f"{number}".ljust(100, "n") for number in range(calls)]
    system = router(*(agent(name, "ticket") for name in names), threshold=1e-6)
    return lambda to: to.first(system, {"ticket": "t"})


def reading() -> planner_pb2.InitRequest:
    """A system that needs the value of the ticket, and no model."""
    condition = agent_pb2.Condition(cel="scope.ticket != ''")
    return bdi(agent("a", activation=condition), desires=(desire("d", "a", achievable="ticket", satisfied="x"),))


def scope_bytes(count: int) -> Call:
    value = value_pb2.Value(string_value="t" * (count - 3))
    assert value.ByteSize() == count
    return lambda to: to.first(reading(), {"ticket": value})


def scope_keys(count: int) -> Call:
    return lambda to: to.first(
        scheduler(agent("a", *(f"k{number}" for number in range(9)))), {f"k{number}": "v" for number in range(count)}
    )


def nested(depth: int) -> value_pb2.Value:
    value = value_pb2.Value(string_value="x")
    for _ in range(depth):
        value = value_pb2.Value(list_value=value_pb2.ListValue(values=[value]))
    return value


def items(count: int) -> value_pb2.Value:
    """As many values: a list and its items."""
    return value_pb2.Value(list_value=value_pb2.ListValue(values=[value_pb2.Value(int_value=1)] * (count - 1)))


def given(value: value_pb2.Value) -> Call:
    return lambda to: to.first(BDI, {"ticket": value})


def reported(value: value_pb2.Value) -> Call:
    async def call(to: Caller) -> None:
        step = await to.first(BDI, {"ticket": "t"})
        result = planner_pb2.AgentResult(call_id=step.calls[0].id, output=planner_pb2.Output(value=value))
        await to.planner.NextAction(
            planner_pb2.NextActionRequest(invocation_id="i", base=step.position, results=[result])
        )

    return call


def mapped(value: value_pb2.Value) -> Call:
    """A planner map, which is refused for what is in it, if not for a limit."""

    async def call(to: Caller) -> None:
        found = await refusal(to.init(BDI, planner_map=value_pb2.MapValue(entries={"x": value})))
        if found.reason != "INVALID_EXECUTION_STATE":
            raise AssertionError(found)

    return call


def state_bytes(count: int) -> Call:
    async def call(to: Caller) -> None:
        state = (await to.first(BDI, {"ticket": "t"})).state
        state.data = state.data.ljust(count)
        await to.init(BDI, state=state)

    return call


LIMITS: dict[str, tuple[str, object, Call, Call]] = {
    "a request": ("server.max_request_bytes", 2000, bytes_of_request(2000), bytes_of_request(2001)),
    "agents": ("limits.max_agents", 3, agents(3), agents(4)),
    "questions of a planner": ("limits.max_questions", 3, questions(3), questions(4)),
    "questions of Decide": ("limits.max_questions", 3, decide(asked=3), decide(asked=4)),
    "parts": ("limits.max_parts", 4, parts(4), parts(5)),
    "options of Decide": ("limits.max_parts", 4, decide(asked=2), decide(asked=2, options=3)),
    "CEL": ("limits.max_cel_characters", 20, cel(20), cel(21)),
    "bytes of a scope": ("limits.max_scope_bytes", 1024, scope_bytes(1024), scope_bytes(1025)),
    "keys of a scope": ("limits.max_scope_keys", 2, scope_keys(2), scope_keys(3)),
    "fields of Decide": ("limits.max_scope_keys", 2, decide(fields=2), decide(fields=3)),
    "values of a scope": ("limits.max_values", 5, given(items(5)), given(items(6))),
    "values of an output": ("limits.max_values", 5, reported(items(4)), reported(items(5))),  # and the result
    "values of Decide": ("limits.max_values", 5, decide(value=items(5)), decide(value=items(6))),
    "a state": ("limits.max_state_bytes", 1024, state_bytes(1024), state_bytes(1025)),
}


@pytest.mark.parametrize("what", LIMITS)
async def test_what_is_beyond_a_limit_is_refused(what: str) -> None:
    """As much as a limit allows is accepted; one more is LIMIT_EXCEEDED, which names the limit and both numbers."""
    path, allowed, within, beyond = LIMITS[what]
    async with limited(**{path.replace(".", "__"): allowed}) as to:
        await within(to)
    async with limited(**{path.replace(".", "__"): allowed}) as to:
        answer = await refusal(beyond(to))
    assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    limit = path.partition(".")[2]
    assert answer.metadata["limit"] == limit
    assert answer.metadata["allowed"] == str(allowed)
    assert int(answer.metadata["requested"]) > int(answer.metadata["allowed"])
    assert limit in answer.text or "this server allows" in answer.text
    assert answer.retry_after is None


@pytest.mark.parametrize(
    "make", [given, reported, lambda value: decide(value=value)], ids=["scope", "output", "Decide"]
)
async def test_nesting_may_be_limited_further(make: Callable[[value_pb2.Value], Call]) -> None:
    """Values as deep as the setting are accepted, deeper ones refused with their path; by default 24 is the limit."""
    for allowed in (3, 24):
        async with limited(limits__max_nesting=allowed) as to:
            await make(nested(allowed))(to)
        async with limited(limits__max_nesting=allowed) as to:
            answer = await refusal(make(nested(allowed + 1))(to))
        assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_VALUE")
        assert f"nested more than {allowed} deep" in answer.text
        assert answer.violations


async def test_a_planner_map_counts_as_well() -> None:
    """The planner map to resume from is held to the same limits."""
    async with limited(limits__max_nesting=3, limits__max_values=5) as to:
        await mapped(nested(2))(to)
        assert (await refusal(to.init(BDI, planner_map={"entries": {"x": nested(3)}}))).reason == "INVALID_VALUE"
        await mapped(items(5))(to)
        assert (await refusal(to.init(BDI, planner_map={"entries": {"x": items(6)}}))).reason == "LIMIT_EXCEEDED"


async def test_a_reply_over_the_limit_is_no_step() -> None:
    """A reply that is larger than the server sends fails the step uncommitted; a smaller one is sent."""
    async with limited(server__max_reply_bytes=4096) as to:
        await bytes_of_reply(3)(to)
    async with limited(server__max_reply_bytes=4096) as to:
        answer = await refusal(bytes_of_reply(30)(to))
        assert (answer.reason, answer.metadata["allowed"]) == ("REPLY_TOO_LARGE", "4096")
        where = await refusal(to.planner.ExecutionState(planner_pb2.ExecutionStateRequest(invocation_id="i")))
        assert where.reason == "OUT_OF_ORDER"


# ---- how many invocations there are


async def test_a_caller_may_have_so_many_invocations() -> None:
    """One more than allowed is TOO_MANY_INVOCATIONS with a time to wait; End makes room, at once and for one."""
    async with limited(limits__max_invocations_per_identity=2) as to:
        steps = {name: await to.first(BDI, {"ticket": "t"}, name) for name in ("a", "b")}
        for _ in range(2):
            answer = await refusal(to.init(BDI, "c"))
            assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_INVOCATIONS")
            assert answer.retry_after
        # Who goes on with what it has is not refused, nor is a check that starts nothing.
        await to.init(BDI, "a", state=steps["a"].state)
        await to.init(BDI, "b", state=steps["b"].state, take_over=True)
        await to.init(BDI, "c", validate_only=True)
        await to.end("a")
        await to.init(BDI, "c")
        assert (await refusal(to.init(BDI, "d"))).reason == "TOO_MANY_INVOCATIONS"


async def test_failed_inits_and_dropped_invocations_make_no_room_scarce() -> None:
    """What was refused, evicted or expired does not count."""
    async with limited(
        limits__max_invocations_per_identity=2, limits__max_invocations=1, limits__idle_seconds=0.2
    ) as to:
        for number in range(5):
            assert (await refusal(to.init(scheduler(), f"bad{number}"))).reason == "INVALID_CONFIGURATION"
            await to.init(BDI, f"evicts-the-last-{number}")
    async with limited(limits__max_invocations_per_identity=1, limits__idle_seconds=0.2) as to:
        await to.init(BDI, "a")
        assert (await refusal(to.init(BDI, "b"))).reason == "TOO_MANY_INVOCATIONS"
        await asyncio.sleep(0.3)
        await to.init(BDI, "b")


@pytest.mark.parametrize(
    ("setting", "allowed", "scope"),
    [("max_invocations", 2, "t"), ("max_invocations_bytes", 1 << 20, "t" * 400_000)],
    ids=["count", "bytes"],
)
async def test_evicted_invocations_go_on_from_the_state_of_their_client(setting: str, allowed: int, scope: str) -> None:
    """As many as fit are kept; one more drops the one untouched longest, whose client resumes it with the same call."""
    system = reading()
    async with limited(**{f"limits__{setting}": allowed}) as to:
        step = await to.first(system, {"ticket": scope}, "a")
        await to.first(system, {"ticket": scope}, "b")
        ask = planner_pb2.ExecutionStateRequest(invocation_id="a")
        await to.planner.ExecutionState(planner_pb2.ExecutionStateRequest(invocation_id="b"))
        assert (await to.planner.ExecutionState(ask)).step == step
        await to.planner.ExecutionState(planner_pb2.ExecutionStateRequest(invocation_id="b"))
        await to.first(system, {"ticket": scope}, "c")
        assert (await refusal(to.planner.ExecutionState(ask))).reason == "INVOCATION_NOT_FOUND"
        base = (await to.init(system, "a", state=step.state)).position
        request = planner_pb2.FirstActionRequest(invocation_id="a", base=base, scope=scope_update({"ticket": scope}))
        again = (await to.planner.FirstAction(request)).step
        assert (again.position, again.calls) == (step.position, step.calls)


async def test_idle_invocations_and_ends_are_forgotten() -> None:
    """What nobody touches for the idle time is gone; that one was ended is remembered for its own time."""
    async with limited(limits__idle_seconds=0.3, limits__tombstone_seconds=0.3) as to:
        await to.first(BDI, {"ticket": "t"}, "idle")
        await to.first(BDI, {"ticket": "t"}, "ended")
        await to.end("ended")
        assert (await refusal(to.init(BDI, "ended"))).reason == "INVOCATION_ENDED"
        await asyncio.sleep(0.4)
        await to.init(BDI, "ended")
        ask = planner_pb2.ExecutionStateRequest(invocation_id="idle")
        assert (await refusal(to.planner.ExecutionState(ask))).reason == "INVOCATION_NOT_FOUND"


def test_every_limit_is_in_this_module() -> None:
    """A new setting of the section limits needs its case here."""
    elsewhere = {
        "max_nesting", "max_invocations", "max_invocations_bytes", "max_invocations_per_identity", "idle_seconds",
        "tombstone_seconds", "max_calls_per_identity",
    }  # fmt: skip
    names = {path.partition(".")[2] for path, *_ in LIMITS.values() if path.startswith("limits.")}
    assert names | elsewhere == set(type(load().limits).model_fields)
