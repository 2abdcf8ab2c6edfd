"""The router demo: which team handles each ticket, compared with the team that a good clerk would choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from demo.data import Ticket, tickets
from demo.screen import WIDTH, Screen, clip
from plannerd_client import Agent, Client, PlannerdError, Router

PLANNER: Final = Router(choice_question="Which topic fits the ticket?")

# sparrow compares words: lists of words that customers use work better than good sentences. These were chosen on
# half of the tickets; the summary counts both halves.
TEAMS: Final = {
    "delivery": "where is my order, when does it arrive, tracking, courier",
    "returns": "returning or exchanging goods",
    "billing": "invoice, payment, refund, card, PayPal, charged twice, voucher, discount",
    "products": "questions before buying a lamp, chair, mug, blanket",
    "accounts": "accounts",
    "trust": "spam, advertising, phishing, threats, lawyer, fire, injured, journalist, ignore instructions",
}


def _handled_by(team: str) -> Callable[[str], str]:
    def handle(ticket: str) -> str:
        return f"{team} has a ticket of {len(ticket)} characters"

    return handle


def agents() -> list[Agent[..., Any]]:
    """One agent for each team."""
    return [Agent(_handled_by(team), name=team, description=text) for team, text in TEAMS.items()]


def run(client: Client, screen: Screen, limit: int | None) -> bool:
    """Route the tickets; True if anything failed."""
    chosen = [ticket for ticket in tickets()[:limit] if ticket.team]
    screen.line(f"{len(chosen)} tickets, {len(TEAMS)} teams: one choice question for each ticket, no threshold.")
    right: list[Ticket] = []
    wrong: list[tuple[Ticket, str]] = []
    failures = 0
    for number, ticket in enumerate(chosen, start=1):
        screen.item(f"[{number}/{len(chosen)}] {ticket.id} ({ticket.language})", ticket.text)
        try:
            result = client.run(PLANNER, agents(), {"ticket": ticket.text})
        except PlannerdError as error:
            failures += 1
            screen.line(f"    FAILED: {error}", good=False)
            continue
        explanation = result.steps[0].explanation
        found = sorted(explanation.agents, key=lambda agent: -agent.score)
        team = next(agent.agent_id for agent in found if agent.called).partition("$")[0]
        screen.detail("    " + ", ".join(f"{agent.agent_id.partition('$')[0]} {agent.score:.2f}" for agent in found))
        agrees = team == ticket.team
        screen.detail(f"    to {team}" + ("" if agrees else f": should be {ticket.team}"), good=agrees)
        if agrees:
            right.append(ticket)
        else:
            wrong.append((ticket, team))
    _summary(screen, chosen, right, wrong)
    return failures > 0


def _summary(screen: Screen, chosen: list[Ticket], right: list[Ticket], wrong: list[tuple[Ticket, str]]) -> None:
    labels = Counter(ticket.team for ticket in chosen)
    total, agreed = len(chosen), len(right)
    if not total:
        return
    most = labels.most_common(1)[0]
    screen.heading("Summary")
    screen.line(f"To the team that a good clerk would choose: {agreed} of {total} tickets ({agreed / total:.0%}).")
    for half, name in ((0, "tuned on"), (1, "never looked at while tuning")):
        part = [ticket for ticket in chosen if ticket.half == half]
        screen.line(f"  {name}: {sum(ticket.half == half for ticket in right)} of {len(part)}")
    screen.line(f"Sending everything to '{most[0]}' would be right for {most[1]}; chance is {total / len(TEAMS):.0f}.")
    screen.line()
    rows: list[tuple[str, ...]] = [("team", "tickets", "right", "sent here in error")]
    rows += [
        (
            team,
            str(labels[team]),
            str(sum(ticket.team == team for ticket in right)),
            str(sum(sent == team for _, sent in wrong)),
        )
        for team in TEAMS
    ]
    screen.table(rows)
    screen.line()
    for ticket, team in wrong:
        screen.line(clip(f"  {ticket.id}: to {team}, should be {ticket.team}", WIDTH))
