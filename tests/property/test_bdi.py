"""BDI planners against a second writing of their rules."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from plannerd.decisions.models import DecisionModels
from plannerd.invocations.engine import Engine
from plannerd.services.codec.replies import encode_step
from plannerd.services.planner_service import PlannerService
from plannerd.values import PENDING, ScopeValue
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2
from tests.property.driving import OTHER_BELIEF, drive
from tests.property.rules import Rules
from tests.support.builders import agent, bdi, desire, output
from tests.support.engine import Server
from tests.support.world import BELIEF, SEEDS, TAPES, World


class BdiRules(Rules):
    """Beliefs, desires, intentions."""

    def __init__(self, request: planner_pb2.InitRequest) -> None:
        super().__init__(request)
        self.desires = list(request.bdi.desires)
        self.maximum = request.bdi.max_invocations if request.bdi.HasField("max_invocations") else 50
        self.types = {item.type or item.name: position for position, item in enumerate(self.agents)}
        self.count = 0
        self.current: planners_pb2.Desire = self.desires[0]
        self.turn = 0
        self.progress: dict[str, int] = {}
        self.passed: list[str] = []

    def begin(self) -> None:
        self._deliberate()

    def told(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """After each subagent."""
        current = self.current
        if self.holds(current.satisfied):
            self._note("satisfied")
            self._deliberate()
        elif any(self._open(other) and other.priority > current.priority for other in self.desires):
            self._note("preempted")
            self.progress[current.name] = self.turn + 1
            self._deliberate()
        elif self.holds(current.achievable):
            self._note("next agent")
            self.turn += 1
            self._dispatch()
        else:
            self._note("dropped")
            self._deliberate()

    def go_on(self) -> None:
        """The result has arrived: whether nothing is left to do is looked at once more."""
        self._note("the result arrived")
        self._deliberate()

    def settle(self) -> None:
        """A result that is on its way must have arrived before the end."""
        if self.ending == ("done", "") and self._result_is_late():
            self.ending, self.waiting = None, [self.output_key]

    def _open(self, item: planners_pb2.Desire) -> bool:
        return self.holds(item.achievable) and not self.holds(item.satisfied)

    def _deliberate(self) -> None:
        chosen = [item for item in self.desires if self._open(item)]
        if not chosen:
            self.ending = ("done", "")
            self.settle()
            return
        best = max(item.priority for item in chosen)
        self.current = next(item for item in chosen if item.priority == best)
        self.turn = self.progress.get(self.current.name, 0)
        if self.turn:
            self._note("resumed")
        self._dispatch()

    def _dispatch(self) -> None:
        types = self.current.agent_types
        while self.turn < len(types) and not self.active(self.types[types[self.turn]]):
            self._note("passed over")
            self.turn += 1
        if self.turn >= len(types):
            self.ending = ("give_up", "GIVE_UP_REASON_INTENTION_EXHAUSTED")
        elif self.count >= self.maximum:
            self.ending = ("give_up", "GIVE_UP_REASON_MAX_INVOCATIONS")
        else:
            self.count += 1
            self.started.append(self.types[types[self.turn]])

    def _result_is_late(self) -> bool:
        """What a client alone calls pending is known only where the planner reads the key."""
        if not self.output_key or self.scope.get(self.output_key) is not PENDING:
            return False
        conditions = [item for wish in self.desires for item in (wish.achievable, wish.satisfied)]
        conditions += [item.activation for item in self.agents]
        return self.output_key in [item.present_key for item in conditions] or any(
            self.agents[call.agent].output_key == self.output_key for call in self.calls.values()
        )

    def _note(self, what: str) -> None:
        self.passed.append(what)


@st.composite
def planners(draw: st.DrawFn) -> planner_pb2.InitRequest:
    """A BDI planner whose desires come and go."""
    agents = [
        agent(
            name,
            "k0",
            type=draw(st.sampled_from(["", f"{name} type"])),
            writes=(writes := draw(st.sampled_from(["g0", "g1", "k0", "k1", "", ""]))),
            async_=bool(writes) and draw(st.integers(0, 3)) == 3,
            human=bool(writes) and draw(st.integers(0, 5)) == 5,
            when_present=draw(st.sampled_from(["", "", "", "", "k3", "g0"])),
            optional=draw(st.booleans()),
        )
        for name in ["a", "b", "c", "d"][: draw(st.sampled_from([3, 4, 2, 1]))]
    ]
    if draw(st.booleans()):
        agents[-1].activation.belief = BELIEF

    def condition(keys: Sequence[str], belief: str) -> agent_pb2.Condition:
        key = draw(st.sampled_from([*keys, *keys, ""]))
        return agent_pb2.Condition(present_key=key) if key else agent_pb2.Condition(belief=belief)

    def desire_of(name: str) -> planners_pb2.Desire:
        # What is important is seldom achievable at first and soon satisfied, so that it preempts and gives way.
        urgent = draw(st.booleans())
        return planners_pb2.Desire(
            name=name,
            priority=draw(st.sampled_from([2, 3, 0] if urgent else [0, 1, -1, 2])),
            achievable=condition(["g1", "g2", "k2"] if urgent else ["k0", "k1", "k2"], BELIEF),
            satisfied=condition(["g0", "g1", "g2"] if urgent else ["never", "never", "g0"], OTHER_BELIEF),
            agent_types=draw(st.lists(st.sampled_from(types), min_size=draw(st.sampled_from([4, 1])), max_size=6)),
        )

    types = [item.type or item.name for item in agents]
    desires = [desire_of(name) for name in ["d", "e", "f", "g"][: draw(st.sampled_from([3, 4, 2, 1]))]]
    return planner_pb2.InitRequest(
        bdi=planners_pb2.BdiConfig(desires=desires, max_invocations=draw(st.sampled_from([None, 20, 9, 4, 1]))),
        planner_agent=agent_pb2.PlannerAgent(output_key=draw(st.sampled_from(["g0", "g1", "k0", ""]))),
        agents=agents,
    )


def nothing(number: int, question: str) -> float:
    raise AssertionError("a BDI planner asks no decision model")


async def check(request: planner_pb2.InitRequest, tape: Sequence[int], seed: int, *, moving: bool) -> World:
    """Run an invocation beside its rules; its planner map is the counter alone."""
    rules = BdiRules(request)
    run = await drive(request, rules, nothing, tape, seed, moving=moving)
    for what in sorted(set(rules.passed)):
        event(what)
    if run.seen[-1].action in ("done", "give_up"):
        event(run.seen[-1].action + run.seen[-1].result.removeprefix("GIVE_UP_REASON"))
        assert json.loads(run.client.state.data)["planner"] == {"invocationCounter": rules.count}
    return run


@settings(deadline=None)
@given(planners(), TAPES, SEEDS)
async def test_a_bdi_planner_follows_its_rules(request: planner_pb2.InitRequest, tape: list[int], seed: int) -> None:
    """Whatever the agents and the client do, each step calls, waits and stops as the rules say."""
    await check(request, tape, seed, moving=False)


@settings(deadline=None)
@given(planners(), TAPES, SEEDS)
async def test_a_bdi_planner_that_moves_follows_its_rules(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """The same, on a new server after every step."""
    await check(request, tape, seed, moving=True)


async def test_no_decision_model_is_needed() -> None:
    """A server without any decision model plans for BDI."""
    server = Server()
    engine = Engine(DecisionModels({}), server.store, encode_step, clock=server.clock)
    server.service = PlannerService(engine, version="1.2.3", max_request_bytes=4 << 20, retained_seconds=60.0)
    client = server.client(bdi(agent("a", writes="k1"), desires=(desire("d", "a", achievable="k0", satisfied="k1"),)))
    assert (await client.init()).model == ""
    await client.first({"k0": 1})
    await client.next(output(client.call("a"), 1))
    assert client.kind == "done"
