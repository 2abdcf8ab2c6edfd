"""Confidence cascades against a second writing of their rules."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from hypothesis import assume, event, given, settings

from plannerd.values import ScopeValue
from plannerd_protos.planner.v1 import planner_pb2
from tests.property.driving import drive
from tests.property.rules import Rules
from tests.support.world import SEEDS, TAPES, cascades

QUESTION = "Does the answer fully and correctly address the request?"


class CascadeRules(Rules):
    """Tiers are tried in order until an answer is accepted.

    Args:
        request: its Init.
        answer: what the model answers, by the number of the request.
    """

    def __init__(self, request: planner_pb2.InitRequest, answer: Callable[[int], float]) -> None:
        super().__init__(request)
        self.threshold = request.cascade.acceptance_threshold
        self.answer = answer
        self.asked = 0
        self.tier = -1
        self.skipped = False  # the tier that is being tried
        self.latest: tuple[int, ScopeValue] | None = None  # tier, its answer

    def begin(self) -> None:
        self._try_next()

    def told(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """After a tier, or when its answer is on its way."""
        if outcome == "pending":
            self.waiting = [self.agents[self.tier].output_key]
            return
        self.arrived(call_id, outcome, value)
        self.go_on()

    def arrived(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        if outcome == "skipped":
            self.skipped = True
        else:
            self.latest = (self.tier, value)

    def go_on(self) -> None:
        """The tier is through: grade its answer, or pass it over."""
        if self.skipped:
            self._try_next()
        elif self._next() is None:
            self._end()
        else:
            self.waiting = self.late(self.arguments)
            if not self.waiting:
                self._grade()

    def _grade(self) -> None:
        assert self.latest is not None
        self.asked += 1
        self.expected.asked.append([("", QUESTION)])
        self.expected.named = False
        self.expected.inputs.append(self.input(candidateAnswer=self.latest[1]))
        if self.answer(self.asked) >= self.threshold:
            self._end()
        else:
            self._try_next()

    def _next(self) -> int | None:
        return next((tier for tier in range(self.tier + 1, len(self.agents)) if self.active(tier)), None)

    def _try_next(self) -> None:
        tier = self._next()
        if tier is None:
            self._end()
            return
        self.tier, self.skipped = tier, False
        self.started.append(tier)

    def _end(self) -> None:
        self.ending = ("done", f"of {self.agents[self.latest[0]].name}" if self.latest else "null")


async def check(request: planner_pb2.InitRequest, tape: Sequence[int], seed: int, *, moving: bool) -> None:
    """Run an invocation beside its rules. Answers come in steps of an eighth, so that many are at the threshold."""

    def answer(number: int) -> float:
        return zlib.crc32(f"{seed}/{number}".encode()) % 9 / 8

    rules = CascadeRules(request, answer)
    run = await drive(request, rules, lambda number, _: answer(number), tape, seed, moving=moving, prompt=moving)
    for what in {seen.action for seen in run.seen}:
        event(what)


@settings(deadline=None)
@given(cascades(), TAPES, SEEDS)
async def test_a_cascade_follows_its_rules(request: planner_pb2.InitRequest, tape: list[int], seed: int) -> None:
    """Whatever the agents and the client do, each step tries, grades, waits and ends as the rules say."""
    await check(request, tape, seed, moving=False)


@settings(deadline=None)
@given(cascades(), TAPES, SEEDS)
async def test_a_cascade_that_moves_follows_its_rules(
    request: planner_pb2.InitRequest, tape: list[int], seed: int
) -> None:
    """The same, on a new server after every step, as long as no grade waits for an argument.

    An answer whose grade has to wait is kept nowhere but in the server: restored elsewhere, the next tier is tried.
    """
    arguments = {argument.name for argument in request.planner_agent.arguments}
    assume(not arguments & {agent.output_key for agent in request.agents})
    await check(request, tape, seed, moving=True)
