"""Values for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plannerd_client import Image, Text


def plain_values() -> st.SearchStrategy[Any]:
    """Values that travel, nested a little."""
    text = st.text(st.characters(exclude_categories=["Cs"]))
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | text
        | st.binary()
        | st.builds(Text, text)
        | st.builds(Image, st.just("image/png"), st.binary(min_size=1))
    )
    return st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
    )
