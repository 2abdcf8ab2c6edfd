"""The scheduler demo: every ticket is worked through step by step, and compared with what a good clerk would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from demo.data import Ticket, tickets
from demo.screen import WIDTH, Screen, clip
from demo.system import PLANNER, agents
from plannerd_client import Client, GaveUp, PlannerdError, RunResult, Step

ENDS = {"review": "answered", "escalate": "escalated", "close": "closed"}


@dataclass(frozen=True, slots=True)
class Worked:
    """What was done about a ticket: the agents that ran, in order, and how it ended."""

    ticket: Ticket
    ran: tuple[str, ...]
    ends: str
    seconds: float

    @property
    def missed(self) -> list[str]:
        """Agents that a good clerk would have run."""
        return [name for name in self.ticket.needs if name not in self.ran]

    @property
    def needless(self) -> list[str]:
        """Agents that a good clerk would not have run."""
        return [name for name in dict.fromkeys(self.ran) if name not in self.ticket.needs]

    @property
    def agrees(self) -> bool:
        """Whether the clerk would have done just that."""
        return not self.missed and not self.needless and self.ends == self.ticket.ends


def run(client: Client, screen: Screen, limit: int | None) -> bool:
    """Work through the tickets; True if anything failed."""
    chosen = tickets()[:limit]
    screen.line(
        f"{len(chosen)} tickets, {len(agents())} agents, goal threshold {PLANNER.goal_threshold:g}, "
        f"activation threshold {PLANNER.activation_threshold:g}. Texts and thresholds are tuned for the embedded "
        "model on half of the tickets; another model needs others."
    )
    worked = []
    failures = 0
    for number, ticket in enumerate(chosen, start=1):
        screen.item(f"[{number}/{len(chosen)}] {ticket.id} ({ticket.language})", ticket.text)
        try:
            worked.append(work(client, screen, ticket))
        except PlannerdError as error:
            failures += 1
            screen.line(f"    FAILED: {error}", good=False)
    if worked:
        summary(screen, worked)
    if failures:
        screen.line(f"{failures} tickets failed with an error.", good=False)
    return failures > 0


def work(client: Client, screen: Screen, ticket: Ticket) -> Worked:
    """One ticket, with every decision on the screen as it is made."""
    steps: list[Step] = []

    def on_step(step: Step) -> None:
        steps.append(step)
        show_step(screen, len(steps), step)

    result: RunResult | None = None
    try:
        result = client.run(PLANNER, agents(), {"ticket": ticket.text}, output_key="reply", on_step=on_step)
    except GaveUp as gave_up:
        screen.detail(f"    gave up: {gave_up}", good=False)
    ran = tuple(agent_id.partition("$")[0] for step in steps for _, agent_id in step.started)
    writers = [name for name in ran if name in ENDS]
    ends = ENDS[writers[-1]] if result is not None and writers else "unanswered"
    worked = Worked(ticket, ran, ends, sum(step.seconds for step in steps))
    verdict = "as a good clerk would" if worked.agrees else disagreement(worked)
    screen.detail(f"    {ends}: {verdict}", good=worked.agrees)
    return worked


def disagreement(worked: Worked) -> str:
    """In what the planner and the clerk differ."""
    parts = []
    if worked.ends != worked.ticket.ends:
        parts.append(f"should be {worked.ticket.ends}")
    if worked.missed:
        parts.append(f"missed {', '.join(worked.missed)}")
    if worked.needless:
        parts.append(f"needless {', '.join(worked.needless)}")
    return "; ".join(parts)


def show_step(screen: Screen, number: int, step: Step) -> None:
    """Candidates with their scores, the best first; what ran; why it stopped."""
    explanation = step.explanation
    scored = sorted((found for found in explanation.agents if found.HasField("score")), key=lambda found: -found.score)
    names = [f"{found.agent_id.partition('$')[0]} {found.score:.2f}" for found in scored]
    goal = f"goal {explanation.goal.probability:.2f}" if explanation.goal.HasField("probability") else ""
    if step.action == "start":
        called = next(agent_id for _, agent_id in step.started).partition("$")[0]
        others = ", ".join(name for name in names if name.partition(" ")[0] != called)
        chosen = next((name for name in names if name.partition(" ")[0] == called), called)
        screen.detail(
            f" {number:>2}. {chosen:<20}{'over ' + others if others else 'the only candidate'}  {goal}".rstrip()
        )
    else:
        screen.detail(f" {number:>2}. stop: {explanation.summary}")


def summary(screen: Screen, worked: list[Worked]) -> None:
    """How far the planner and the clerk agree, ticket by ticket and agent by agent."""
    total = len(worked)
    agreed = sum(one.agrees for one in worked)
    ended = sum(one.ends == one.ticket.ends for one in worked)
    calls = sum(len(one.ran) for one in worked)
    seconds = sorted(one.seconds for one in worked)
    screen.heading("Summary")
    screen.line(f"Exactly what a good clerk would do: {agreed} of {total} tickets ({agreed / total:.0%}).")
    screen.line(f"Ended as they should (answered, escalated, closed): {ended} of {total}.")
    for half, name in ((0, "tuned on"), (1, "never looked at while tuning")):
        part = [one for one in worked if one.ticket.half == half]
        if part:
            screen.line(f"  {name}: {sum(one.agrees for one in part)} of {len(part)} exactly")
    median = seconds[total // 2] * 1000
    screen.line(f"Agents run: {calls}, {calls / total:.1f} a ticket. Planning: {median:.0f} ms a ticket (median).")
    screen.line()
    missed = Counter(name for one in worked for name in one.missed)
    needless = Counter(name for one in worked for name in one.needless)
    needed = Counter(name for one in worked for name in one.ticket.needs)
    rows: list[tuple[str, ...]] = [("agent", "needed", "ran when needed", "missed", "needless")]
    for agent in agents():
        name = agent.name
        rows.append((name, str(needed[name]), str(needed[name] - missed[name]), str(missed[name]), str(needless[name])))
    screen.table(rows)
    wrong = [one for one in worked if not one.agrees]
    if wrong:
        screen.line()
        screen.line("Where the embedded model was wrong:")
        for one in wrong:
            screen.line(clip(f"  {one.ticket.id}: {disagreement(one)}", WIDTH))
    screen.line()
    screen.line(
        "sparrow is a model of a few megabytes. It is good enough to try plannerd without a key or a network; measure "
        "a larger one on your own tickets before you rely on either."
    )
