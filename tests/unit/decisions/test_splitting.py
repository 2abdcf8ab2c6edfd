"""One decision in several requests: what the parts are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd.decisions.questions import DecisionRequest, Field, YesNo
from plannerd.decisions.splitting import split


def request(count: int) -> DecisionRequest:
    return DecisionRequest((Field("a", 1), Field("b", [2])), tuple(YesNo(f"q{i}", "Is it?") for i in range(count)))


@given(st.integers(1, 300), st.integers(1, 300))
def test_parts(count: int, most: int) -> None:
    """The parts are the whole in order, none is too large, none fewer would do, and sizes differ by one at most."""
    whole = request(count)
    parts = split(whole, most)
    sizes = [len(part.questions) for part in parts]
    assert [question for part in parts for question in part.questions] == list(whole.questions)
    assert max(sizes) <= most
    assert (len(parts) - 1) * most < count
    assert max(sizes) - min(sizes) <= 1
    assert all(part.input is whole.input for part in parts)


@pytest.mark.parametrize("most", [None, 3, 4])
def test_nothing_to_split(most: int | None) -> None:
    """What fits into one request stays the request that it is."""
    whole = request(3)
    (part,) = split(whole, most)
    assert part is whole
