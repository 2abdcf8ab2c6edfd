"""Routers against a second writing of their rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from plannerd.values import ScopeValue
from plannerd_protos.planner.v1 import planner_pb2
from tests.property.driving import drive
from tests.property.rules import Rules
from tests.support.world import SEEDS, TAPES, grid_answers, routers

CHOICE = "Which agent is best suited to handle this request?"


class RouterRules(Rules):
    """A decision model chooses who handles a request.

    Args:
        request: its Init.
        answer: what the model answers, by the number of the request and the name of the question.
    """

    def __init__(self, request: planner_pb2.InitRequest, answer: Callable[[int, str], float]) -> None:
        super().__init__(request)
        config = request.router
        self.threshold = config.activation_threshold if config.HasField("activation_threshold") else None
        self.answer = answer
        self.chosen: list[int] | None = None
        self.answered: dict[int, bool] = {}  # False: skipped
        self.open: dict[str, int] = {}  # calls without an answer, and their agents

    def begin(self) -> None:
        self._decide()

    def go_on(self) -> None:
        """What was awaited is there: the decision can be made."""
        self._decide()

    def issued(self, call_ids: Sequence[str]) -> None:
        self.open |= dict(zip(call_ids, self.started, strict=True))
        super().issued(call_ids)

    def told(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """Nobody follows whoever answers; a placeholder is no output."""
        if outcome != "pending":
            self.answered[self.open.pop(call_id)] = outcome == "output"
        self._collect()

    def arrived(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        self.told(call_id, outcome, value)

    def _decide(self) -> None:
        able = [
            position
            for position, item in enumerate(self.agents)
            if item.WhichOneof("description") != "unavailable" and self.active(position)
        ]
        if self.threshold is None:
            self._choose(able)
        elif able:
            self._judge(able, self.threshold)
        else:
            self._activate([])

    def _choose(self, able: list[int]) -> None:
        if not able:
            self.ending = ("give_up", "GIVE_UP_REASON_NO_ACTIVE_AGENT")
        elif len(able) == 1:
            self._activate(able)
        elif self._can_decide():
            self._ask([("decision-agent", CHOICE)])
            self._activate([able[min(int(self.answer(1, "decision-agent") * len(able)), len(able) - 1)]])

    def _judge(self, able: list[int], threshold: float) -> None:
        if self._can_decide():
            self._ask([(self.agents[position].name, self._question(position)) for position in able])
            self._activate([position for position in able if self.answer(1, self.agents[position].name) >= threshold])

    def _question(self, position: int) -> str:
        item = self.agents[position]
        return f"Should the agent '{item.name}'{f' ({item.text})' if item.text else ''} handle this request?"

    def _can_decide(self) -> bool:
        self.waiting = self.late(self.arguments)
        return not self.waiting

    def _ask(self, questions: list[tuple[str, str]]) -> None:
        self.expected.asked.append(questions)
        self.expected.inputs.append(self.input())

    def _activate(self, chosen: list[int]) -> None:
        self.chosen = chosen
        self.started.extend(chosen)
        if not chosen:
            self._collect()

    def _collect(self) -> None:
        chosen = self.chosen or []
        if all(position in self.answered for position in chosen):
            names = [self.agents[position].name for position in chosen if self.answered[position]]
            if self.threshold is None:
                self.ending = ("done", f"of {names[0]}" if names else "null")
            else:
                self.ending = ("done", " ".join(f"{name}:{name}" for name in names))

    def awaited(self, pending: Sequence[int]) -> tuple[list[str], list[int]]:
        """Once it has decided, all outputs that it was told are on their way.

        Also one under whose key something else stands now; and the key of one whose call waits for somebody by now.
        """
        if self.chosen is None:
            return super().awaited(pending)
        told = {self.agents[call.agent].output_key for call in self.calls.values() if call.told}
        return (sorted(told) if pending else []), list(pending)


@st.composite
def systems(draw: st.DrawFn) -> planner_pb2.InitRequest:
    """A router; some of its agents are described."""
    request = draw(routers())
    for item in request.agents:
        if item.WhichOneof("description") is None and draw(st.booleans()):
            item.text = f"Does {item.name}"
    if len(request.agents) > 1 and draw(st.integers(0, 2)) == 2:
        request.router.ClearField("activation_threshold")
    return request


async def check(request: planner_pb2.InitRequest, tape: Sequence[int], seed: int, *, moving: bool) -> None:
    """Run an invocation beside its rules."""
    answer = grid_answers(seed)
    run = await drive(request, RouterRules(request, answer), answer, tape, seed, moving=moving)
    for what in {seen.action for seen in run.seen}:
        event(what)


@settings(deadline=None)
@given(systems(), TAPES, SEEDS)
async def test_a_router_follows_its_rules(request: planner_pb2.InitRequest, tape: list[int], seed: int) -> None:
    """Whatever the agents and the client do, each step asks, calls, waits and collects as the rules say."""
    await check(request, tape, seed, moving=False)


@settings(deadline=None)
@given(systems(), TAPES, SEEDS)
async def test_a_router_that_moves_follows_its_rules(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """The same, on a new server after every step."""
    await check(request, tape, seed, moving=True)
