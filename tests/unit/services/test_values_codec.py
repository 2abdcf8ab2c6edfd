"""Values of the wire: what is accepted, what is refused and where, and that nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from plannerd.decisions.models import DecisionModels
from plannerd.errors import Reason
from plannerd.services.codec.scope import decode_scope
from plannerd.services.context import CallContext
from plannerd.services.decision_service import DecisionModelService
from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text, Value
from plannerd.wire.values import ValueReader, encode_map, encode_value
from plannerd_protos.planner.v1 import decision_pb2, value_pb2
from tests.support.builders import agent, cascade, output, scheduler
from tests.support.engine import Server, refused
from tests.support.models import answering
from tests.support.values import SCOPE_VALUES, TEXTS, VALUES, same

EVERY_KIND: list[ScopeValue] = [
    None, True, False, 0, 7, -7, 2**63 - 1, -(2**63), 0.0, 2.0, -1.5, 5e-324, 1.7976931348623157e308, "", "text",
    "\u0000\U0001f600", b"", b"\x00\xff", [], [None, [1]], {}, {"": 1, "a": {"b": [None]}}, Text(""), Text("t"),
    Image("image/png", b"\x89PNG"), Opaque(b""), Opaque(b"\x00" * 32), PENDING,
]  # fmt: skip


def text(value: str) -> value_pb2.Value:
    return value_pb2.Value(string_value=value)


def in_list(*items: value_pb2.Value) -> value_pb2.Value:
    return value_pb2.Value(list_value=value_pb2.ListValue(values=items))


def in_map(**entries: value_pb2.Value) -> value_pb2.Value:
    return value_pb2.Value(map_value=value_pb2.MapValue(entries=entries))


def nested(depth: int, wrap: Callable[[value_pb2.Value], value_pb2.Value]) -> value_pb2.Value:
    """A text inside so many lists or maps."""
    value = text("x")
    for _ in range(depth):
        value = wrap(value)
    return value


LISTS_AND_MAPS = pytest.mark.parametrize("wrap", [in_list, lambda value: in_map(a=value)], ids=["lists", "maps"])


# ---- there and back


@pytest.mark.parametrize("value", EVERY_KIND, ids=lambda value: ascii(value)[:40])
def test_every_kind_of_value_survives_the_wire(value: ScopeValue) -> None:
    """A value of any kind that is encoded, sent and decoded is the same value, of the same type."""
    sent = value_pb2.Value.FromString(encode_value(value).SerializeToString())
    received = ValueReader().scope_value(sent, "v")
    assert received == value
    assert type(received) is type(value)


@settings(deadline=None)
@given(SCOPE_VALUES)
def test_any_value_survives_the_wire(value: ScopeValue) -> None:
    """Values in values survive the wire with their types: 1, 1.0 and true stay apart."""
    sent = value_pb2.Value.FromString(encode_value(value).SerializeToString())
    assert same(ValueReader().scope_value(sent, "v"), value)
    assert encode_value(ValueReader().scope_value(sent, "v")) == encode_value(value)


@settings(deadline=None)
@given(VALUES, TEXTS)
def test_any_map_survives_the_wire(value: Value, key: str) -> None:
    """A map of values survives the wire."""
    assert ValueReader().map(encode_map({key: value}), "m") == {key: value}


# ---- nesting


@LISTS_AND_MAPS
def test_nesting_of_24_is_accepted(wrap: Callable[[value_pb2.Value], value_pb2.Value]) -> None:
    """A value may be nested exactly 24 deep, and comes back as it was."""
    message = nested(24, wrap)
    assert encode_value(ValueReader().value(message, "v")) == message
    assert decode_scope(value_pb2.ScopeUpdate(set={"k": message}), ValueReader(), snapshot=True).set["k"]


@LISTS_AND_MAPS
@pytest.mark.parametrize("depth", [25, 26, 32])
def test_nesting_of_25_is_refused(wrap: Callable[[value_pb2.Value], value_pb2.Value], depth: int) -> None:
    """A value that is nested deeper than 24 is refused with the path to where it is too deep."""
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().value(nested(depth, wrap), "v")
    assert caught.fields == ["v" + ("[0]" if wrap is in_list else ".a") * 24]


def test_an_empty_list_counts_as_a_level() -> None:
    """The depth is that of lists and maps, whether they hold anything or not."""
    with refused(Reason.INVALID_VALUE):
        ValueReader().value(nested(24, lambda value: in_list(in_list()) if value == text("x") else in_list(value)), "v")


def test_the_map_of_a_planner_counts_as_a_level() -> None:
    """A planner map is a map like any other: its values may be nested 23 deep."""
    assert ValueReader().map(value_pb2.MapValue(entries={"k": nested(23, in_list)}), "m")
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().map(value_pb2.MapValue(entries={"k": nested(24, in_list)}), "m")
    assert caught.fields == ["m.k" + "[0]" * 23]


async def test_a_value_that_came_in_can_go_out() -> None:
    """The deepest value that a request may have fits into a reply that repeats it."""
    client = Server(answering(lookup=3)).client(scheduler(agent("lookup", "ticket")))
    await client.init(include_input=True)
    deepest = nested(24, in_list)
    await client.first({"ticket": deepest})
    (field,) = client.step.explanation.decisions[0].input
    assert field.value == deepest


# ---- refused


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (value_pb2.Value(), "kind"),
        (value_pb2.Value(double_value=float("nan")), "finite"),
        (value_pb2.Value(double_value=float("inf")), "finite"),
        (value_pb2.Value(double_value=float("-inf")), "finite"),
        (value_pb2.Value(content=value_pb2.Content()), "content"),
        (value_pb2.Value(content=value_pb2.Content(image=value_pb2.ImageContent(data=b"x"))), "media_type"),
        (
            value_pb2.Value(content=value_pb2.Content(image=value_pb2.ImageContent(media_type="text/html", data=b"x"))),
            "media_type",
        ),
        (value_pb2.Value(content=value_pb2.Content(image=value_pb2.ImageContent(media_type="image/png"))), "data"),
    ],
    ids=["unset", "NaN", "infinity", "-infinity", "no content", "no media type", "another media type", "no data"],
)
@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda bad: bad, ""),
        (lambda bad: in_list(text("x"), bad), "[1]"),
        (lambda bad: in_map(a=text("x"), b=bad), ".b"),
        (lambda bad: in_map(a=in_list(text("x"), in_map(b=in_list(bad)))), ".a[1].b[0]"),
    ],
    ids=["top", "list", "map", "deep"],
)
def test_a_bad_value_is_refused_with_its_path(
    bad: value_pb2.Value, word: str, place: Callable[[value_pb2.Value], value_pb2.Value], path: str
) -> None:
    """A value that breaks a rule is refused wherever it stands, with its own path and a word for the rule."""
    with refused(Reason.INVALID_VALUE) as caught:
        decode_scope(value_pb2.ScopeUpdate(set={"good": text("x"), "key": place(bad)}), ValueReader(), snapshot=False)
    assert caught.fields == [f"scope.set[key]{path}"]
    assert word in caught.error.violations[0].problem


@pytest.mark.parametrize(
    "bad",
    [value_pb2.Value(opaque=value_pb2.Opaque(tag=b"t")), value_pb2.Value(pending=value_pb2.Pending())],
    ids=["opaque", "pending"],
)
def test_opaque_and_pending_values_stand_at_the_top_only(bad: value_pb2.Value) -> None:
    """Below the top of the scope, opaque and pending values are refused with their path."""
    ValueReader().scope_value(bad, "v")
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().scope_value(in_map(a=in_list(bad)), "v")
    assert caught.fields == ["v.a[0]"]
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().value(bad, "results[0].output.value")
    assert caught.fields == ["results[0].output.value"]


def test_a_tag_has_at_most_32_bytes() -> None:
    """A tag of 32 bytes is accepted, one of 33 is refused."""
    assert ValueReader().scope_value(encode_value(Opaque(b"x" * 32)), "v") == Opaque(b"x" * 32)
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().scope_value(encode_value(Opaque(b"x" * 33)), "v")
    assert caught.fields == ["v.opaque.tag"]


@pytest.mark.parametrize("key", ["", " ", "\u00a0"], ids=ascii)
def test_a_blank_scope_key_is_refused(key: str) -> None:
    """A scope key must have something to it."""
    with refused(Reason.INVALID_REQUEST):
        decode_scope(value_pb2.ScopeUpdate(set={key: text("x")}), ValueReader(), snapshot=False)


def test_a_key_is_set_or_removed() -> None:
    """One request can't both set and remove a key."""
    with refused(Reason.INVALID_REQUEST) as caught:
        decode_scope(value_pb2.ScopeUpdate(set={"k": text("x")}, removed=["k"]), ValueReader(), snapshot=False)
    assert caught.fields == ["scope.removed"]


def test_the_path_of_a_hostile_value_stays_short() -> None:
    """An error about a value with enormous keys does not repeat them whole."""
    with refused(Reason.INVALID_VALUE) as caught:
        ValueReader().value(in_map(**{"k" * 100_000: value_pb2.Value()}), "v")
    assert len(caught.error.message) < 1000


async def test_a_bad_output_is_refused_with_the_path_of_its_result() -> None:
    """A value that breaks a rule inside a result is named by result and place, and nothing is applied."""
    client = await Server(answering(lookup=3)).started(scheduler(agent("lookup", "ticket", writes="facts")))
    bad = in_map(a=value_pb2.Value(double_value=float("nan")))
    with refused(Reason.INVALID_VALUE) as caught:
        await client.next(output(client.call("lookup"), bad))
    assert caught.fields == ["results[0].output.value.a"]
    assert (await client.where()).position == client.position


def in_order(value: object) -> bool:
    """Whether all maps in a value have their keys sorted."""
    match value:
        case dict():
            return list(value) == sorted(value) and all(map(in_order, value.values()))
        case list():
            return all(map(in_order, value))
    return True


SHUFFLED: Value = {key: [{inner: {"z": 1, "a": 2} for inner in "tools"}, 1] for key in "the quick brown fox"}


@settings(deadline=None)
@given(VALUES)
def test_maps_arrive_in_one_order(value: Value) -> None:
    """However a client orders its maps, the keys of each are sorted once they have arrived."""
    decoded = ValueReader().value(encode_value(value), "x")
    assert same(decoded, value)
    assert in_order(decoded)


async def test_every_decision_sees_maps_in_one_order() -> None:
    """The input of a decision has sorted maps, whether they come as arguments, as outputs or as a candidate answer."""
    for request in (scheduler(agent("a", "ticket", writes="facts")), cascade(agent("a", "ticket"), agent("b"))):
        server = Server(answering(a=3))
        client = await server.started(request, {"ticket": SHUFFLED})
        await client.next(output(client.named[0], SHUFFLED), scope={"ticket": [SHUFFLED]})
        inputs = [field.value for asked in server.model.asked for field in asked.input]
        assert inputs[-2:] == [[SHUFFLED], SHUFFLED]
        assert all(map(in_order, inputs))


async def test_models_that_are_asked_directly_see_maps_in_one_order() -> None:
    """So has that of DecisionModelService.Decide."""
    model = answering()
    request = decision_pb2.DecideRequest(
        input=[decision_pb2.InputField(name="ticket", value=encode_value(SHUFFLED))],
        questions=[decision_pb2.Question(name="q", text="Is it?", yes_no=decision_pb2.YesNoQuestion())],
    )
    await DecisionModelService(DecisionModels({"m": model}), 30.0).Decide(request, CallContext())
    assert in_order(model.asked[0].input[0].value)
