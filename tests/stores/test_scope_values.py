"""Values of the scope survive a store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd.invocations.stores.scope_values import dump_values, load_values
from plannerd.values import ScopeValue
from tests.support.values import SCOPE_VALUES


def exact(value: object) -> object:
    """A form that tells 1, 1.0 and True apart, and keeps the order of maps."""
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [exact(item) for item in value]
    return (type(value).__name__, repr(value))


@given(st.lists(SCOPE_VALUES, max_size=3))
def test_values_come_back_as_they_were(values: list[ScopeValue]) -> None:
    """Every value comes back with its type and the order of its maps, whatever is inside."""
    assert exact(load_values(dump_values(*values))) == exact(values)


@pytest.mark.parametrize(
    "value",
    [
        {"": "bytes", "base64": "AA=="},
        {"": {"": ["", {"": None}]}},
        [{"a": b"\x00"}, {"": 1}],
        'a":',
        {'"': 1},
        -0.0,
        2.0,
        2**63 - 1,
    ],
    ids=repr,
)
def test_values_that_look_like_the_form_itself(value: ScopeValue) -> None:
    """A client's map that looks like the tagged form of another type stays a map."""
    assert exact(load_values(dump_values(value))) == exact([value])


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b"\xff", b'[{"": "what"}]', b'[{"": "bytes"}]'])
def test_what_was_never_written_is_refused(data: bytes) -> None:
    """Damaged data is a ValueError, never another value."""
    with pytest.raises(ValueError):  # noqa: PT011 - the text is json's
        load_values(data)
