"""Finds thresholds for the demo on the half of the tickets that it is tuned on, and counts both halves.

A ticket is worked through once, with thresholds that stop nothing. Which agent is best does not depend on thresholds:
they only say when to stop. So what a run with other thresholds does is the beginning of that path.
The texts of the demo were chosen by hand and by trying; this script takes them as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from demo import cascade, system
from demo.data import Ticket, tickets
from demo.scheduler import ENDS, Worked
from demo.screen import Screen
from plannerd_client import Client, GaveUp, Step

LOW, HIGH = 1e-6, 1 - 1e-6
GRID: Final = (0.01, 0.02, 0.03, *(step / 20 for step in range(1, 20)))
FINE: Final = tuple(step / 100 for step in range(1, 100))

Path = TypeVar("Path")


@dataclass(frozen=True, slots=True)
class Decision:
    """A step of a scheduler: the agent that ran, its score, and the probability of the goal before it, if asked."""

    agent: str
    score: float
    goal: float | None


@dataclass(frozen=True, slots=True)
class Graded:
    """What a cascade made of a ticket: the grade of each tier that was graded, in order."""

    ticket: Ticket
    grades: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Followed:
    """A ticket, worked through to the end."""

    ticket: Ticket
    decisions: tuple[Decision, ...]

    def agrees(self, goal: float, activation: float) -> bool:
        """Whether a scheduler with these thresholds does what a good clerk would do."""
        ran = []
        for decision in self.decisions:
            if (decision.goal is not None and decision.goal >= goal) or decision.score < activation:
                break
            ran.append(decision.agent)
        writers = [agent for agent in ran if agent in ENDS]
        ends = ENDS[writers[-1]] if writers else "unanswered"
        return Worked(self.ticket, tuple(ran), ends, 0.0).agrees


def follow(client: Client, ticket: Ticket) -> Followed:
    """Work through a ticket with thresholds that stop nothing."""
    decisions: list[Decision] = []

    def on_step(step: Step) -> None:
        found = step.explanation
        goal = found.goal.probability if found.goal.HasField("probability") else None
        called = next((agent for agent in found.agents if agent.called), None)
        if called is not None:
            decisions.append(Decision(called.agent_id.partition("$")[0], called.score, goal))

    planner = dataclasses.replace(system.PLANNER, goal_threshold=HIGH, activation_threshold=LOW)
    _run(client, planner, system.agents(), ticket, on_step)
    return Followed(ticket, tuple(decisions))


def grade(client: Client, ticket: Ticket) -> Graded:
    """Let a cascade grade every tier of a ticket, accepting none."""
    grades: list[float] = []

    def on_step(step: Step) -> None:
        grades.extend(agent.score for agent in step.explanation.agents if agent.HasField("score"))

    planner = dataclasses.replace(cascade.PLANNER, acceptance_threshold=HIGH)
    _run(client, planner, cascade.TIERS, ticket, on_step)
    return Graded(ticket, tuple(grades))


def takes_the_right_tier(graded: Graded, acceptance: float) -> bool:
    """Whether a cascade with this threshold ends at the tier that a good clerk would take."""
    accepted = next((i for i, found in enumerate(graded.grades) if found >= acceptance), len(cascade.TIERS) - 1)
    wanted = cascade.assistant if graded.ticket.ends == "answered" else cascade.person
    return cascade.TIERS[accepted] is wanted


def run(client: Client, screen: Screen, limit: int | None) -> bool:
    """Tune the scheduler and the cascade; nothing is changed, what was found is printed."""
    chosen = tickets()[:limit]
    screen.line(f"{len(chosen)} tickets. Thresholds are chosen on every second one, and counted on the others too.")
    followed = [follow(client, ticket) for ticket in chosen]
    in_use = (system.PLANNER.goal_threshold, system.PLANNER.activation_threshold)
    pairs = [(goal, activation) for goal in GRID for activation in GRID]
    screen.heading("Scheduler: goal threshold, activation threshold")
    _report(screen, followed, pairs, in_use, lambda path, pair: path.agrees(*pair))
    graded = [grade(client, ticket) for ticket in chosen if ticket.text.strip()]
    screen.heading("Cascade: acceptance threshold")
    _report(screen, graded, FINE, cascade.PLANNER.acceptance_threshold, takes_the_right_tier)
    screen.line()
    screen.line("Among equals the middle one is shown. The router has no threshold.")
    return False


def best(paths: Sequence[Path], values: Sequence[Any], good: Callable[[Path, Any], bool]) -> list[Any]:
    """The values with the most good paths, in order."""
    counted = [sum(good(path, value) for path in paths) for value in values]
    return [value for value, count in zip(values, counted, strict=True) if count == max(counted)]


def _report(
    screen: Screen,
    paths: Sequence[Any],
    values: Sequence[Any],
    in_use: Any,
    good: Callable[[Any, Any], bool],
) -> None:
    halves = [[path for path in paths if path.ticket.half == half] for half in (0, 1)]
    found = best(halves[0], values, good)
    rows: list[tuple[str, ...]] = [("", "thresholds", "tuned on", "never looked at")]
    for name, value in (("found", found[len(found) // 2]), ("of the demo", in_use)):
        counts = [f"{sum(good(path, value) for path in half)} of {len(half)}" for half in halves]
        rows.append((name, _written(value), *counts))
    screen.table(rows)
    screen.line(
        f"{len(found)} of {len(values)} tried are as good as the one found, the demo's "
        + ("among them." if in_use in found else "not among them.")
    )


def _written(value: Any) -> str:
    return ", ".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"


def _run(client: Client, planner: Any, agents: Sequence[Any], ticket: Ticket, on_step: Callable[[Step], None]) -> None:
    with suppress(GaveUp):  # what it did up to there counts
        client.run(planner, agents, {"ticket": ticket.text}, output_key="reply", on_step=on_step)
