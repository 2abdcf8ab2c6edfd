"""The situations whose execution states are kept: one invocation each, brought to a point, and one step further."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plannerd.values import PENDING, Opaque, ScopeValue
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.builders import (
    agent,
    bdi,
    cascade,
    desire,
    failed,
    output,
    pending,
    router,
    scheduler,
    skipped,
    suspended,
)
from tests.support.engine import Client, Server
from tests.support.models import answering

TICKET: Final[Mapping[str, ScopeValue]] = {"ticket": "t1"}
Reports = Callable[[Client], list[planner_pb2.AgentResult]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation.

    Attributes:
        says: the situation in a sentence.
        request: the Init of the invocation.
        answers: what the decision model answers on the way, decision by decision, and beyond.
        first: the scope at first.
        way: brings the client from its first action to the situation.
        scope: the scope there.
        reports: what is reported next; None where the invocation is over.
        later: what the decision model answers after the restore.
    """

    says: str
    request: planner_pb2.InitRequest
    answers: tuple[Mapping[str, Any], ...] = ()
    first: Mapping[str, ScopeValue] = field(default_factory=lambda: TICKET)
    way: Callable[[Client], Awaitable[object]] | None = None
    scope: Mapping[str, ScopeValue] = field(default_factory=lambda: TICKET)
    reports: Reports | None = None
    later: Mapping[str, Any] = field(default_factory=dict)

    async def client(self) -> Client:
        """A client in the situation; always the same one, down to its ids."""
        branches = iter(["branch1", "branch2", "branch3"])
        client = await Server(answering(*self.answers), new_branch=lambda: next(branches)).started(
            self.request, self.first
        )
        if self.way is not None:
            await self.way(client)
        return client


def steps(*reports: Reports) -> Callable[[Client], Awaitable[object]]:
    """One request after the other, each with what was reported."""

    async def way(client: Client) -> None:
        for report in reports:
            await client.next(*report(client))

    return way


def answered(name: str, value: ScopeValue = "x") -> Reports:
    return lambda client: [output(client.call(name), value)]


def put_off(name: str) -> Reports:
    return lambda client: [pending(client.call(name), external=name == "fetcher")]


def asked_for(name: str, response_id: str = "r1") -> Reports:
    return lambda client: [suspended(client.call(name), response_id)]


def together(*reports: Reports) -> Reports:
    return lambda client: [result for report in reports for result in report(client)]


async def _taken_over(client: Client) -> None:
    await client.next(output(client.call("lookup"), "f1"))
    await client.resume({"ticket": "t1", "facts": "f1"}, take_over=True)
    await client.next(output(client.call("expert"), "a1"), scope={"ticket": "t2"})


SYSTEM = scheduler(
    agent("lookup", "ticket", writes="facts"),
    agent("expert", "facts", "account?", writes="advice"),
    agent("fetcher", "ticket", writes="page", async_=True),
    agent("approver", "advice", writes="approval", human=True),
    output_key="advice",
    excluded_output_keys=["page"],
)
WAITING = scheduler(agent("fetcher", "ticket", writes="page", async_=True), agent("expert", "page", writes="advice"))
PARALLEL = router(
    agent("billing", "ticket", writes="bill"),
    agent("fetcher", "ticket", writes="page", async_=True),
    agent("approver", "ticket", writes="approval", human=True),
    agent("sleeper"),
)
CHOICE = router(agent("billing", "ticket"), agent("shipping", "ticket"), threshold=None)
TIERS = cascade(
    agent("small", "ticket"),
    agent("medium", "ticket", writes="medium", async_=True),
    agent("human", "ticket", writes="human", human=True),
    agent("large", "ticket"),
)
DESIRES = bdi(
    agent("look", writes="seen"),
    agent("think"),
    agent("act", writes="acted", async_=True),
    agent("run"),
    desires=(
        desire("work", "look", "think", "act", "look", achievable="ticket", satisfied="finished"),
        desire("flee", "run", "run", achievable="fire", satisfied="safe", priority=10),
    ),
)

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "scheduler-running": Scenario(
        "A scheduler runs its first agent.",
        SYSTEM,
        ({"lookup": 3},),
        reports=answered("lookup"),
        later={"expert": 3},
    ),
    "scheduler-second-agent": Scenario(
        "A scheduler runs its second agent; the first one can't run again, and an opaque value is known by its tag.",
        SYSTEM,
        ({"lookup": 3}, {"expert": 2}),
        {"ticket": "t1", "account": Opaque(b"v1")},
        way=steps(answered("lookup", {"n": [1, 2.5]})),
        scope={"ticket": "t1", "account": Opaque(b"v1"), "facts": {"n": [1, 2.5]}},
        reports=answered("expert"),
        later={"approver": 3, "fetcher": 2},
    ),
    "scheduler-pending-beside-running": Scenario(
        "A scheduler runs an agent while the output of another one, which it does not need, is on its way.",
        SYSTEM,
        ({"fetcher": 3}, {"lookup": 3}),
        way=steps(put_off("fetcher")),
        scope={"ticket": "t1", "page": PENDING},
        reports=together(answered("fetcher"), answered("lookup")),
        later={"expert": 3},
    ),
    "scheduler-awaiting": Scenario(
        "A scheduler waits for an output that its decision needs.",
        WAITING,
        ({"fetcher": 3},),
        way=steps(put_off("fetcher")),
        scope={"ticket": "t1", "page": PENDING},
        reports=answered("fetcher"),
        later={"expert": 3},
    ),
    "scheduler-suspended": Scenario(
        "A scheduler waits for somebody's answer.",
        SYSTEM,
        ({"lookup": 3}, {"expert": 2}, {"approver": 3}),
        way=steps(answered("lookup"), answered("expert"), asked_for("approver", "mail/17")),
        scope={"ticket": "t1", "facts": "x", "advice": "x", "approval": PENDING},
        reports=answered("approver"),
        later={"goal": 1},
    ),
    "scheduler-goal-reached-beside-suspended": Scenario(
        "A scheduler has reached its goal and keeps that to itself until a suspended call has its answer.",
        SYSTEM,
        ({"fetcher": 3}, {"lookup": 3}, {"expert": 3}, {"goal": 1}),
        way=steps(put_off("fetcher"), asked_for("fetcher"), answered("lookup"), answered("expert")),
        scope={"ticket": "t1", "page": PENDING, "facts": "x", "advice": "x"},
        reports=answered("fetcher"),
    ),
    "scheduler-shared-names": Scenario(
        "A scheduler runs one of two agents of the same name, which its state tells apart by their ids.",
        scheduler(
            agent("lookup", "ticket", writes="facts"),
            agent("lookup", "facts", writes="more"),
            agent("expert", "more", id="the-expert"),
        ),
        ({"lookup$0": 3}, {"lookup$1": 3}),
        way=steps(answered("lookup$0")),
        scope={"ticket": "t1", "facts": "x"},
        reports=answered("lookup$1"),
        later={"expert": 3},
    ),
    "scheduler-unavailable": Scenario(
        "A scheduler leaves out an agent whose description could not be read.",
        scheduler(agent("lookup", "ticket", writes="facts"), agent("remote", "ticket", unavailable=True)),
        ({"lookup": 3},),
        reports=answered("lookup"),
    ),
    "scheduler-taken-over": Scenario(
        "A scheduler was taken over on the way, so that its calls are of two branches.",
        SYSTEM,
        ({"lookup": 3}, {"expert": 2}, {"fetcher": 2}),
        way=_taken_over,
        scope={"ticket": "t2", "facts": "f1", "advice": "a1"},
        reports=put_off("fetcher"),
        later={"approver": 2},
    ),
    "scheduler-done": Scenario("A scheduler has reached its goal.", WAITING, ({"goal": 1},)),
    "scheduler-gave-up": Scenario("A scheduler gave up without a result.", SYSTEM, ({"lookup": 1},)),
    "scheduler-failed": Scenario(
        "An agent of a scheduler failed for good.",
        SYSTEM,
        ({"lookup": 3},),
        way=steps(lambda client: [failed(client.call("lookup"), "TimeoutError")]),
    ),
    "router-running": Scenario(
        "A router runs three agents side by side.",
        PARALLEL,
        ({"billing": 0.9, "fetcher": 0.5, "approver": 0.7},),
        reports=together(answered("billing"), put_off("fetcher")),
    ),
    "router-some-reported": Scenario(
        "One of a router's agents has answered, one was skipped, one runs.",
        PARALLEL,
        ({"billing": 0.9, "fetcher": 0.5, "approver": 0.7},),
        way=steps(answered("billing"), lambda client: [skipped(client.call("fetcher"))]),
        scope={"ticket": "t1", "bill": "x"},
        reports=answered("approver"),
    ),
    "router-awaiting-before-suspending": Scenario(
        "A router waits for an output on its way before it suspends for somebody's answer.",
        PARALLEL,
        ({"billing": 0.9, "fetcher": 0.5, "approver": 0.7},),
        way=steps(answered("billing"), asked_for("approver"), put_off("fetcher")),
        scope={"ticket": "t1", "page": PENDING, "approval": PENDING},
        reports=answered("fetcher"),
    ),
    "router-suspended": Scenario(
        "A router waits for the answers of two people.",
        router(agent("a", writes="x", human=True), agent("b", writes="y", human=True)),
        ({"a": 0.9, "b": 0.9},),
        way=steps(together(asked_for("a", "ra"), asked_for("b", "rb"))),
        scope={"ticket": "t1", "x": PENDING, "y": PENDING},
        reports=answered("b"),
    ),
    "router-choice": Scenario(
        "A router runs the agent that was chosen.",
        CHOICE,
        ({"decision-agent": "shipping"},),
        reports=answered("shipping"),
    ),
    "router-done": Scenario(
        "A router has the outputs of all agents.",
        PARALLEL,
        ({"billing": 0.9, "fetcher": 0.5},),
        way=steps(together(answered("fetcher"), answered("billing"))),
    ),
    "cascade-second-tier": Scenario(
        "A cascade tries its second tier, the answer of the first one in reserve.",
        TIERS,
        ({"answer-accepted": 0.1},),
        way=steps(answered("small")),
        reports=put_off("medium"),
    ),
    "cascade-awaiting": Scenario(
        "A cascade waits for the answer of a tier.",
        TIERS,
        ({"answer-accepted": 0.1},),
        way=steps(answered("small"), put_off("medium")),
        scope={"ticket": "t1", "medium": PENDING},
        reports=answered("medium"),
        later={"answer-accepted": 0.8},
    ),
    "cascade-suspended": Scenario(
        "A cascade waits for the answer of somebody who is its third tier.",
        TIERS,
        ({"answer-accepted": 0.1},),
        way=steps(answered("small"), lambda client: [skipped(client.call("medium"))], asked_for("human")),
        scope={"ticket": "t1", "human": PENDING},
        reports=answered("human"),
        later={"answer-accepted": 0.2},
    ),
    "cascade-done": Scenario(
        "A cascade has accepted an answer.",
        TIERS,
        ({"answer-accepted": 0.9},),
        way=steps(answered("small")),
    ),
    "bdi-preempted": Scenario(
        "A BDI planner pursues a desire that came up in the middle of another one.",
        DESIRES,
        way=lambda client: client.next(output(client.call("look"), "x"), scope={"fire": True}),
        scope={"ticket": "t1", "seen": "x", "fire": True},
        reports=answered("run"),
    ),
    "bdi-pending-beside-running": Scenario(
        "A BDI planner runs an agent while the output of another one is on its way.",
        DESIRES,
        way=steps(answered("look"), answered("think"), put_off("act")),
        scope={"ticket": "t1", "seen": "x", "acted": PENDING},
        reports=together(answered("act"), answered("look")),
    ),
    "bdi-gave-up": Scenario(
        "A BDI planner gave up at the end of an intention.",
        bdi(agent("look"), desires=(desire("work", "look", achievable="ticket", satisfied="finished"),)),
        way=steps(answered("look")),
    ),
}
