"""What is run: systems of agents for all four planners, and what their decision model answers.

Everything that a run can depend on follows from the number of the case, so that it has one right result, whatever
happens on the way. Agents note each time they run.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from plannerd_client import (
    AgentContext,
    Bdi,
    Cascade,
    Desire,
    Planner,
    Recover,
    Retry,
    Router,
    Scheduler,
    agent,
    human,
)

AGENT_SECONDS: Final = 0.4
"""The longest that an agent works."""

INVOCATION: Final = "invocation"
"""The argument that says which invocation it is: the id of a case, and what follows a dot where it was begun anew."""


def case_of(invocation: str) -> str:
    """The id of the case that an invocation is an attempt at."""
    return invocation.partition(".")[0]


class PlannedError(Exception):
    """An agent fails, as it is meant to."""


class Diary(Protocol):
    """Is told of each time that an agent runs."""

    def ran(self, context: AgentContext) -> None:
        """An agent begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One agent. `fails` is how often it fails first; `recovered` that its failure is answered for it."""

    name: str
    reads: tuple[str, ...] = ("request",)
    async_: bool = False
    human: bool = False
    fails: int = 0
    recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A system of agents. `fixed_order` says that the same agents are always started in the same order."""

    name: str
    planner: Callable[[], Planner]
    parts: tuple[Part, ...]
    result: str = ""
    output_type: Any = None
    fixed_order: bool = True


def _bdi() -> Planner:
    return Bdi(
        [
            Desire(name="answered", agents=["look", "write", "send"], achievable="request", satisfied="send"),
            Desire(
                name="safe",
                priority=9,
                agents=["guard", "approve"],
                achievable=lambda scope: "look" in scope,
                satisfied="approve",
            ),
        ]
    )


SCENARIOS = (
    Scenario(
        name="scheduler-chain",
        planner=lambda: Scheduler(goal="A reply exists", goal_threshold=0.5, activation_threshold=0.1),
        parts=(
            Part(name="sort"),
            Part(name="search", reads=("sort",), recovered=True),
            Part(name="draft", reads=("search",)),
            Part(name="reply", reads=("draft", "sort"), fails=1),
        ),
        result="reply",
    ),
    Scenario(
        name="router-fan-out",
        planner=lambda: Router(activation_threshold=0.4),
        parts=(
            Part(name="north"),
            Part(name="east", async_=True),
            Part(name="south", fails=2),
            Part(name="west", human=True),
            Part(name="up", recovered=True),
            Part(name="down", async_=True, fails=1),
            Part(name="middle"),
        ),
        output_type=dict,
    ),
    Scenario(
        name="cascade",
        planner=lambda: Cascade(acceptance_threshold=0.6, acceptance_criterion="It is complete"),
        parts=(Part(name="rule"), Part(name="small", fails=1), Part(name="person", human=True), Part(name="large")),
    ),
    Scenario(
        name="bdi",
        planner=_bdi,
        parts=(
            Part(name="look"),
            Part(name="write", reads=("look",), async_=True),
            Part(name="send", reads=("write", "approve")),
            Part(name="guard", reads=("look",), recovered=True),
            Part(name="approve", reads=("guard",), human=True),
        ),
        result="send",
    ),
    Scenario(
        name="scheduler-waiting",
        planner=lambda: Scheduler(
            goal="All is told",
            goal_threshold=0.5,
            activation_threshold=0.1,
            excluded_output_keys=["slow"],
        ),
        parts=(
            Part(name="quick"),
            Part(name="slow", async_=True),
            Part(name="asked", human=True),
            Part(name="told", reads=("quick", "slow", "asked")),
        ),
        result="told",
        fixed_order=False,
    ),
    Scenario(
        name="router-choice",
        planner=Router,
        parts=(Part(name="red", fails=1), Part(name="green"), Part(name="blue", human=True)),
    ),
    Scenario(
        name="scheduler-gives-up",
        planner=lambda: Scheduler(
            goal="A reply exists", goal_threshold=0.5, activation_threshold=0.1, max_invocations=2
        ),
        parts=(Part(name="first"), Part(name="second", reads=("first",)), Part(name="reply", reads=("second",))),
        result="reply",
    ),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One invocation to be run, by its number."""

    number: int

    @property
    def id(self) -> str:
        """Its name, which its decision model sees."""
        return f"case-{self.number:04d}"

    @property
    def scenario(self) -> Scenario:
        """What it is an example of."""
        return SCENARIOS[self.number % len(SCENARIOS)]

    def arguments(self, invocation: str) -> dict[str, Any]:
        """The arguments of its planner agent; the decision model sees which invocation asks."""
        return {
            INVOCATION: invocation,
            "request": {"text": f"request of {self.id}", "lines": [self.number, 2.5, None, True]},
        }

    def agents(self, diary: Diary) -> list[Any]:
        """Its agents."""
        return [self._agent(part, diary) for part in self.scenario.parts]

    def answer(self, agent_id: str) -> str:
        """What a human answers."""
        return f"{agent_id.partition('$')[0]}, says a human about {self.id}"

    def on_error(self, context: AgentContext, error: Exception) -> Any:
        """Failures that are planned are retried or answered for; no other may occur."""
        if not isinstance(error, PlannedError):
            return None
        part = next(part for part in self.scenario.parts if part.name == context.agent.partition("$")[0])
        return Recover(f"{part.name} of {self.id}, recovered") if part.recovered else Retry(delay=0.01)

    def _agent(self, part: Part, diary: Diary) -> Any:
        if part.human:
            return human(part.name, arguments=list(part.reads), output_key=part.name)
        seconds = AGENT_SECONDS * chance(self.id, part.name, "seconds") ** 2

        def work(context: AgentContext, **values: Any) -> str:
            diary.ran(context)
            time.sleep(seconds)
            if part.recovered or context.attempt <= part.fails:
                raise PlannedError(part.name)
            return f"{part.name}({', '.join(_short(value) for value in values.values())})"

        keyword = inspect.Parameter.KEYWORD_ONLY
        work.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("context", keyword, annotation=AgentContext),
                *(inspect.Parameter(name, keyword) for name in part.reads),
            ]
        )
        return agent(name=part.name, output_key=part.name, async_=part.async_)(work)


def chance(*what: object) -> float:
    """A number from 0 to 1 that depends on `what` alone."""
    digest = hashlib.sha256("/".join(str(one) for one in what).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def _short(value: Any) -> str:
    return value["text"] if isinstance(value, dict) else str(value)
