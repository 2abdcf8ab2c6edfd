"""The agents of the demo: plain functions over the tables of `shop.py`.

Each parameter is a key of the scope; one with a default is optional. What an agent returns goes into the
scope under its output key (`OUTPUT_KEYS`), and None means that there is nothing to write. No agent calls
another one: which of them runs next is the planner's decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from demo.shop import (
    ADVERTISING,
    DANGER,
    JAPANESE_NOTE,
    LANGUAGES,
    MANIPULATION,
    ORDERS,
    THANKS,
    TOPICS,
    UNCLEAR,
    Topic,
)

_MOST_TOPICS: Final = 3


def classify(ticket: str) -> str | None:
    """Names what the ticket is about."""
    for lead in (MANIPULATION, DANGER, ADVERTISING):
        if _hits(lead, ticket):
            return lead.name
    hits = {topic.name: _hits(topic, ticket) for topic in TOPICS}
    best = max(hits.values())
    if best:
        found = [name for name, count in hits.items() if 2 * count >= best]
        return "; ".join(sorted(found, key=lambda name: -hits[name])[:_MOST_TOPICS])
    for rest in (THANKS, UNCLEAR):
        if _hits(rest, ticket):
            return rest.name
    return None


def extract_order(ticket: str) -> str | None:
    """Finds the order number in the ticket."""
    found = re.search(r"(?<!\d)\d{5}(?!\d)", ticket)
    return found.group() if found else None


def look_up_order(order_number: str) -> str:
    """Looks up the order's status, parcel, goods and payment."""
    order = ORDERS.get(order_number)
    if order is None:
        return f"There is no order {order_number}."
    return f"Order {order_number}: {order.items}, {order.total} paid on {order.paid}. {order.state}"


def search_policy(category: str) -> str | None:
    """Finds the shop's rule or help article."""
    found = [topic.policy for topic in TOPICS if topic.policy and topic.name in category]
    return "\n".join(found) or None


def draft(ticket: str, category: str, order: str | None = None, policy: str | None = None) -> str:
    """Writes the reply to the customer."""
    lines = ["Dear customer,"]
    if note := _language_note(ticket):
        lines.append(note)
    lines.append(_opening(category))
    lines += [text for text in (order, policy) if text]
    if order is None and any(topic.about_an_order and topic.name in category for topic in TOPICS):
        lines.append("If this is about an order that you have placed, please send us its number.")
    lines.append("Kind regards, Lumen & Loft")
    return "\n".join(lines)


def review(ticket: str, draft: str) -> str:
    """Checks the draft and releases it."""
    # A customer's own words are never sent back: card numbers and insults stay where they are.
    quoted = [line for line in ticket.splitlines() if len(line) > 20 and line in draft]
    for line in quoted:
        draft = draft.replace(line, "")
    return re.sub(r"\n{2,}", "\n", draft).strip()


def escalate(category: str) -> str:
    """Hands the ticket to a person."""
    return f"Dear customer, a colleague has taken over your message ({category}) and will get in touch today."


def close(category: str) -> str:
    """Closes the ticket without an answer."""
    return f"Closed without an answer: {category}."


AGENTS: Final[tuple[Callable[..., str | None], ...]] = (
    classify,
    extract_order,
    look_up_order,
    search_policy,
    draft,
    review,
    escalate,
    close,
)
OUTPUT_KEYS: Final = {
    "classify": "category",
    "extract_order": "order_number",
    "look_up_order": "order",
    "search_policy": "policy",
    "draft": "draft",
    "review": "reply",
    "escalate": "reply",
    "close": "reply",
}


def _hits(topic: Topic, ticket: str) -> int:
    """How many of the topic's words the ticket contains; Latin ones only at the beginning of a word."""
    text = ticket.casefold().replace("’", "'")
    return sum(
        word in text if ord(word[0]) > 0x2FFF else re.search(rf"(?<!\w){re.escape(word)}", text) is not None
        for word in topic.words
    )


def _language_note(ticket: str) -> str | None:
    if any("\u3040" <= char <= "\u30ff" for char in ticket):
        return JAPANESE_NOTE
    words = re.findall(r"\w+", ticket.casefold())
    english = sum(word in {"the", "i", "is", "and", "my", "to", "you", "a", "of", "it"} for word in words)
    best = max(LANGUAGES, key=lambda name: sum(word in LANGUAGES[name].marks for word in words))
    marks = sum(word in LANGUAGES[best].marks for word in words)
    return LANGUAGES[best].note if marks > english and marks > 1 else None


def _opening(category: str) -> str:
    if category == THANKS.name:
        return "Thank you for your kind words. We have passed them on to the people who packed your order."
    if category == UNCLEAR.name:
        return "We are sorry that something went wrong. Please tell us what happened and we will see to it."
    return f"You asked about this: {category}."
