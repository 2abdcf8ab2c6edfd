"""Random systems of agents, and a client that runs them: what agents do is read off a tape of small numbers.

Two runs with the same tape do the same things, wherever their invocation lives; what they saw can be compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from hypothesis import strategies as st

from plannerd.errors import PlannerdError
from plannerd.values import PENDING, Opaque, ScopeValue, is_present
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2, step_pb2, value_pb2
from tests.support.builders import agent, argument, failed, output, pending, skipped, suspended
from tests.support.engine import Client, Server
from tests.support.models import FunctionModel

KEYS = ("k0", "k1", "k2", "k3", "k4")
BELIEF = "it rains"
READABLE: Sequence[ScopeValue] = ("v1", "v2", 2, 2.0, True, 1, ["a"], {"a": 1, "b": [1.0]}, " \u3000", "")
UNREAD: Sequence[ScopeValue] = (*READABLE, Opaque(b"1"), Opaque(b"2"), b"raw")
MAX_STEPS = 20


class Tape:
    """Numbers that decide what happens: those that are given, then random ones of a seed."""

    def __init__(self, numbers: Sequence[int], seed: int) -> None:
        self._numbers = list(reversed(numbers))
        self._random = Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return self._numbers.pop() % count if self._numbers else self._random.randrange(count)

    def chance(self, one_in: int) -> bool:
        """True once in so many times."""
        return self.below(one_in) == one_in - 1


TAPES: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 63), max_size=30)
SEEDS: st.SearchStrategy[int] = st.integers(0, 2**32 - 1)


def grid_answers(seed: int) -> Callable[[int, str], float]:
    """Answers in steps of an eighth, so that ties and answers exactly at a threshold are common."""

    def answer(number: int, question: str) -> float:
        drawn = zlib.crc32(f"{seed}/{number}/{question}".encode())
        # A goal is seldom reached, or no run would get far.
        return (drawn // 8 % 9) / 8 if drawn % 8 == 0 or not question.endswith("goal") else (drawn // 8 % 4) / 8

    return answer


def tie_free_answers(seed: int) -> Callable[[int, str], float]:
    """Answers that are all different."""
    grid = grid_answers(seed)
    return lambda number, question: grid(number, question) * 0.99 + zlib.crc32(question.encode()) / 2**32 / 200


# ---- systems


@st.composite
def agent_lists(draw: st.DrawFn, unique_names: bool) -> list[agent_pb2.Agent]:
    """A few agents over a few keys, in all the ways that agents can differ."""
    names = ["a", "b", "c", "d"] if unique_names else ["a", "a", "b", "goal"]
    count = draw(st.sampled_from([3, 2, 4, 1]))
    made = []
    for position in range(count):
        reads = draw(st.lists(st.sampled_from(KEYS), min_size=draw(st.sampled_from([1, 0])), max_size=3, unique=True))
        writes = draw(st.sampled_from([*KEYS, *KEYS, ""]))
        marks = draw(st.lists(st.sampled_from(["?", "", "="]), min_size=len(reads), max_size=len(reads)))
        condition = draw(st.sampled_from(["", "", "", "", "key", "belief"]))
        made.append(
            agent(
                names[position],
                *(key + mark for key, mark in zip(reads, marks, strict=True)),
                writes=writes,
                async_=bool(writes) and draw(st.booleans()),
                human=bool(writes) and draw(st.booleans()),
                when_present=draw(st.sampled_from(KEYS)) if condition == "key" else "",
                when_believed=BELIEF if condition == "belief" else "",
                unavailable=draw(st.integers(0, 15)) == 15,
            )
        )
    return made


@st.composite
def planner_agents(draw: st.DrawFn) -> agent_pb2.PlannerAgent:
    """A planner agent with one or two arguments, and perhaps an output key."""
    arguments = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
    return agent_pb2.PlannerAgent(
        arguments=[argument(name) for name in arguments], output_key=draw(st.sampled_from([*KEYS, "", ""]))
    )


THRESHOLDS = st.sampled_from([0.125, 0.5, 0.625, 0.875])


@st.composite
def schedulers(draw: st.DrawFn, unique_names: bool = False) -> planner_pb2.InitRequest:
    """A scheduler with some agents."""
    agents, planner_agent = draw(agent_lists(unique_names)), draw(planner_agents())
    written = sorted({item.output_key for item in agents} - {"", planner_agent.output_key})
    excluded = draw(st.lists(st.sampled_from(written), unique=True)) if written else []
    return planner_pb2.InitRequest(
        scheduler=planners_pb2.SchedulerConfig(
            goal="g",
            goal_threshold=draw(st.sampled_from([0.5, 0.75, 0.875, 0.99])),
            activation_threshold=draw(st.sampled_from([0.125, 0.25, 0.5])),
            max_invocations=draw(st.sampled_from([8, 4, 2, 1])),
            usefulness_levels=draw(st.sampled_from([["0", "1"], ["0", "1", "2"], [], ["0", "1", "2", "3", "4"]])),
            excluded_output_keys=excluded,
        ),
        planner_agent=planner_agent,
        agents=agents,
    )


@st.composite
def routers(draw: st.DrawFn) -> planner_pb2.InitRequest:
    """A router with some agents; most run several at a time."""
    agents = draw(agent_lists(unique_names=True))
    threshold = None if len(agents) > 1 and draw(st.integers(0, 3)) == 3 else draw(st.sampled_from([0.125, 0.25, 0.5]))
    return planner_pb2.InitRequest(
        router=planners_pb2.RouterConfig(activation_threshold=threshold),
        planner_agent=draw(planner_agents()),
        agents=agents,
    )


@st.composite
def cascades(draw: st.DrawFn) -> planner_pb2.InitRequest:
    """A cascade of two to four tiers."""
    agents = draw(agent_lists(unique_names=True).filter(lambda found: len(found) > 1))
    return planner_pb2.InitRequest(
        cascade=planners_pb2.CascadeConfig(acceptance_threshold=draw(THRESHOLDS)),
        planner_agent=draw(planner_agents()),
        agents=agents,
    )


@st.composite
def bdis(draw: st.DrawFn) -> planner_pb2.InitRequest:
    """A BDI planner with one to three desires."""
    agents = draw(agent_lists(unique_names=True))
    names = [item.name for item in agents]

    def condition(*keys: str) -> agent_pb2.Condition:
        if draw(st.integers(0, 3)) == 3:
            return agent_pb2.Condition(belief=BELIEF)
        return agent_pb2.Condition(present_key=draw(st.sampled_from(keys)))

    desires = [
        planners_pb2.Desire(
            name=name,
            priority=draw(st.integers(0, 2)),
            achievable=condition(*KEYS),
            satisfied=condition("unwritten", *KEYS[:2]),
            agent_types=draw(st.lists(st.sampled_from(names), min_size=2, max_size=5)),
        )
        for name in ["d", "e", "f"][: draw(st.integers(1, 3))]
    ]
    return planner_pb2.InitRequest(
        bdi=planners_pb2.BdiConfig(desires=desires, max_invocations=draw(st.sampled_from([9, 4, 1]))),
        planner_agent=draw(planner_agents()),
        agents=agents,
    )


# ---- runs


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one step, without what differs from run to run: ids, times, positions."""

    action: str
    agents: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    live: tuple[tuple[str, str], ...] = ()
    result: str = ""
    asked: tuple[tuple[tuple[str, str], ...], ...] = ()
    inputs: tuple[tuple[tuple[str, str], ...], ...] = ()


Hop: TypeAlias = Callable[[Client, Mapping[str, ScopeValue], Mapping[str, bool]], Awaitable[Client]]
"""Takes a client, its scope and its beliefs to another server."""


@dataclass(slots=True)
class Event:
    """What happens between two steps: changes of the scope, then results."""

    scope: dict[str, ScopeValue] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    results: list[tuple[str, str, ScopeValue]] = field(default_factory=list)
    """Call id, outcome, output."""


class World:
    """A client of one invocation, with its scope and its agents."""

    def __init__(self, client: Client, tape: Tape) -> None:
        self.client = client
        self.tape = tape
        self.scope: dict[str, ScopeValue] = {}
        self.beliefs: dict[str, bool] = {}
        self.names: dict[str, str] = {}
        self.reads: dict[str, int] = {}
        self.seen: list[Seen] = []
        self._asked = 0

    async def begin(self) -> None:
        """Init and FirstAction with a random scope."""
        reply = await self.client.init()
        self.reads = dict(reply.reads)
        for key in KEYS:
            if self.tape.below(4):
                self.scope[key] = self._value(key)
        self._believe()
        await self._look_at(self.client.first(self.scope, beliefs=self.beliefs))

    @property
    def over(self) -> bool:
        """Whether the invocation has ended, or has gone on for long enough."""
        last = self.seen[-1].action
        return last in ("done", "give_up") or last.startswith("refused") or len(self.seen) >= MAX_STEPS

    async def go_on(self) -> Event:
        """Let something happen, report it, and look at the answer."""
        event = self._happen()
        self._believe()
        for key in event.removed:
            self.scope.pop(key, None)
        self.scope.update(event.scope)
        for call_id, outcome, value in event.results:
            self._write(call_id, outcome, value)
        results = [self._report(*result) for result in event.results]
        removed = tuple(event.removed)
        await self._look_at(self.client.next(*results, scope=event.scope, removed=removed, beliefs=self.beliefs))
        return event

    async def run(self, hop: Hop | None = None) -> list[Seen]:
        """Begin and go on to the end; with `hop`, on another server after each step."""
        await self.begin()
        while not self.over:
            if hop is not None:
                self.client = await hop(self.client, self.scope, self.beliefs)
            await self.go_on()
        return self.seen

    # ---- what happens

    def _happen(self) -> Event:
        event, tape = Event(), self.tape
        key = ("unwritten", *KEYS)[tape.below(len(KEYS) + 1)]
        # A client leaves the keys alone whose outputs are on their way.
        if tape.chance(4) and key not in {self._declared(call).output_key for call in self.client.step.calls}:
            if tape.chance(3):
                event.removed.append(key)
            else:
                event.scope[key] = self._value(key)
        calls = list(self.client.step.calls)
        idle = self.client.kind in ("await", "suspend")
        if not (idle and tape.chance(4)):
            first = tape.below(len(calls)) if calls else 0
            count = 1 + (tape.below(3) if len(calls) > 1 else 0)
            for call in (calls[first:] + calls[:first])[:count]:
                event.results.append((call.id, *self._outcome(call)))
        return event

    def _outcome(self, call: step_pb2.Call) -> tuple[str, ScopeValue]:
        tape, declared = self.tape, self._declared(call)
        delayed = getattr(declared, "async") or declared.human
        status = call.status
        odds = tape.below(12)
        if odds == 11:
            return "skipped", None
        if odds == 10 and tape.chance(4):
            return "failed", None
        if odds >= 7 and declared.output_key and status != step_pb2.CALL_STATUS_SUSPENDED:
            return "suspended", None
        if odds >= 3 and delayed and status != step_pb2.CALL_STATUS_PENDING:
            return "pending", None
        value: ScopeValue = None if tape.chance(6) else self._value(declared.output_key, call.output_need)
        return "output", value

    def _value(self, key: str, need: int = 0) -> ScopeValue:
        must_read = value_pb2.NEED_VALUE in (need, self.reads.get(key))
        pool = READABLE if must_read else UNREAD
        return pool[self.tape.below(len(pool))]

    def _believe(self) -> None:
        self.beliefs = {BELIEF: bool(self.tape.below(3))}

    def _report(self, call_id: str, outcome: str, value: ScopeValue) -> planner_pb2.AgentResult:
        match outcome:
            case "skipped":
                return skipped(call_id)
            case "failed":
                return failed(call_id)
            case "suspended":
                return suspended(call_id, "r")
            case "pending":
                return pending(call_id, external=True)
            case _:
                return output(call_id, value)

    def _write(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        key = self._declared(next(call for call in self.client.step.calls if call.id == call_id)).output_key
        if not key:
            return
        if outcome in ("pending", "suspended"):
            self.scope[key] = PENDING
        elif outcome == "output":
            self.scope[key] = value
            if value is None:
                del self.scope[key]
        elif outcome == "skipped" and self.scope.get(key) is PENDING:
            del self.scope[key]

    def _declared(self, call: step_pb2.Call) -> agent_pb2.Agent:
        agents = self.client.request.agents
        ids = {item.id or f"{item.name}${position}": item for position, item in enumerate(agents)}
        return ids[call.agent_id]

    # ---- what is seen

    async def _look_at(self, step: Awaitable[object]) -> None:
        try:
            await step
        except PlannerdError as error:
            self.seen.append(Seen(f"refused {error.reason}"))
        else:
            self._look()

    def _look(self) -> None:
        client = self.client
        for call in client.step.calls:
            self.names.setdefault(call.id, client.agent_of(call.id))
        decisions = list(client.server.model.asked[self._asked :])
        self._asked = client.server.decisions
        self.seen.append(
            Seen(
                action=client.kind,
                agents=tuple(self.names[call_id] for call_id in client.named),
                keys=tuple(getattr(client.step.action, "await").keys),
                live=tuple((self.names[call.id], client.status(call.id)) for call in client.step.calls),
                result=self._result(),
                asked=tuple(tuple((item.name, item.text) for item in request.questions) for request in decisions),
                inputs=tuple(tuple((item.name, repr(item.value)) for item in request.input) for request in decisions),
            )
        )

    def _result(self) -> str:
        action = self.client.step.action
        if self.client.kind == "give_up":
            return step_pb2.GiveUpReason.Name(action.give_up.reason)
        if not action.done.HasField("result"):
            return ""
        result = action.done.result
        match result.WhichOneof("kind"):
            case "output_of":
                return f"of {self.names[result.output_of]}"
            case "outputs":
                return " ".join(f"{item.name}:{self.names.get(item.call_id, '-')}" for item in result.outputs.outputs)
            case _:
                return str(result)


def world(request: planner_pb2.InitRequest, tape: Sequence[int], seed: int, *, ties: bool = True) -> World:
    """A client of a fresh server, about to begin."""
    answers = grid_answers(seed) if ties else tie_free_answers(seed)
    return World(Server(FunctionModel(answers)).client(request), Tape(tape, seed))


def present(scope: Mapping[str, ScopeValue], key: str) -> bool:
    """Whether a key is in the scope."""
    return is_present(scope.get(key))
