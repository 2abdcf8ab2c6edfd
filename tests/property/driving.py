"""Runs an invocation beside its rules, and compares what the client sees with what it must see."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence

from plannerd.errors import PlannerdError
from plannerd.values import PENDING, ScopeValue
from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.property.rules import Expected, Rules, written
from tests.support.engine import Client, Server
from tests.support.models import FunctionModel
from tests.support.world import KEYS, Event, Seen, Tape, World

GOALS = ("g0", "g1", "g2")
"""Keys that are absent at first."""
OTHER_BELIEF = "it pours"


class RestlessWorld(World):
    """A client in whose scope much happens: keys come and go, and one may be on its way when it begins."""

    prompt = False
    """Whether every value is there from the beginning."""

    _late = ""

    def __init__(self, client: Client, tape: Tape) -> None:
        super().__init__(client, tape)
        self.happened: list[str] = []
        self._coming: dict[str, str] = {}  # calls whose outputs are on their way, and their keys

    async def begin(self) -> None:
        """Init and FirstAction; the scope is random, and one key of it may be pending."""
        self._late = [*KEYS, *[""] * 2 * len(KEYS)][self.tape.below(3 * len(KEYS))]
        if self.prompt:
            self._late = ""
        await super().begin()

    def _value(self, key: str, need: int = 0) -> ScopeValue:
        value = super()._value(key, need)
        return PENDING if key == self._late and not self.seen else value

    def _write(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """A placeholder stays as long as the output of any call is on its way to its key."""
        key = self._declared(next(call for call in self.client.step.calls if call.id == call_id)).output_key
        self._coming.pop(call_id, None)
        if outcome in ("pending", "suspended"):
            self._coming[call_id] = key
        if outcome != "skipped" or key not in self._coming.values():
            super()._write(call_id, outcome, value)

    def _outcome(self, call: step_pb2.Call) -> tuple[str, ScopeValue]:
        """A call that is pending or suspended is next heard of when it is through."""
        outcome, value = super()._outcome(call)
        if outcome in ("pending", "suspended") and call.status != step_pb2.CALL_STATUS_OUTSTANDING:
            return "output", self._value(self._declared(call).output_key, call.output_need)
        return outcome, value

    def _happen(self) -> Event:
        event = super()._happen()
        busy = {self._declared(call).output_key for call in self.client.step.calls}
        for key in (*GOALS, *KEYS):
            if key in busy or key in event.scope or key in event.removed:
                continue
            if key in self.scope and self.tape.chance(12):
                event.removed.append(key)
            elif key not in self.scope and self.tape.chance(5):
                event.scope[key] = self._value(key)
        results = [(self.names[call_id], outcome, value) for call_id, outcome, value in event.results]
        self.happened.append(f"{self.seen[-1].action} {self.seen[-1].live}; {event.scope} -{event.removed} {results}")
        return event

    def _believe(self) -> None:
        super()._believe()
        self.beliefs[OTHER_BELIEF] = not self.tape.below(3)


async def move(client: Client, scope: Mapping[str, ScopeValue], beliefs: Mapping[str, bool]) -> Client:
    """Take an invocation to a new server by its execution state; the client must see what it saw."""
    other = client.at(Server(client.server.model))
    before, asked = client.step, client.server.decisions
    await other.resume(scope, beliefs=beliefs)
    assert other.server.decisions == asked
    assert other.step.position == before.position
    assert other.step.action == before.action
    assert other.step.calls == before.calls
    assert other.step.explanation.outcome == step_pb2.STEP_OUTCOME_ATTACHED
    assert other.state == before.state
    return other


def compare(run: RestlessWorld, expected: Expected) -> None:
    """The last step that the client saw is as the rules have it."""
    seen: Seen = run.seen[-1]
    found = Expected(
        seen.action,
        list(seen.agents),
        list(seen.keys),
        list(seen.live),
        "null" if seen.result.startswith("value") and "null_value" in seen.result else seen.result,
        # Where the documents do not say how a question is named, any name will do.
        [[(name if expected.named else "", text) for name, text in request] for request in seen.asked],
        [[(key, written(literal_eval(value))) for key, value in request] for request in seen.inputs],
        expected.named,
    )
    for item in (found, expected):
        item.keys.sort()
    assert found == expected, "\n".join([*run.happened, f"found:    {found}", f"expected: {expected}"])


async def drive(
    request: planner_pb2.InitRequest,
    rules: Rules,
    answer: Callable[[int, str], float],
    tape: Sequence[int],
    seed: int,
    *,
    moving: bool,
    prompt: bool = False,
) -> World:
    """Run an invocation to its end, or for a while, comparing every step.

    Args:
        request: its Init.
        rules: what to compare it with.
        answer: what the decision model answers, by the number of the request and the name of the question.
        tape: decides what happens; see `world`.
        seed: what happens after the tape is used up.
        moving: whether it moves to a new server after every step.
    """
    run = RestlessWorld(Server(FunctionModel(answer)).client(request), Tape(tape, seed))
    run.prompt = prompt
    await run.begin()
    compare(run, rules.first(run.scope, run.beliefs))
    while not run.over:
        rules.issued(run.client.named if run.client.kind == "start" else [])
        if moving:
            try:
                run.client = await move(run.client, run.scope, run.beliefs)
            except PlannerdError as error:
                raise AssertionError("\n".join([*run.happened, str(run.seen[-1]), "can't move"])) from error
        event = await run.go_on()
        compare(run, rules.next(event.scope, event.removed, event.results, run.beliefs))
    return run
