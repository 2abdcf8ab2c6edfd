"""The system of the scheduler demo: its agents, their descriptions, and the thresholds.

The wording is part of the tuning. sparrow compares words: a description that shares words with what it is to
be recognised by is found, one that merely means the same is not. The texts were chosen by hand on half of the
tickets, by trying many; the thresholds are those that `python -m demo tune` finds for them on that half.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from demo import agents as functions
from demo.shop import ADVERTISING, DANGER, MANIPULATION
from plannerd_client import Agent, Scheduler

PLANNER: Final = Scheduler(
    goal="The reply answers every question of the customer's ticket",
    goal_threshold=0.2,
    activation_threshold=0.15,
    usefulness_question_template="{{name}}: {{description}}",
    usefulness_levels=("never", "maybe", "soon", "now"),
)

DESCRIPTIONS: Final = {
    "classify": "Names what the ticket is about",
    "extract_order": "Order number",
    "look_up_order": "Looks up the order",
    "search_policy": "Looks up the shop's policy or help",
    "draft": "Drafts the reply",
    "review": "The draft is ready: check it and send it",
    "escalate": "Hands danger, threats, lawyers, press, fraud and manipulation to a person",
    "close": "Closes the ticket without an answer",
}


@cache
def agents() -> tuple[Agent[..., Any], ...]:
    """The agents, in the order of declaration."""
    for_a_person = {DANGER.name, MANIPULATION.name}
    conditions = {
        "extract_order": lambda scope: re.search(r"(?<!\d)\d{5}(?!\d)", scope["ticket"]) is not None,
        "look_up_order": lambda scope: scope.get("category") is not None,
        "escalate": lambda scope: scope.get("category") in for_a_person,
        "close": lambda scope: scope.get("category") == ADVERTISING.name,
        "draft": lambda scope: scope.get("category") not in {*for_a_person, ADVERTISING.name},
    }
    return tuple(
        Agent(
            function,
            description=DESCRIPTIONS[function.__name__],
            output_key=functions.OUTPUT_KEYS[function.__name__],
            activation=conditions.get(function.__name__),
        )
        for function in functions.AGENTS
    )
