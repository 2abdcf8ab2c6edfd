"""Inputs as plain text, and how they are cut."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plannerd.decisions import text as module
from plannerd.decisions.questions import Field
from plannerd.decisions.text import InputText
from plannerd.values import Image, Text, Value

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.builds(Text, st.text())
    | st.just(Image("image/png", b"\x89PNG"))
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=12)
FIELDS = st.lists(
    st.builds(Field, NAMES, VALUES, st.integers(0, 3)), min_size=1, max_size=8, unique_by=lambda field: field.name
)


def frame(fields: list[Field]) -> int:
    """The length of names, colons and line ends."""
    return sum(len(field.name) + 2 for field in fields) - 1


def whole(fields: list[Field]) -> str:
    return InputText(fields).cut(10**9).text


def test_layout() -> None:
    """Values are lines of `key: value`, nested ones indented, keys inside maps sorted."""
    fields = [
        Field("request", "I was charged twice"),
        Field("order", {"lines": [{"sku": "A-7", "n": 2}, []], "id": 1182}),
        Field("tags", ["billing", True]),
        Field("note", Text("see photo")),
        Field("photo", Image("image/png", b"\x89")),
        Field("answer", None),
    ]
    assert whole(fields) == (
        "request: I was charged twice\n"
        "order:\n"
        "  id: 1182\n"
        "  lines:\n"
        "    -\n"
        "      n: 2\n"
        "      sku: A-7\n"
        "    - []\n"
        "tags:\n"
        "  - billing\n"
        "  - true\n"
        "note: see photo\n"
        "photo: [image/png]\n"
        "answer: null"
    )


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2"), (-0.0, "0"), (2.5, "2.5"), (1e300, "1e+300"), (2**63 - 1, "9223372036854775807")]
)
def test_numbers(value: float, text: str) -> None:
    """An integral double reads like the integer that it equals; no digits are lost."""
    assert whole([Field("n", value)]) == f"n: {text}"


def test_order_of_maps() -> None:
    """The order of keys in a map changes nothing."""
    one: Value = {"b": {"y": 1, "x": 2}, "a": 3}
    other: Value = {"a": 3, "b": {"x": 2, "y": 1}}
    for budget in (0, 10, 20, 30, 100):
        assert InputText([Field("m", one)]).cut(budget) == InputText([Field("m", other)]).cut(budget)


def test_unknown_type() -> None:
    """A value of a type that has no text is an error, not something made up."""
    with pytest.raises(TypeError, match="bytes"):
        InputText([Field("b", b"\x00")])


@settings(deadline=None)
@given(FIELDS)
def test_uncut_if_it_fits(fields: list[Field]) -> None:
    """The size is that of the uncut text, and a budget of that size cuts nothing."""
    text = InputText(fields)
    fitting = text.cut(text.size)
    assert len(fitting.text) == text.size
    assert fitting.truncation is None
    assert fitting == text.cut(10**9)


@settings(deadline=None)
@given(FIELDS, st.integers(0, 400))
def test_budget(fields: list[Field], budget: int) -> None:
    """A cut text is within its budget, unless the names alone exceed it."""
    cut = InputText(fields).cut(budget)
    assert len(cut.text) <= max(budget, frame(fields))


@settings(deadline=None)
@given(FIELDS, st.integers(0, 400))
def test_names_stay(fields: list[Field], budget: int) -> None:
    """Every name is there, in order, however small the budget."""
    text, place = InputText(fields).cut(budget).text, 0
    for field in fields:
        place = text.index(f"{field.name}:", place) + len(field.name) + 1


@settings(deadline=None)
@given(FIELDS, st.integers(0, 400))
def test_truncation(fields: list[Field], budget: int) -> None:
    """What was cut is reported with the true sizes before and after."""
    text = InputText(fields)
    cut = text.cut(budget)
    if cut.truncation is None:
        assert cut.text == whole(fields)
    else:
        assert cut.truncation.original_chars == len(whole(fields)) > budget
        assert cut.truncation.used_chars == len(cut.text)


WORDS = st.lists(st.text("q", min_size=1, max_size=30), min_size=1, max_size=20).map(" ".join)


@settings(deadline=None)
@given(st.lists(st.tuples(WORDS, st.integers(0, 3)), min_size=1, max_size=6), st.data(), st.integers(0, 600))
def test_higher_rank_never_keeps_less(values: list[tuple[str, int]], data: st.DataObject, budget: int) -> None:
    """A value that gets a higher rank keeps at least what it kept before."""
    chosen = data.draw(st.integers(0, len(values) - 1))
    higher = data.draw(st.integers(values[chosen][1], 4))

    def kept(rank: int) -> int:
        fields = [Field(f"k{i}", value, rank if i == chosen else own) for i, (value, own) in enumerate(values)]
        return InputText(fields).cut(budget).text.split("\n")[chosen].count("q")

    assert kept(higher) >= kept(values[chosen][1])


SIZES = st.lists(st.tuples(st.integers(1, 10), st.integers(0, 2)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=1000)
@given(SIZES, st.data(), st.integers(0, 20))
def test_room(values: list[tuple[int, int]], data: st.DataObject, room: int) -> None:
    """No more room is granted than there is, nor than a value needs, and never less for a higher rank."""
    sizes, ranks = [size for size, _ in values], [rank for _, rank in values]
    granted = module._spread(sizes, ranks, room)
    assert sum(granted) <= room
    assert all(0 <= grant <= size for grant, size in zip(granted, sizes, strict=True))
    chosen = data.draw(st.integers(0, len(values) - 1))
    ranks[chosen] += data.draw(st.integers(1, 3))
    assert module._spread(sizes, ranks, room)[chosen] >= granted[chosen]


def test_spread_by_rank() -> None:
    """The highest rank is complete before the next gets more than its even share of half of the room."""
    fields = [Field("k0", "x" * 1000), Field("k1", "y" * 500, 2), Field("k2", "z" * 1000, 1)]
    text = InputText(fields).cut(frame(fields) + 1200).text
    mark = len(" ...")
    assert text.count("x") == 200 - mark
    assert text.count("y") == 500
    assert text.count("z") == 1200 - 200 - 501 - mark


def test_spread_within_a_rank() -> None:
    """Values of one rank share evenly, and what a short one does not need goes to the others."""
    fields = [Field("k0", "x" * 5000), Field("k1", "y" * 10), Field("k2", "z" * 5000)]
    text = InputText(fields).cut(1000).text
    assert text.count("y") == 10
    assert text.count("x") == text.count("z")
    assert len(text) >= 998


def test_whole_words() -> None:
    """A cut moves back to the end of a word when one is near, and says that something is missing."""
    words = "alpha beta gamma delta epsilon zeta"
    assert InputText([Field("k", words)]).cut(22).text == "k: alpha beta gamma..."
    assert InputText([Field("k", "x" * 100)]).cut(12).text == "k: xxxxxx..."


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    calls = 0
    original = getattr(module, name)

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*args)

    monkeypatch.setattr(module, name, counted)
    return lambda: calls


def test_only_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting a large value makes no more of its text than is kept."""
    values: list[Any] = [list(range(100_000)), {f"k{i}": math.pi for i in range(100_000)}, [[["x"]] * 100] * 1000]
    for value in values:
        text = InputText([Field("big", value)])
        calls = count_calls(monkeypatch, "_scalar")
        assert len(text.cut(300).text) <= 300
        assert 0 < calls() <= 300


@given(FIELDS, st.integers(0, 400))
def test_cut_values_are_those_of_the_text(fields: list[Field], budget: int) -> None:
    """A value is cut alone exactly where it is cut in the text, and is not longer there."""
    text = InputText(fields)
    cuts = text.cut_values(budget)
    assert all(cut is None for cut in cuts) == (text.size <= budget)
    assert sum(len(cut) for cut in cuts if cut is not None) <= max(budget, 0)


def test_a_cut_value_stands_alone() -> None:
    """The text of a cut value has no indentation of its own."""
    fields = [
        Field("order", {"id": 7, "lines": [{"sku": "A-7"}, {"sku": "B-9"}]}),
        Field("request", "one two three four"),
    ]
    assert InputText(fields).cut_values(60) == ["id: 7\nlines:\n  -...", None]
