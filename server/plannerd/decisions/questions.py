"""Questions to a decision model, and the request that carries them (docs/decision-models.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class YesNo:
    """Is `text` true of the input? `yes_when` and `no_when` say what counts as either answer."""

    name: str
    text: str
    yes_when: str | None = None
    no_when: str | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that a choice question offers."""

    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which one of `options` (at least 2, in order) answers `text`?"""

    name: str
    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where on `levels` (at least 2, lowest first) does the input stand, as to `text`?"""

    name: str
    text: str
    levels: tuple[str, ...]


Question: TypeAlias = YesNo | Choice | Scale


@dataclass(frozen=True, slots=True)
class Field:
    """One named part of the input.

    Attributes:
        name: the scope key, or a name that the planner adds.
        value: null, boolean, integer, finite double, text, list, map or content; nothing else.
        rank: how much it matters when the input must be cut to fit a model; higher is kept longer.
    """

    name: str
    value: Value
    rank: int = 0


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """What a decision model is asked: `questions` (at least one, names unique, order kept) about `input`."""

    input: tuple[Field, ...]
    questions: tuple[Question, ...] = field(default=())
