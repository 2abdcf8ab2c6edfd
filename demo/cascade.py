"""The cascade demo: a cheap answer first, a better one next, a person last; each answer is graded before it counts."""

from __future__ import annotations

from collections import Counter
from typing import Final

from demo import agents as shop
from demo.data import tickets
from demo.screen import Screen
from plannerd_client import Cascade, Client, PlannerdError, agent

# Tuned on half of the tickets for the embedded model, which grades by the words that it sees.
PLANNER: Final = Cascade(
    acceptance_threshold=0.68,
    acceptance_criterion="the answer mentions the parcel, the order, a refund, a return, days, the carrier or a price",
    grading_question="Does the candidate answer give the status of the order, or the rule?",
)


@agent
def canned(ticket: str) -> str:
    """The cheapest tier: one text for everybody."""
    return "Dear customer, thank you for your message. You find answers to many questions in our help pages."


@agent
def assistant(ticket: str) -> str:
    """The middle tier: looks up the order and the shop's rules, and drafts a reply."""
    category = shop.classify(ticket) or "unclear"
    number = shop.extract_order(ticket)
    return shop.draft(
        ticket,
        category,
        order=shop.look_up_order(number) if number else None,
        policy=shop.search_policy(category),
    )


@agent
def person(ticket: str) -> str:
    """The dearest tier, never graded: somebody reads the ticket."""
    return "Dear customer, a colleague has read your message and will call you today."


TIERS: Final = (canned, assistant, person)


def run(client: Client, screen: Screen, limit: int | None) -> bool:
    """Answer the tickets; True if anything failed."""
    chosen = [ticket for ticket in tickets()[:limit] if ticket.text.strip()]
    names = " -> ".join(tier.name for tier in TIERS)
    screen.line(f"{len(chosen)} tickets, tiers {names}, acceptance threshold {PLANNER.acceptance_threshold:g}.")
    ended: Counter[str] = Counter()
    agreed = [0, 0]
    graded = failures = 0
    for number, ticket in enumerate(chosen, start=1):
        screen.item(f"[{number}/{len(chosen)}] {ticket.id} ({ticket.language})", ticket.text)
        try:
            result = client.run(PLANNER, TIERS, {"ticket": ticket.text})
        except PlannerdError as error:
            failures += 1
            screen.line(f"    FAILED: {error}", good=False)
            continue
        tier = ""
        for step in result.steps:
            for found in step.explanation.agents:
                if found.HasField("score"):
                    graded += 1
                    verdict = "accepted" if found.score >= found.threshold else "not good enough"
                    name = found.agent_id.partition("$")[0]
                    screen.detail(f"    {name:<10} {found.score:.2f} against {found.threshold:g}: {verdict}")
            tier = step.started[0][1].partition("$")[0] if step.started else tier
        ended[tier] += 1
        wanted = assistant.name if ticket.ends == "answered" else person.name
        agreed[ticket.half] += tier == wanted
        screen.detail(
            f"    answered by {tier}" + ("" if tier == wanted else f", should be {wanted}"), good=tier == wanted
        )
    screen.heading("Summary")
    screen.table(
        [("tier", "answered"), *((tier.name, f"{ended[tier.name]} of {sum(ended.values())}") for tier in TIERS)]
    )
    screen.line()
    halves = [sum(ticket.half == half for ticket in chosen) for half in (0, 1)]
    screen.line(f"The tier that a good clerk would take: {sum(agreed)} of {len(chosen)}.")
    screen.line(f"  tuned on: {agreed[0]} of {halves[0]}; never looked at while tuning: {agreed[1]} of {halves[1]}")
    screen.line(
        f"{graded} answers were graded. sparrow is weak at grading: it goes by the words that answer and question "
        "share. Take the flow from this demo and not the verdicts; sending every ticket to the assistant would be "
        "right more often."
    )
    return failures > 0
