"""The rules of the decision scheduler, written down once more, slowly and from the documents alone.

It knows the whole scope and every call, looks at them from the beginning at each decision, and says what a
client must see. Nothing of the server is used but the form of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plannerd.values import PENDING, Opaque, ScopeValue
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def is_there(value: ScopeValue) -> bool:
    """A value is in the scope when it is not null and not blank."""
    return value is not None and not (isinstance(value, str) and value.strip(WHITE_SPACE) == "")


def meaning(value: Any) -> object:
    """Something that is equal exactly for equal values: numbers by value, booleans apart from them."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, list):
        return ("list", tuple(meaning(item) for item in value))
    if isinstance(value, dict):
        return ("map", frozenset((key, meaning(item)) for key, item in value.items()))
    if isinstance(value, Opaque):
        return ("opaque", value.tag)
    return (type(value).__name__, value)


@dataclass(slots=True)
class Call:
    """A live call: of which agent, how it stands, and whether the planner has heard of it."""

    agent: int
    status: str = "outstanding"
    heard: bool = False


@dataclass(slots=True)
class Expected:
    """What a client must see of one step."""

    action: str = ""
    agents: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    live: list[tuple[str, str]] = field(default_factory=list)
    result: str = ""
    asked: list[list[str]] = field(default_factory=list)
    inputs: list[list[str]] = field(default_factory=list)


class EmptyInputError(Exception):
    """There is nothing to decide on: the step fails."""


class SchedulerModel:
    """One invocation of a scheduler, as the documents describe it.

    Args:
        request: its Init.
        answer: the answer to a question (the number of the decision, the question's name), from 0 to 1.
    """

    def __init__(self, request: planner_pb2.InitRequest, answer: Callable[[int, str], float]) -> None:
        self.config = request.scheduler
        self.agents = list(request.agents)
        self.arguments = [item.name for item in request.planner_agent.arguments if not item.name.startswith("@")]
        self.output_key = request.planner_agent.output_key
        self.answer = answer
        self.decisions = 0
        self.invocations = 0
        self.scope: dict[str, ScopeValue] = {}
        self.beliefs: Mapping[str, bool] = {}
        self.calls: dict[str, Call] = {}
        self.tired: set[int] = set()  # ran, and nothing has changed since
        self.known: dict[str, object] = {}  # the scope as the planner last saw it
        self.waiting: list[str] = []
        self.ending: tuple[str, str] | None = None
        self.started: list[int] = []
        self.failed = False
        self.expected = Expected()

    # ---- what a client does

    def first(self, scope: Mapping[str, ScopeValue], beliefs: Mapping[str, bool]) -> Expected:
        """FirstAction."""
        self.scope, self.beliefs, self.expected = dict(scope), beliefs, Expected()
        self.known = self._see()
        self._decide()
        return self._compose()

    def next(
        self,
        changes: Mapping[str, ScopeValue],
        removed: list[str],
        results: list[tuple[str, str, ScopeValue]],
        beliefs: Mapping[str, bool],
    ) -> Expected:
        """NextAction: the changes, then each result (call id, outcome, output) in order."""
        self.beliefs, self.expected, self.started = beliefs, Expected(), []
        for key in removed:
            self.scope.pop(key, None)
        self.scope.update(changes)
        for call_id, outcome, value in results:
            self._report(call_id, outcome, value)
        if not self.failed and self.waiting and not any(self.scope.get(key) is PENDING for key in self.waiting):
            self._decide()
        return self._compose()

    def issued(self, call_ids: list[str]) -> None:
        """The ids of the calls that this step started."""
        for call_id, agent in zip(call_ids, self.started, strict=True):
            self.calls[call_id] = Call(agent)

    # ---- reports

    def _report(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        call = self.calls[call_id]
        key = self.agents[call.agent].output_key
        heard = call.heard
        match outcome:
            case "output":
                del self.calls[call_id]
                if key:
                    self._arrive(key, value)
            case "skipped":
                del self.calls[call_id]
                if key and self.scope.get(key) is PENDING:
                    self._arrive(key, None)
            case "pending":
                call.status, call.heard = "pending", True
                self.scope[key] = PENDING
            case "suspended":
                call.status = "suspended"
                self.scope[key] = PENDING
                return  # the planner does not hear of it
            case "failed":
                self.failed = True
                return
        if not heard and not self.failed:
            self._decide()

    def _arrive(self, key: str, value: ScopeValue) -> None:
        late = self.scope.get(key) is PENDING and self.known.get(key) == meaning(PENDING)
        if value is None:
            self.scope.pop(key, None)
        else:
            self.scope[key] = value
        if late:  # a pending report re-arms once, its later arrival does not
            self.known[key] = meaning(value) if is_there(value) else None

    # ---- a decision

    def _see(self) -> dict[str, object]:
        return {key: meaning(value) for key, value in self.scope.items() if is_there(value)}

    def _name(self, position: int) -> str:
        item = self.agents[position]
        alone = sum(other.name == item.name for other in self.agents) == 1
        return item.name if alone else item.id or f"{item.name}${position}"

    def _decide(self) -> None:
        now = self._see()
        for position, item in enumerate(self.agents):
            if any(now.get(argument.name) != self.known.get(argument.name) for argument in item.arguments):
                self.tired.discard(position)
        self.known, self.waiting = now, []
        if self.invocations >= (self.config.max_invocations or 10):
            return self._stop("MAX_INVOCATIONS")
        candidates = [position for position in range(len(self.agents)) if self._can_run(position)]
        if not candidates:
            return self._stop("NO_CANDIDATE")
        inputs = self._input_keys()
        late = [key for key in inputs if self.scope.get(key) is PENDING]
        if late:
            self.waiting = late
            return None
        if not inputs:
            raise EmptyInputError
        return self._ask(candidates, inputs)

    def _can_run(self, position: int) -> bool:
        item = self.agents[position]
        if item.WhichOneof("description") == "unavailable" or position in self.tired:
            return False
        for argument in item.arguments:
            if not argument.optional and not argument.has_default and not is_there(self.scope.get(argument.name)):
                return False
        return self._active(item)

    def _active(self, item: agent_pb2.Agent) -> bool:
        match item.activation.WhichOneof("kind"):
            case "present_key":
                return is_there(self.scope.get(item.activation.present_key))
            case "belief":
                return self.beliefs[item.activation.belief]
            case _:
                return True

    def _input_keys(self) -> list[str]:
        keys = [key for key in self.arguments if key not in self.config.excluded_output_keys]
        for item in self.agents:
            key = item.output_key
            new = key and key not in keys and key not in self.config.excluded_output_keys
            if new and is_there(self.scope.get(key)):
                keys.append(key)
        return keys

    def _ask(self, candidates: list[int], inputs: list[str]) -> None:
        self.decisions += 1
        names = {self._name(position) for position in range(len(self.agents))}
        goal = "goal"
        while goal in names:
            goal = f"_{goal}"
        judged = not self._writes_result() or is_there(self.scope.get(self.output_key))
        self.expected.asked.append([self._name(position) for position in candidates] + ([goal] if judged else []))
        self.expected.inputs.append(inputs)
        if judged and self.answer(self.decisions, goal) >= self.config.goal_threshold:
            self.ending = ("done", "")
            return None
        levels = len(self.config.usefulness_levels) or 4
        scores = {
            position: self.answer(self.decisions, self._name(position)) * (levels - 1) / (levels - 1)
            for position in candidates
        }
        best = next(position for position in candidates if scores[position] == max(scores.values()))
        if scores[best] < self.config.activation_threshold:
            return self._stop("BELOW_THRESHOLD")
        self.invocations += 1
        self.tired.add(best)
        self.started.append(best)
        return None

    def _writes_result(self) -> bool:
        return bool(self.output_key) and any(item.output_key == self.output_key for item in self.agents)

    def _stop(self, reason: str) -> None:
        if self._writes_result() and self.scope.get(self.output_key) is PENDING:
            self.waiting = [self.output_key]
        elif self._writes_result() and not is_there(self.scope.get(self.output_key)):
            self.ending = ("give_up", f"GIVE_UP_REASON_{reason}")
        else:
            self.ending = ("done", "")

    # ---- calls > await > suspend > ending > nothing

    def _compose(self) -> Expected:
        seen = self.expected
        by_status = {
            status: [self._name(call.agent) for call in self.calls.values() if call.status == status]
            for status in ("outstanding", "pending", "suspended")
        }
        seen.live = [(self._name(call.agent), call.status) for call in self.calls.values()]
        seen.live += [(self._name(agent), "outstanding") for agent in self.started]
        waiting = [key for key in self.waiting if self.scope.get(key) is PENDING]
        writers = [
            self._name(call.agent)
            for call in self.calls.values()
            if call.status == "pending" and self.agents[call.agent].output_key in waiting
        ]
        if self.failed:
            seen.action, seen.result, seen.live = "give_up", "GIVE_UP_REASON_AGENT_FAILED", []
        elif self.started:
            seen.action, seen.agents = "start", [self._name(agent) for agent in self.started]
        elif waiting and (writers or not (by_status["outstanding"] or by_status["suspended"])):
            seen.action, seen.agents, seen.keys = "await", writers, waiting
        elif by_status["outstanding"]:
            seen.action = "no_op"
        elif by_status["suspended"]:
            seen.action, seen.agents = "suspend", by_status["suspended"]
        elif self.ending:
            seen.action, seen.result = self.ending
            seen.live = []
        else:
            seen.action = "no_op"
        return seen
