"""Strategies for values of the scope."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text, Value

TEXTS: st.SearchStrategy[str] = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS: st.SearchStrategy[int] = st.integers(-(2**63), 2**63 - 1)
DOUBLES: st.SearchStrategy[float] = st.floats(allow_nan=False, allow_infinity=False)


def _images() -> st.SearchStrategy[Image]:
    return st.builds(Image, st.sampled_from(["image/png", "image/jpeg"]), st.binary(min_size=1, max_size=4))


SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    DOUBLES,
    TEXTS,
    st.binary(max_size=4),
    st.builds(Text, TEXTS),
    _images(),
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=10,
)
SCOPE_VALUES: st.SearchStrategy[ScopeValue] = st.one_of(
    VALUES, st.just(PENDING), st.builds(Opaque, st.binary(max_size=32))
)


def same(one: ScopeValue, other: ScopeValue) -> bool:
    """Whether two values mean the same: numbers by value, booleans apart from numbers, maps without order."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def written_otherwise(value: ScopeValue) -> ScopeValue:
    """The same value as another client would write it: maps in another order, whole doubles for integers and back."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value) if abs(value) <= 2**53 else value
    if isinstance(value, float):
        return int(value) if value.is_integer() and math.fabs(value) < 2**63 else value
    if isinstance(value, list):
        return [_plain(written_otherwise(item)) for item in value]
    if isinstance(value, dict):
        return {key: _plain(written_otherwise(item)) for key, item in reversed(value.items())}
    return value


def _plain(value: ScopeValue) -> Value:
    assert value is not PENDING
    assert not isinstance(value, Opaque)
    return value
