"""From answers and labels to figures. Small formulas, each tested on numbers worked out by hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_Z: Final = 1.959964  # of the normal distribution: 95 % lie within so many deviations


@dataclass(frozen=True, slots=True)
class Judged:
    """A yes/no answer: the probability of yes, and the label."""

    probability: float
    label: bool


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `total`."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        """As a number from 0 to 1; NaN of nothing."""
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies with a probability of 95 % (Wilson)."""
        if not self.total:
            return math.nan, math.nan
        spread = _Z**2 / self.total
        middle = (self.value + spread / 2) / (1 + spread)
        half = _Z * math.sqrt(self.value * (1 - self.value) / self.total + spread / self.total / 4) / (1 + spread)
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold and what it does: wrong yes among the no's, missed yes among the yes's."""

    value: float
    right: Share
    wrong_yes: Share
    missed_yes: Share


@dataclass(frozen=True, slots=True)
class YesNoFigures:
    """How good the answers to one kind of yes/no question are.

    Attributes:
        base: the share of yes among the labels.
        auc: how often a yes gets a higher probability than a no; 0.5 is chance, 1 perfect.
        auc_interval: its 95 % interval.
        brier: the mean squared distance of probability and truth; the lower the better.
        at_half: at the threshold 0.5.
        tuned: right answers where thresholds were tuned, each half by its own best one.
        held_out: right answers by thresholds that were tuned on the other half.
        best: the threshold with the most right answers over all examples, which is what to start from.
        careful: the lowest threshold with at most 5 % wrong yes; None: there is none.
    """

    count: int
    base: float
    auc: float
    auc_interval: tuple[float, float]
    brier: float
    at_half: Share
    tuned: Share
    held_out: Share
    best: Threshold
    careful: Threshold | None

    @property
    def brier_of_base(self) -> float:
        """The Brier score of always answering the base rate."""
        return self.base * (1 - self.base)

    @property
    def always(self) -> float:
        """The share of right answers of always giving the more frequent one."""
        return max(self.base, 1 - self.base)


@dataclass(frozen=True, slots=True)
class ScaleFigures:
    """How good places on a scale are.

    Attributes:
        correlation: of ranks (Spearman); 0 is chance, 1 perfect.
        error: the mean distance between answer and label, in levels.
        constant_error: the same for always guessing the middle label.
    """

    count: int
    correlation: float
    error: float
    constant_error: float


def yes_no(judged: Sequence[Judged]) -> YesNoFigures | None:
    """The figures of yes/no answers; None unless each label occurs at least twice."""
    labelled = [[one for one in judged if one.label is label] for label in (True, False)]
    if min(map(len, labelled)) < 2:
        return None
    halves = [[one for part in labelled for one in part[half::2]] for half in (0, 1)]  # by turns, labels in balance
    thresholds = [best_threshold(half) for half in halves]
    area = auc(judged)
    return YesNoFigures(
        count=len(judged),
        base=statistics.fmean(one.label for one in judged),
        auc=area,
        auc_interval=_auc_interval(area, sum(one.label for one in judged), sum(not one.label for one in judged)),
        brier=statistics.fmean((one.probability - one.label) ** 2 for one in judged),
        at_half=at_threshold(judged, 0.5).right,
        tuned=_together(at_threshold(half, value).right for half, value in zip(halves, thresholds, strict=True)),
        held_out=_together(
            at_threshold(half, value).right for half, value in zip(halves, thresholds[::-1], strict=True)
        ),
        best=at_threshold(judged, best_threshold(judged)),
        careful=careful_threshold(judged),
    )


def scale(answers: Sequence[float], labels: Sequence[int]) -> ScaleFigures | None:
    """The figures of places on a scale; None for fewer than two."""
    if len(answers) < 2:
        return None
    middle = statistics.median(labels)
    return ScaleFigures(
        count=len(answers),
        correlation=rank_correlation(answers, labels),
        error=statistics.fmean(abs(a - b) for a, b in zip(answers, labels, strict=True)),
        constant_error=statistics.fmean(abs(middle - label) for label in labels),
    )


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, the lowest 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            result[i] = (start + 1 + end) / 2
        start = end
    return result


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; 0 where one of the two is constant, and so says nothing about the other."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return 0.0
    return statistics.correlation(ranks(a), ranks(b))


def auc(judged: Sequence[Judged]) -> float:
    """The area under the ROC curve: how often a yes is above a no, ties counting half."""
    placed = ranks([one.probability for one in judged])
    yes = sum(one.label for one in judged)
    of_yes = sum(rank for rank, one in zip(placed, judged, strict=True) if one.label)
    return (of_yes - yes * (yes + 1) / 2) / (yes * (len(judged) - yes))


def at_threshold(judged: Sequence[Judged], value: float) -> Threshold:
    """What a threshold does: yes from it on."""
    wrong = sum(one.probability >= value and not one.label for one in judged)
    missed = sum(one.probability < value and one.label for one in judged)
    yes = sum(one.label for one in judged)
    total = len(judged)
    return Threshold(value, Share(total - wrong - missed, total), Share(wrong, total - yes), Share(missed, yes))


def best_threshold(judged: Sequence[Judged]) -> float:
    """The threshold with the most right answers; among equals the one nearest to 0.5."""
    return max(_candidates(judged), key=lambda value: (at_threshold(judged, value).right.hits, -abs(value - 0.5)))


def careful_threshold(judged: Sequence[Judged], wrong: float = 0.05) -> Threshold | None:
    """The lowest threshold at which at most that share of the no's becomes a yes, if it lets any yes through."""
    found = (at_threshold(judged, value) for value in _candidates(judged))
    chosen = next((threshold for threshold in found if threshold.wrong_yes.value <= wrong), None)
    return None if chosen is None or chosen.missed_yes.value == 1 else chosen


def _candidates(judged: Sequence[Judged]) -> list[float]:
    """A threshold in each gap between probabilities, rising; all are strictly between 0 and 1."""
    values = sorted({one.probability for one in judged})
    edges = [0.0, *values, 1.0]
    return [(low + high) / 2 for low, high in pairwise(edges) if 0 < (low + high) / 2 < 1]


def _together(shares: Iterable[Share]) -> Share:
    listed = list(shares)
    return Share(sum(one.hits for one in listed), sum(one.total for one in listed))


def _auc_interval(area: float, yes: int, no: int) -> tuple[float, float]:
    """95 % by the formula of Hanley and McNeil."""
    above, below = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (yes - 1) * (above - area**2) + (no - 1) * (below - area**2)) / (yes * no)
    half = _Z * math.sqrt(max(0.0, variance))
    return max(0.0, area - half), min(1.0, area + half)
