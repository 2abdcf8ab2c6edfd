"""Answers of a decision model, after validation (docs/decision-models.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

MAX_MODEL_CHARS: Final = 256
"""How much of a model's own name is kept."""


@dataclass(frozen=True, slots=True)
class YesNoAnswer:
    """`probability` of "yes", in [0, 1]."""

    probability: float
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The chosen option's name; `probabilities` per option and `confidence` where the model gives them."""

    value: str
    probabilities: Mapping[str, float] | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class ScaleAnswer:
    """The mean level, in [0, levels - 1]; `probabilities` per level and `confidence` where given."""

    mean: float
    probabilities: tuple[float, ...] | None = None
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declined to answer this question; `message` is its own word for why."""

    message: str = ""


Answer: TypeAlias = YesNoAnswer | ChoiceAnswer | ScaleAnswer | Refusal


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost, as far as the model says; None where it does not."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """An input that was cut to fit: sizes in characters, before and after."""

    original_chars: int
    used_chars: int


@dataclass(frozen=True, slots=True)
class DecisionResponse:
    """What a model answered.

    Attributes:
        answers: by question name; validated against the questions by `decisions.validation`.
        model: the model as it names itself, for instance `sparrow-nano-general-v1.1`.
        usage: tokens, where known.
        retries: how often the request was sent again.
        truncation: set when the input was cut.
    """

    answers: Mapping[str, Answer]
    model: str
    usage: Usage = field(default=Usage())
    retries: int = 0
    truncation: Truncation | None = None
