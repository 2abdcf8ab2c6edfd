"""Values: what is in the scope, and the digest of what values mean."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text, Value, digest, is_blank, is_present
from tests.support.values import SCOPE_VALUES, VALUES, same, written_otherwise

# PropList.txt of Unicode, property White_Space; 25 code points, stable since Unicode 6.3.
WHITE_SPACE = [
    *range(0x0009, 0x000E), 0x0020, 0x0085, 0x00A0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
    0x3000,
]  # fmt: skip
NEAR_MISSES = [
    *range(0x001C, 0x0020),  # Python's str.isspace() takes these information separators
    0x0000, 0x0008, 0x000E, 0x001B, 0x007F, 0x0086, 0x00AD,
    0x180E,  # Mongolian vowel separator: white space until Unicode 6.2
    0x200B, 0x200C, 0x200D, 0x200E, 0x2060, 0xFEFF,  # zero width, of which JavaScript's trim() takes U+FEFF
    0x2027, 0x202A, 0x2800, 0x3164, 0xFFA0, 0x1D159,
]  # fmt: skip

ANYTHING: list[ScopeValue] = [
    None, True, False, 0, 1, -1, 2, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0.5, -0.5, 1e300, 5e-324,
    "", "0", "1", "true", "null", "n", " ", b"", b"0", b"true", [], [None], [[]], [0], [0, 0], ["0"], {}, {"": None},
    {"a": None}, {"a": 0}, {"b": 0}, {"a": {"b": 0}}, {"a": 0, "b": 0}, ["a", 0], [["a", 0]], Text(""), Text("0"),
    Image("image/png", b"0"), Image("image/gif", b"0"), Image("image/png", b"1"), Opaque(b""), Opaque(b"0"), PENDING,
]  # fmt: skip
"""Values that all differ from each other."""


# ---- presence


@pytest.mark.parametrize("code", WHITE_SPACE, ids=lambda code: f"U+{code:04X}")
def test_text_of_white_space_is_blank(code: int) -> None:
    """A text of one code point with the Unicode property White_Space is blank, alone, repeated and with others."""
    for text in (chr(code), chr(code) * 3, f" {chr(code)}\u3000"):
        assert is_blank(text)
        assert not is_present(text)
        assert not is_present(Text(text))


@pytest.mark.parametrize("code", NEAR_MISSES, ids=lambda code: f"U+{code:04X}")
def test_text_of_something_like_white_space_is_not_blank(code: int) -> None:
    """A code point without the property White_Space makes a text present, however invisible it is."""
    for text in (chr(code), f" {chr(code)} "):
        assert not is_blank(text)
        assert is_present(text)
        assert is_present(Text(text))


def test_no_other_code_point_is_blank() -> None:
    """Of all code points exactly those 25 are blank."""
    assert [code for code in range(0x110000) if is_blank(chr(code))] == WHITE_SPACE


def test_blank_is_what_unicode_says() -> None:
    """The list covers every separator of Unicode's general categories, so that none was forgotten."""
    separators = {code for code in range(0x110000) if unicodedata.category(chr(code)) in ("Zs", "Zl", "Zp")}
    assert separators <= set(WHITE_SPACE)


def test_the_empty_text_is_blank() -> None:
    """A text without any character is blank and not in the scope."""
    assert is_blank("")
    assert not is_present("")
    assert not is_present(Text(""))


@pytest.mark.parametrize(
    "value", [False, 0, 0.0, b"", [], {}, [None], {"": None}, Opaque(b""), PENDING, Image("image/png", b"x")], ids=ascii
)
def test_everything_else_but_null_is_present(value: ScopeValue) -> None:
    """False, zero, empty bytes, lists and maps, opaque and pending values are in the scope; only null is not."""
    assert is_present(value)


def test_null_is_not_present() -> None:
    """A key with a null value is not in the scope."""
    assert not is_present(None)


# ---- digest


@settings(deadline=None)
@given(SCOPE_VALUES)
def test_a_value_written_otherwise_has_the_same_digest(value: ScopeValue) -> None:
    """The order of a map's entries and the way a whole number is written make no difference, at any depth."""
    assert digest(value) == digest(written_otherwise(value))


@settings(deadline=None)
@given(SCOPE_VALUES, SCOPE_VALUES)
def test_digests_are_equal_exactly_where_values_are(one: ScopeValue, other: ScopeValue) -> None:
    """Two values have one digest if and only if they mean the same."""
    assert (digest(one) == digest(other)) == same(one, other)


def test_values_that_look_alike_have_different_digests() -> None:
    """Values of different types or shapes never share a digest, however alike they look."""
    assert len({digest(value) for value in ANYTHING}) == len(ANYTHING)


@pytest.mark.parametrize(
    ("one", "other"),
    [(2, 2.0), (0, -0.0), (-(2**53), -float(2**53)), ([1, {"a": 3}], [1.0, {"a": 3.0}]), (10**18, 1e18)],
)
def test_numbers_count_by_value(one: Value, other: Value) -> None:
    """Equal numbers have equal digests, whichever way they are written."""
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (1.0, True), (2**53 + 1, float(2**53)), (2, 2.0000000000000004), ([True], [1])],
)
def test_what_python_or_doubles_take_for_equal_is_not(one: Value, other: Value) -> None:
    """Booleans are no numbers, and integers of 64 bits are told apart where doubles would not tell them apart."""
    assert digest(one) != digest(other)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3))
def test_several_values_do_not_run_into_each_other(one: list[Value], other: list[Value]) -> None:
    """A digest of several values is of their sequence: no other sequence has it."""
    assert (digest(*one) == digest(*other)) == same(one, other)


@settings(deadline=None)
@given(VALUES)
def test_keys_and_sizes_make_other_digests(value: Value) -> None:
    """The same value has unrelated digests under different keys, and as many bytes as asked for."""
    assert digest(value, key=b"one") != digest(value, key=b"two")
    assert digest(value, key=b"one") == digest(value, key=b"one")
    assert len(digest(value, size=12)) == 12
