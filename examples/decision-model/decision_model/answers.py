"""Answers in one line each. Whatever numbers a model has, the sums come out right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plannerd_protos.planner.v1.decision_pb2 import Answer, ChoiceAnswer, RefusalAnswer, ScaleAnswer, YesNoAnswer


def yes_no(probability: float) -> Answer:
    """How probable "yes" is, from 0 to 1."""
    return Answer(yes_no=YesNoAnswer(probability=probability))


def choice(weights: Mapping[str, float]) -> Answer:
    """The option with the highest weight; weights (not negative) become probabilities."""
    probabilities = dict(zip(weights, _shares(list(weights.values())), strict=True))
    chosen = max(probabilities, key=lambda name: probabilities[name])
    return Answer(choice=ChoiceAnswer(value=chosen, probabilities=probabilities))


def scale(weights: Sequence[float]) -> Answer:
    """The mean level; weights (not negative), lowest level first, become probabilities."""
    probabilities = _shares(weights)
    mean = sum(level * probability for level, probability in enumerate(probabilities))
    return Answer(scale=ScaleAnswer(mean=min(mean, len(weights) - 1), probabilities=probabilities))


def refuse(why: str) -> Answer:
    """The model does not answer this question. Other questions of the same request are not touched by it."""
    return Answer(refusal=RefusalAnswer(message=why))


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [weight / total if total else 1 / len(weights) for weight in weights]
