"""Snapshots as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd_client import Image, Snapshot, Text, UnsupportedValue
from plannerd_client._definition import PlannerAgent
from plannerd_client._json import value_from_json, value_to_json
from plannerd_client._reports import CallOutput, Report
from plannerd_client._results import Suspension
from plannerd_client._scope import Entry
from plannerd_client.errors import InvalidSnapshot
from tests.client.strategies import plain_values


def snapshot(**values: Any) -> Snapshot:
    entries = {key: Entry(value) for key, value in values.items()} | {"later": Entry(pending="c9")}
    old = Entry("old")
    return Snapshot(
        invocation_id="inv",
        planner_agent=PlannerAgent("Desk", ("request",), "reply", 3),
        state=b"\x00state",
        salt=b"salt",
        entries=entries,
        unknown={"request": old, "gone": old, "later": None},
        outputs={"c1": CallOutput("write$0", "draft", Entry("kept")), "c2": CallOutput("look$1", "", Entry(None))},
        unreported=(Report("c3", "skipped"), Report("c9", "pending", "later", entries["later"])),
        request=b"request",
        request_changes={"later": entries["later"], "gone": None},
        request_reports=(Report("c1", "output", "draft", Entry("kept"), recovered=True),),
        suspensions=(Suspension("r", "c9", "ask$2", {"q": 1}, {"draft": "d"}, 12.5),),
        answered=("r0",),
        ending=b"ending",
    )


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(snapshot(request="x").dumps()), **changes}


def test_a_snapshot_survives_the_way_through_bytes() -> None:
    """Everything in it comes back, and what is the scope's entry stays the scope's entry."""
    before = snapshot(request="hello", image=Image("image/png", b"x"), blob=b"\x00", nested={"$a": [1, 2.0, None]})
    after = Snapshot.loads(before.dumps())
    assert after.dumps() == before.dumps()
    assert after.scope == before.scope
    assert (after.suspensions, after.answered, after.state) == (before.suspensions, before.answered, before.state)
    assert after.request_changes["later"] is after.entries["later"]
    assert after.unreported[1].entry is after.entries["later"]


@given(plain_values())
def test_values_survive_as_json(value: Any) -> None:
    """Every value that travels is the same after JSON, with its types."""
    through = value_from_json(json.loads(json.dumps(value_to_json(value))), "x")
    assert repr(through) == repr(value)


def test_maps_with_a_dollar_are_not_taken_for_something_else() -> None:
    """A map that looks like an encoded value is wrapped."""
    values: list[Any] = [{"$bytes": "eA=="}, {"$map": {}}, {"$text": "x", "y": Text("z")}]
    for value in values:
        assert value_from_json(value_to_json(value), "x") == value


@dataclass
class Ticket:
    """A typed value."""

    title: str
    _secret: int


def test_typed_values_come_back_as_maps_unless_a_decoder_makes_them_again() -> None:
    """Dataclasses become maps of all their fields; `decode` is told the key and may restore them."""
    data = snapshot(ticket=Ticket("t", 1)).dumps()
    assert Snapshot.loads(data).scope["ticket"] == {"title": "t", "_secret": 1}

    def restore(name: str, value: Any) -> Any:
        return Ticket(**value) if name == "ticket" else value

    assert Snapshot.loads(data, decode=restore).scope["ticket"] == Ticket("t", 1)


def test_values_that_can_t_travel_need_an_encoder() -> None:
    """Without one the error names the key; with one it is given the key and the value."""
    with pytest.raises(UnsupportedValue, match="handle"):
        snapshot(handle=object()).dumps()
    data = snapshot(handle=object()).dumps(encode=lambda name, value: "h" if name == "handle" else value)
    assert Snapshot.loads(data).scope["handle"] == "h"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be an object"),
        (b"{}", "'format' is missing"),
        (document(format="other"), "not a snapshot"),
        (document(version=2), "version 2"),
        (document(version=True), "version: must be int, not bool"),
        (document(extra=1), "unknown fields ['extra']"),
        (document(state="%"), "snapshot.state"),
        (document(scope={"k": {"value": float("nan")}}), "not JSON"),
        (document(scope={"k": {"value": 1, "pending": "c"}}), "unknown fields ['value']"),
        (document(scope={"k": {"value": {"$what": 1}}}), "'$map' is missing"),
        (document(unknown={"none": {"current": True}}), "the scope has no 'none'"),
        (document(answered=[1]), "must hold strings only"),
        (document(outputs={"c": {"agent": "a", "key": "", "entry": None}}), "must not be null"),
        (document(unreported=[{"call_id": "c", "kind": "x", "key": "", "entry": None, "recovered": False}]), "kind"),
    ],
)
def test_what_is_no_snapshot_is_refused(bad: Any, problem: str) -> None:
    """Malformed, extended and newer snapshots are refused with the place of the problem."""
    data = bad if isinstance(bad, bytes) else json.dumps(bad)
    with pytest.raises(InvalidSnapshot) as caught:
        Snapshot.loads(data)
    assert problem in str(caught.value)


@given(st.binary() | st.text())
def test_no_bytes_crash_the_reader(data: bytes | str) -> None:
    """Whatever is loaded, the only error is InvalidSnapshot."""
    with pytest.raises(InvalidSnapshot):
        Snapshot.loads(data)
