"""What all planners have in common, written down once more from the documents: calls, reports, and what is composed.

Rules know the whole scope and every call, and say what a client must see of each step. Nothing of the server is
used but the form of values.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pprint import pformat

from plannerd.values import PENDING, ScopeValue
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2
from tests.support.scheduler_model import is_there


def written(value: ScopeValue) -> str:
    """A value as Python writes it, maps in the order of their keys."""
    return pformat(value, width=sys.maxsize)


@dataclass(slots=True)
class Call:
    """A live call.

    Attributes:
        agent: the position of its agent.
        status: outstanding, pending or suspended.
        told: the planner has heard of it, when its output was on its way.
    """

    agent: int
    status: str = "outstanding"
    told: bool = False


@dataclass(slots=True)
class Expected:
    """What a client must see of one step.

    Attributes:
        action: its kind.
        agents: the names of the agents whose calls it names.
        keys: what is waited for, in any order.
        live: the live calls, by agent and status.
        result: why it gave up, or the form of the result.
        asked: the questions of each request to the decision model, by name and text.
        inputs: the input of each request, by name and value.
        named: the documents say how questions are named.
    """

    action: str = "no_op"
    agents: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    live: list[tuple[str, str]] = field(default_factory=list)
    result: str = ""
    asked: list[list[tuple[str, str]]] = field(default_factory=list)
    inputs: list[list[tuple[str, str]]] = field(default_factory=list)
    named: bool = True


class Rules(ABC):
    """One invocation, as the documents describe it.

    Args:
        request: its Init.
    """

    def __init__(self, request: planner_pb2.InitRequest) -> None:
        self.agents = list(request.agents)
        self.arguments = [item.name for item in request.planner_agent.arguments if not item.name.startswith("@")]
        self.output_key = request.planner_agent.output_key
        self.scope: dict[str, ScopeValue] = {}
        self.beliefs: Mapping[str, bool] = {}
        self.calls: dict[str, Call] = {}
        self.waiting: list[str] = []  # keys without which the planner can't go on
        self.started: list[int] = []
        self.ending: tuple[str, str] | None = None
        self.failed = False
        self.expected = Expected()

    # ---- what each planner says

    @abstractmethod
    def begin(self) -> None:
        """The first action."""

    @abstractmethod
    def told(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """A call answered, was skipped, or its output is on its way (`pending`). Once for each call."""

    def arrived(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        """A call of which the planner had been told that its output is on its way answered, or was skipped."""
        return  # most planners don't care

    @abstractmethod
    def go_on(self) -> None:
        """What the planner waited for has arrived."""

    def awaited(self, pending: Sequence[int]) -> tuple[list[str], list[int]]:
        """The keys that the planner waits for, and those of the agents with pending outputs that will write them."""
        keys = self.late(self.waiting)
        return keys, [agent for agent in pending if self.agents[agent].output_key in keys]

    def settle(self) -> None:
        """All results of a request are in; the last word before it is answered."""
        return  # most planners don't care

    # ---- what a client does

    def first(self, scope: Mapping[str, ScopeValue], beliefs: Mapping[str, bool]) -> Expected:
        """FirstAction."""
        self.scope, self.beliefs = dict(scope), beliefs
        self.begin()
        return self._compose()

    def next(
        self,
        changes: Mapping[str, ScopeValue],
        removed: Sequence[str],
        results: Sequence[tuple[str, str, ScopeValue]],
        beliefs: Mapping[str, bool],
    ) -> Expected:
        """NextAction: the client's own changes, then each result (call id, outcome, output) in order."""
        self.beliefs, self.expected, self.started = beliefs, Expected(), []
        for key in removed:
            self.scope.pop(key, None)
        self.scope.update(changes)
        for result in results:
            self._report(*result)
        if self.waiting and not self.late(self.waiting) and not self.failed:
            self.waiting = []
            self.go_on()
        self.settle()
        return self._compose()

    def issued(self, call_ids: Sequence[str]) -> None:
        """The ids of the calls that this step started."""
        for call_id, agent in zip(call_ids, self.started, strict=True):
            self.calls[call_id] = Call(agent)

    def _report(self, call_id: str, outcome: str, value: ScopeValue) -> None:
        call = self.calls[call_id]
        key = self.agents[call.agent].output_key
        match outcome:
            case "failed":
                self.failed = True
                return
            case "suspended":
                call.status, self.scope[key] = "suspended", PENDING
                return
            case "pending":
                call.status, self.scope[key] = "pending", PENDING
            case "skipped":
                del self.calls[call_id]
                if self.scope.get(key) is PENDING and not self._others_write(key):
                    del self.scope[key]
            case _:
                del self.calls[call_id]
                if key and value is None:
                    self.scope.pop(key, None)
                elif key:
                    self.scope[key] = value
        if self.failed:
            return
        if call.told:
            self.arrived(call_id, outcome, value)
        else:
            call.told = True
            self.told(call_id, outcome, value)

    def _others_write(self, key: str) -> bool:
        return any(
            self.agents[call.agent].output_key == key and call.status != "outstanding" for call in self.calls.values()
        )

    # ---- what planners look at

    def late(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys whose values are still on their way."""
        return [key for key in keys if self.scope.get(key) is PENDING]

    def holds(self, condition: agent_pb2.Condition) -> bool:
        """Whether a condition holds."""
        if condition.WhichOneof("kind") == "belief":
            return self.beliefs[condition.belief]
        return is_there(self.scope.get(condition.present_key))

    def active(self, agent: int) -> bool:
        """Whether an agent may run at all."""
        item = self.agents[agent]
        return not item.HasField("activation") or self.holds(item.activation)

    def input(self, **more: ScopeValue) -> list[tuple[str, str]]:
        """The input of a decision: the arguments, absent ones as null, and what the planner adds."""
        fields = [(key, self.scope.get(key)) for key in self.arguments] + list(more.items())
        return [(key, written(value)) for key, value in fields]

    def names(self, agents: Sequence[int]) -> list[str]:
        """The names of agents."""
        return [self.agents[agent].name for agent in agents]

    # ---- calls > await > suspend > the end > nothing

    def _compose(self) -> Expected:
        seen = self.expected
        by_status: dict[str, list[int]] = {"outstanding": [], "pending": [], "suspended": []}
        for call in self.calls.values():
            by_status[call.status].append(call.agent)
        seen.live = [(self.agents[call.agent].name, call.status) for call in self.calls.values()]
        seen.live += [(name, "outstanding") for name in self.names(self.started)]
        keys, writers = self.awaited(by_status["pending"])
        if self.failed:
            seen.action, seen.result, seen.live = "give_up", "GIVE_UP_REASON_AGENT_FAILED", []
        elif self.started:
            seen.action, seen.agents = "start", self.names(self.started)
        elif by_status["outstanding"]:
            seen.action = "no_op"
        elif keys and (writers or not by_status["suspended"]):
            seen.action, seen.agents, seen.keys = "await", self.names(writers), keys
        elif by_status["suspended"]:
            seen.action, seen.agents = "suspend", self.names(by_status["suspended"])
        elif self.ending:
            (seen.action, seen.result), seen.live = self.ending, []
        return seen


__all__ = ["Call", "Expected", "Rules", "written"]
