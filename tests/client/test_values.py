"""Values on the wire, presence, and digests."""

from __future__ import annotations

import collections
import dataclasses
import enum
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from pydantic import BaseModel, ConfigDict, PrivateAttr

from plannerd_client import Image, Text, UnsupportedValue
from plannerd_client._values import MAX_NESTING, decode, digest, encode, is_present, plain
from plannerd_client.errors import PlannerdError, ProtocolError
from plannerd_protos.planner.v1 import value_pb2
from tests.client.strategies import plain_values


@given(plain_values())
def test_values_survive_the_wire(value: Any) -> None:
    """Every value comes back equal and of the same types: integers stay integers, bytes stay bytes."""
    message = value_pb2.Value.FromString(encode(plain(value, "x")).SerializeToString())
    assert repr(decode(message, "x")) == repr(value) or decode(message, "x") == value
    assert normal(decode(message, "x")) == normal(value)


def normal(value: Any) -> Any:
    """With the types spelt out, and maps in one order."""
    if isinstance(value, dict):
        return sorted((key, normal(item)) for key, item in value.items())
    if isinstance(value, list):
        return [normal(item) for item in value]
    return f"{type(value).__name__} {value!r}"


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Level(enum.IntEnum):
    """An enum of numbers."""

    HIGH = 3


@dataclasses.dataclass
class Line:
    """A dataclass with private and hidden fields."""

    text: str
    _price: float
    hidden: Colour = dataclasses.field(default=Colour.RED, repr=False)


class Model(BaseModel):
    """A pydantic model with an extra and a private field."""

    model_config = ConfigDict(extra="allow")
    lines: list[Line]
    _secret: str = PrivateAttr("s")


class Point(NamedTuple):
    """A tuple."""

    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (collections.OrderedDict(a=1), {"a": 1}),
        (Line("a", 1.5), {"text": "a", "_price": 1.5, "hidden": "red"}),
        (
            Model(lines=[Line("a", 1)], more=True),  # type: ignore[call-arg]
            {"lines": [{"text": "a", "_price": 1, "hidden": "red"}], "more": True, "_secret": "s"},
        ),
    ],
)
def test_typed_values_become_maps_lists_and_scalars(value: Any, expected: Any) -> None:
    """Dataclasses and models become maps of all their fields, private ones included; enums become their value."""
    assert plain(value, "x") == expected


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "x"),
        (2**63, "x"),
        (-(2**63) - 1, "x"),
        (float("nan"), "x"),
        (float("inf"), "x"),
        ("\ud800", "x"),
        ({"a": [1, {2}]}, "x.a[1]"),
        ({1: 2}, "x"),
        ({"\ud800": 1}, "x"),
        (Line("a", float("inf")), "x._price"),
        (Line, "x"),
        (print, "x"),
        (nested(MAX_NESTING + 1), "x" + "[0]" * MAX_NESTING),
    ],
)
def test_what_can_t_travel_is_refused_with_its_path(value: Any, path: str) -> None:
    """Nothing is converted silently; the error is a TypeError and names the place."""
    with pytest.raises(UnsupportedValue) as caught:
        plain(value, "x")
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, PlannerdError)
    assert caught.value.path.startswith(path)


def test_nesting_goes_to_24_both_ways() -> None:
    """24 levels travel in either direction, 25 in none."""
    deepest = nested(MAX_NESTING)
    assert decode(encode(plain(deepest, "x")), "x") == deepest
    message = encode(plain(deepest, "x"))
    deeper = value_pb2.Value()
    deeper.list_value.values.add().CopyFrom(message)
    with pytest.raises(ProtocolError):
        decode(deeper, "x")


def test_values_that_are_not_set_are_refused() -> None:
    """A value of no kind, and one that only a scope may have, are errors of the protocol."""
    for message in (value_pb2.Value(), value_pb2.Value(pending=value_pb2.Pending())):
        with pytest.raises(ProtocolError):
            decode(message, "x")


@pytest.mark.parametrize(
    ("value", "present"),
    [
        (None, False),
        ("", False),
        (" \t\n\u3000\x85\u2028", False),
        (Text(" "), False),
        ("\x1c", True),
        ("\u200b", True),
        (" a ", True),
        (0, True),
        (False, True),
        ([], True),
        ({}, True),
        (b"", True),
    ],
)
def test_presence_is_that_of_the_contract(value: Any, present: bool) -> None:
    """None and text of nothing but White_Space is absent, all else is present."""
    assert is_present(value) is present


def test_digests_are_of_the_meaning() -> None:
    """Equal values have equal digests whatever their order or number type; others differ, and so do keys."""
    key = b"k"
    same: list[Any] = [{"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}]
    assert digest(same[0], key) == digest(same[1], key)
    scalars: list[Any] = [None, True, False, 0, 1, "1", b"1", Text("1"), ""]
    values = [*scalars, [1], {"1": 1}, [[1]], ["1"], [], {}, ["", []]]
    digests = {digest(value, key) for value in values}
    assert len(digests) == len(values)
    assert all(len(one) <= 32 for one in digests)
    assert digest("x", b"1") != digest("x", b"2")


@given(plain_values())
def test_digests_survive_the_wire(value: Any) -> None:
    """A value and what the wire makes of it have the same digest."""
    through = decode(value_pb2.Value.FromString(encode(value).SerializeToString()), "x")
    assert digest(through, b"k") == digest(value, b"k")


def test_images_are_checked_when_made() -> None:
    """An image needs an image type and some bytes."""
    for media_type, data in (("text/plain", b"x"), ("image/png", b"")):
        with pytest.raises(ValueError, match="must"):
            Image(media_type, data)


def test_pydantic_is_not_imported() -> None:
    """Importing the client and converting values does not import pydantic."""
    code = (
        "import sys; from plannerd_client._values import plain; plain({'a': [1]}, 'x');"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
