"""The figures of the quality benchmark, on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks.quality.figures import (
    Judged,
    Share,
    at_threshold,
    auc,
    best_threshold,
    careful_threshold,
    rank_correlation,
    ranks,
    scale,
    yes_no,
)


def judged(*pairs: tuple[float, bool]) -> list[Judged]:
    """Answers: probability and label."""
    return [Judged(probability, label) for probability, label in pairs]


MIXED = judged((0.9, True), (0.2, False), (0.6, False), (0.4, True), (0.8, True), (0.1, False))


def test_equal_values_share_a_rank() -> None:
    """Ranks begin at 1, and equal values have the mean of theirs."""
    assert ranks([10, 30, 20, 20]) == [1, 4, 2.5, 2.5]


def test_rank_correlation() -> None:
    """1 for the same order, -1 for the reverse, 0 where one says nothing, and what textbooks have between."""
    assert rank_correlation([1, 2, 3], [10, 200, 3000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([2, 2, 2], [3, 2, 1]) == 0
    assert rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_area_under_the_curve() -> None:
    """Of the 9 pairs of a yes and a no 8 are in the right order; ties count half."""
    assert auc(MIXED) == pytest.approx(8 / 9)
    assert auc(judged((0.5, True), (0.5, False))) == 0.5


def test_what_a_threshold_does() -> None:
    """A probability that equals the threshold is a yes."""
    found = at_threshold(MIXED, 0.6)
    assert (found.right, found.wrong_yes, found.missed_yes) == (Share(4, 6), Share(1, 3), Share(1, 3))


def test_the_best_threshold_has_most_right_answers() -> None:
    """Of 0.3 and 0.7, both with 5 of 6, the one nearer to 0.5 wins; a perfect one lies between no's and yes's."""
    assert at_threshold(MIXED, best_threshold(MIXED)).right == Share(5, 6)
    assert best_threshold(judged((0.2, False), (0.4, True))) == pytest.approx(0.3)
    assert 0 < best_threshold(judged((0.0, False), (1.0, True))) < 1


def test_the_careful_threshold_lets_hardly_a_no_pass() -> None:
    """It is the lowest with at most 5 % wrong yes, and none where that stops every yes as well."""
    found = careful_threshold(MIXED)
    assert found is not None
    assert found.value == pytest.approx(0.7)
    assert found.missed_yes == Share(1, 3)
    assert careful_threshold(judged((0.5, True), (0.6, False), (0.9, False))) is None


def test_an_interval_of_a_share() -> None:
    """Wilson's interval of 8 of 10 is that of the textbook, and stays within 0 and 1 at the edges."""
    assert Share(8, 10).interval == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert Share(10, 10).interval == pytest.approx((0.7225, 1), abs=1e-4)
    assert math.isnan(Share(0, 0).value)


def test_figures_of_yes_no_answers() -> None:
    """Thresholds tuned on one half are judged on the other, and Brier scores are mean squares."""
    found = yes_no(judged((0.9, True), (0.2, False), (0.8, True), (0.5, False)))
    assert found is not None
    assert (found.tuned, found.held_out) == (Share(4, 4), Share(4, 4))
    assert found.at_half == Share(3, 4)
    assert found.brier == pytest.approx((0.01 + 0.04 + 0.04 + 0.25) / 4)
    assert (found.base, found.brier_of_base, found.always, found.auc) == (0.5, 0.25, 0.5, 1)
    assert yes_no(judged((0.9, True), (0.2, False))) is None


def test_what_was_tuned_does_not_hold_elsewhere() -> None:
    """Where the halves disagree, the tuned share is high and the held-out one is not."""
    found = yes_no(judged((0.4, True), (0.8, True), (0.2, False), (0.6, False)))
    assert found is not None
    assert (found.tuned, found.held_out) == (Share(4, 4), Share(2, 4))


def test_figures_of_a_scale() -> None:
    """The error is in levels, next to that of always guessing the middle label."""
    found = scale([0.5, 1.0, 3.0], [0, 1, 3])
    assert found is not None
    assert (found.correlation, found.error) == pytest.approx((1, 0.5 / 3))
    assert found.constant_error == pytest.approx((1 + 0 + 2) / 3)
