"""The tickets of the demo, with what a good clerk would do about each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

PATH: Final = Path(__file__).with_name("tickets.yaml")


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket and its labels.

    Attributes:
        id: its name.
        language: of its text, as an ISO 639-1 code.
        text: what the customer wrote.
        needs: the agents that a good clerk would run.
        ends: how it should end: answered, escalated or closed.
        team: the team that should handle it.
        why: the reason for the labels.
        half: 0 for the half that texts and thresholds were tuned on, 1 for the other one.
    """

    id: str
    language: str
    text: str
    needs: tuple[str, ...]
    ends: str
    team: str
    why: str
    half: int


@cache
def tickets() -> tuple[Ticket, ...]:
    """All tickets, in the order of the file."""
    return tuple(
        Ticket(
            id=item["id"],
            language=item["language"],
            text=item["ticket"],
            needs=tuple(item["needs"]),
            ends=item["ends"],
            team=item["team"],
            why=item["why"],
            half=position % 2,
        )
        for position, item in enumerate(yaml.safe_load(PATH.read_text("utf-8")))
    )
