"""CEL conditions: what they mean, what they may ask of the scope, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from plannerd.conditions.cel import CompiledCel, compile_cel
from plannerd.errors import PlannerdError, Reason, Violation
from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text

PATH = "planner.bdi.desires[1].achievable.cel"
IMAGE = Image("image/png", b"\x89PNG")

SCOPE: Mapping[str, ScopeValue] = {
    "count": 3,
    "price": 2.5,
    "whole": 3.0,
    "name": "Ada",
    "note": Text("urgent"),
    "ok": True,
    "raw": b"ab",
    "zero": "a\x00b",
    "items": [1, 2.0, "x", None, Text("y")],
    "orders": [{"id": 1, "open": True, "tags": ["a", "b"]}, {"id": 2, "open": False, "tags": []}],
    "order-id": "A-17",
    "who": {"name": "Ada", "age": 36, "mail": None, "role": Text("admin")},
    "late": PENDING,
    "handle": Opaque(b"tag"),
    "photo": IMAGE,
    "album": [IMAGE, "x"],
    "nothing": None,
    "blank": " \t",
    "blank-note": Text("\u3000"),
}


def compiled(expression: str) -> CompiledCel:
    return compile_cel(expression, PATH)


def holds(expression: str, scope: Mapping[str, ScopeValue] = SCOPE) -> bool:
    return compiled(expression).evaluate(scope.get, "billing")


def refusal(expression: str) -> PlannerdError:
    with pytest.raises(PlannerdError) as caught:
        compiled(expression)
    assert caught.value.reason is Reason.INVALID_CONDITION
    return caught.value


def failure(expression: str, scope: Mapping[str, ScopeValue] = SCOPE) -> PlannerdError:
    condition = compiled(expression)
    with pytest.raises(PlannerdError) as caught:
        condition.evaluate(scope.get, "billing")
    assert caught.value.reason is Reason.CONDITION_FAILED
    return caught.value


# --- What expressions mean


@pytest.mark.parametrize(
    "expression",
    [
        "scope.count == 3 && scope.name == 'Ada'",
        'scope["order-id"] == "A-17"',
        "scope['order-id'].startsWith('A-') && scope.name.endsWith('a') && scope.name.contains('d')",
        "scope.`order-id` == 'A-17'",
        ".scope.count == 3",
        "scope.ok",
        "!scope.ok || scope.count > 2 ? true : false",
        "scope.who.name == 'Ada' && scope['who']['age'] > 30 && scope.who['age'] >= 36",
        "scope.items[0] == 1 && scope.items[1.0] == 2",
        "scope.orders.exists(o, o.id == 2) && scope.orders.all(o, o.id < 3) && scope.orders.exists_one(o, o.open)",
        "scope.orders.exists(o, o.tags.exists(t, t == 'b' && o.id == 1))",
        "scope.who.exists(key, scope.who[key] == 36)",
        "scope.name in ['Eve', 'Ada'] && !(scope.name in ['Eve']) && scope.count in [1, 3]",
        "'x' in scope.items && 'age' in scope.who && !(36 in scope.who) && null in scope.items",
        "size(scope.name) == 3 && scope.items.size() == 5 && size(scope.who) == 4 && size(scope.raw) == 2",
        "scope.items == [1.0, 2, 'x', null, 'y'] && scope.items != [1, 2]",
        "{'a': [scope.count]} == {'a': [3.0]} && {'a': 1}['a'] == 1 && {'a': 1}.a == 1",
        "scope.count + 1 == 4 && scope.count * 2 - 1 == 5 && -scope.count == -3",
        "scope.price / 2.0 == 1.25 && scope.price + scope.whole == 5.5",
        "7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && -7 % 3 == -1",
        "1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300 && !(0.0 / 0.0 == 0.0 / 0.0)",
        "scope.name + '!' == 'Ada!' && scope.raw + b'c' == b'abc' && size(scope.items + [1]) == 6",
        "scope.name < 'Bob' && 'B' < 'a' && b'a' < b'b' && false < true && scope.name <= 'Ada' && 'b' >= 'a'",
        "scope.name.matches('^A.a$') && scope.name.matches('d') && !scope.name.matches('^d')",
        "scope.raw == b'ab' && scope.raw != 'ab'",
        "type(scope.count) == int && type(scope.price) == double && type(scope.who.mail) == null_type",
        "type(scope.name) == string && type(scope.note) == string && type(scope.items) == list",
        "type(scope.who) == map && type(scope.ok) == bool && type(scope.raw) == bytes && type(int) == type",
        "type(scope.count) != uint",
        "int('12') == 12 && int(' 12'.contains(' ') ? '-3' : '0') == -3 && int(2.9) == 2 && int(-2.9) == -2",
        "double('2.5') == 2.5 && double('1e3') == 1000.0 && double('.5') == 0.5 && double(scope.count) == 3.0",
        "string(scope.count) == '3' && string(true) == 'true' && string(scope.raw) == 'ab' && string('x') == 'x'",
        "bool('true') && !bool('f') && bool(true) && bytes('é') == b'é' && bytes(scope.raw) == b'ab'",
        "dyn(1) == 1 && dyn('a') != 1",
        "[].all(x, false) && ![].exists(x, true) && ![].exists_one(x, true) && ![1, 1].exists_one(x, x == 1)",
        "true // a comment\n && scope.ok",
    ],
)
def test_holds(expression: str) -> None:
    """The operators, functions and loops of CEL mean what its specification says."""
    assert holds(expression)


def test_numbers_compare_across_types() -> None:
    """An int and a double are compared by value, exactly, whether the checker knows their types or not."""
    assert holds(
        "scope.whole == 3 && scope.count == 3.0 && scope.price > 2 && scope.count < 3.5 && 1 < 1.5 && 2.0 == 2"
    )
    assert holds("scope.n > 9007199254740992.0 && scope.n != 9007199254740992.0", {"n": 2**53 + 1})
    assert holds("size(scope.name) > 2.5 && 2.5 != 2 && 3 >= 2.5 && 2.0 <= 2")


def test_values_of_other_types_are_unequal() -> None:
    """Comparing values of different types is no error; no boolean is a number."""
    assert holds("scope.count != '3' && scope.ok != 1 && scope.name != null && scope.items != scope.who")
    assert holds("[scope.ok] != [1] && !(dyn(true) in [1, 0]) && !(1 in [dyn(true)])")


def test_errors_give_way() -> None:
    """`&&`, `||`, all() and exists() need no operand that doesn't matter, on whichever side it is."""
    assert holds("scope.missing == 1 || scope.ok")
    assert holds("scope.ok || scope.missing == 1")
    assert holds("!(scope.missing == 1 && !scope.ok)")
    assert holds("scope.items.exists(x, x == 'y' && x < 'z')")
    assert not holds("scope.items.all(x, x > 1)")
    failure("scope.missing == 1 || !scope.ok")
    failure("scope.missing == 1 && scope.ok")
    failure("scope.items.exists(x, x > 5)")
    failure("scope.items.exists_one(x, x > 0)")


def test_the_inner_variable_hides_the_outer() -> None:
    """Loops may use one name for their variables."""
    assert holds("[1, 2].all(x, [3].all(x, x == 3) && x < 3)")


# --- The scope


@pytest.mark.parametrize(
    ("expression", "keys", "presence_keys"),
    [
        ("true", (), ()),
        ("has(scope.a)", (), ("a",)),
        ('"a" in scope', (), ("a",)),
        ("has(scope.a.b)", ("a",), ()),
        ("has(scope.b) && scope.b == 1 && has(scope.a)", ("b",), ("a",)),
        ("scope.b == 1 || scope.a.c == scope['x-y']", ("b", "a", "x-y"), ()),
        ('"a" in scope.b', ("b",), ()),
        ("[1].all(a, scope.a == a && [2].exists(b, b == scope.c.d))", ("a", "c"), ()),
        (".scope.a == 1", ("a",), ()),
    ],
)
def test_keys(expression: str, keys: tuple[str, ...], presence_keys: tuple[str, ...]) -> None:
    """A condition says which keys it reads and of which it asks for presence only."""
    condition = compiled(expression)
    assert (condition.keys, condition.presence_keys) == (keys, presence_keys)


def test_only_its_keys_are_asked_for() -> None:
    """The scope is asked for the condition's own keys, when they are needed, and for each once."""
    asked: list[str] = []

    def get(key: str) -> ScopeValue | None:
        asked.append(key)
        return SCOPE.get(key)

    condition = compiled(
        "has(scope.name) && scope.name == 'Ada' && [1, 2].all(x, scope.name != 'x') || scope.count == 1"
    )
    assert condition.evaluate(get, "billing")
    assert asked == ["name"]


@pytest.mark.parametrize("key", ["count", "name", "note", "late", "handle", "photo", "order-id"])
def test_present(key: str) -> None:
    """has() and `in` see what is in the scope, also what can't be read."""
    assert holds(f'"{key}" in scope')
    assert holds(f"has(scope.`{key}`)")


@pytest.mark.parametrize("key", ["missing", "nothing", "blank", "blank-note"])
def test_absent(key: str) -> None:
    """A key without a value, or with null or blank text, is not in the scope."""
    assert not holds(f'"{key}" in scope')
    assert "is not in the scope" in failure(f'scope["{key}"] == null').message


def test_presence_inside_of_values() -> None:
    """Inside of a value a key counts as it stands there, null or blank as it may be."""
    assert holds("has(scope.who.mail) && scope.who.mail == null && !has(scope.who.phone)")


def test_pending_and_opaque_values_are_not_read() -> None:
    """Only the presence of a pending output and of an opaque value is known; a guard doesn't change that."""
    assert "has not arrived yet" in failure("scope.late == 'x'").message
    assert "has not arrived yet" in failure("has(scope.late) && scope.late == 'x'").message
    assert "is opaque" in failure("scope.handle == 'x'").message
    assert "is opaque" in failure("has(scope.handle) ? scope.handle == scope.handle : false").message
    assert holds("has(scope.late) && has(scope.handle) || scope.late == 'x'")


def test_contents() -> None:
    """A text content is its text; an image equals an equal image and has nothing else."""
    assert holds("scope.note == 'urgent' && size(scope.note) == 6 && scope.who.role in ['admin']")
    assert holds("scope.items.exists(x, x == 'y') && scope.items[4].startsWith('y') && scope.note < 'v'")
    assert holds("scope.photo == scope.photo && scope.photo != 'x' && scope.photo in scope.album")
    assert holds("scope.album == [scope.photo, 'x'] && scope.album.exists(x, x == 'x')")
    assert not holds("scope.photo == scope.other", {**SCOPE, "other": Image("image/jpeg", IMAGE.data)})
    assert "image" in failure("size(scope.photo) > 0").message
    assert "image" in failure("type(scope.photo) == bytes").message
    assert "image" in failure("scope.photo").message


def test_texts_are_whole() -> None:
    """U+0000 doesn't end a text, and no character counts twice."""
    assert holds(
        "size(scope.zero) == 3 && scope.zero.endsWith('b') && scope.zero != 'a' && scope.zero.matches('^a.b$')"
    )
    assert holds("size(scope.t) == 2 && scope.t == '😀é' && scope.t.matches('^..$')", {"t": "😀é"})


def test_lone_surrogates() -> None:
    """A text that is no valid Unicode can be compared, not encoded."""
    scope = {"t": "a\ud800"}
    assert holds("scope.t != 'a' && size(scope.t) == 2", scope)
    assert "Unicode" in failure("scope.t.matches('a')", scope).message
    assert "Unicode" in failure("bytes(scope.t) == b''", scope).message


@pytest.mark.parametrize(
    "expression",
    [
        "scope == scope",
        "size(scope) > 1",
        "scope.all(key, true)",
        "[scope] == []",
        "{'s': scope}.s.x == 1",
        "dyn(scope).x == 1",
        "(true ? scope : scope).x == 1",
        "type(scope) == map",
        "scope != {}",
        "1 in [1] && scope in [scope]",
    ],
)
def test_scope_as_a_whole(expression: str) -> None:
    """The scope itself is no value: which keys are needed must be plain to see."""
    assert "can't be used as a whole" in refusal(expression).message


@pytest.mark.parametrize(
    "expression",
    [
        "scope[scope.name] == 1",
        "scope['a' + 'b'] == 1",
        "scope[true ? 'a' : 'b'] == 1",
        "scope[dyn(1)] == 1",
        "scope.name in scope",
        "['a'].all(key, key in scope)",
        "['a'].all(key, scope[key] == 1)",
        "dyn(1) in scope",
    ],
)
def test_dynamic_keys(expression: str) -> None:
    """A key of the scope is a string literal."""
    assert "must be a string literal" in refusal(expression).message


@pytest.mark.parametrize("name", ["scope", "int", "string", "map", "type"])
def test_names_that_are_taken(name: str) -> None:
    """The variable of a loop hides neither the scope nor a type."""
    assert "means something else" in refusal(f"[1].exists({name}, {name} == 1)").message


def test_blank_keys() -> None:
    """No key is blank."""
    assert "blank" in refusal('scope[" "] == 1').message
    assert "blank" in refusal('"" in scope').message


# --- Errors of expressions


@pytest.mark.parametrize(
    ("expression", "place", "problem"),
    [
        ("scope.a ==", "1:11", "Syntax error"),
        ("scope.a\n  && foo", "2:6", "undeclared reference to 'foo'"),
        ("'😀' == scope.a && b", "1:19", "undeclared reference to 'b'"),
        ("a.b == 1", "1:2", "undeclared reference"),
        ("1 + 'a' == 2", "1:3", "no matching overload"),
        ("scope.a + 1", "1:1", "of type int, not a boolean"),
        ("'yes'", "1:1", "of type string, not a boolean"),
        ("scope.a ? 1 : 2", "1:1", "of type int, not a boolean"),
        ("99999999999999999999 == 1", "1:1", "invalid int literal"),
        ("timestamp('2026-01-01T00:00:00Z') < scope.a", "1:10", "undeclared reference to 'timestamp'"),
        ("duration('1s') == scope.a", "1:9", "undeclared reference to 'duration'"),
        ("scope.a.getHours('UTC') == 1", "1:17", "undeclared reference to 'getHours'"),
        ("uint(1) == scope.a", "1:5", "undeclared reference to 'uint'"),
        ("scope.a == 1u", "1:12", "unsigned"),
        ("scope.a.map(x, x + 1) == [1]", "1:12", "map() and filter()"),
        ("scope.a.map(x, x > 1, x + 1) == [1]", "1:12", "map() and filter()"),
        ("true && scope.a.filter(x, x > 1) == []", "1:23", "map() and filter()"),
        ("scope.a.all(k, v, true)", "1:13", "undeclared reference"),
        ("google.protobuf.Struct{} == scope.a", "1:1", "protobuf"),
        ("type(1) == google.protobuf.Timestamp", "1:27", "not available"),
        ("optional.of(1) == scope.a", "1:1", "undeclared reference"),
        ("scope.?a == 1", "1:1", "unsupported syntax"),
        ("has(scope['x-y'])", "1:10", '"x-y" in scope'),
        ("{1: 'a'} == scope.a", "1:2", "string literals"),
        ("{scope.a: 1} == scope.a", "1:7", "string literals"),
        ("{'a': 1, 'a': 2} == scope.a", "1:10", "twice"),
        ("scope.a.matches(scope.b)", "1:16", "must be a string literal"),
        ("matches(scope.a, 'a' + 'b')", "1:8", "must be a string literal"),
        ("scope.a.matches('(')", "1:17", "RE2"),
        ("scope.a.matches('(?=a)')", "1:17", "RE2"),
        ("scope.a.matches('(a)\\\\1')", "1:17", "RE2"),
    ],
)
def test_invalid(expression: str, place: str, problem: str) -> None:
    """The error of an expression names the field, the place as line:column, and what is wrong."""
    error = refusal(expression)
    assert problem in error.message
    assert error.metadata == {"place": place}
    assert error.message.startswith(f"{PATH}: at {place}: ")
    assert [violation.field for violation in error.violations] == [PATH]
    assert error.message == f"{PATH}: {error.violations[0].problem}"


@pytest.mark.parametrize("expression", ["", " \n\t"])
def test_empty(expression: str) -> None:
    """An empty expression is told apart from a condition that is not there."""
    error = refusal(expression)
    assert error.violations == (Violation(PATH, "the expression is empty; write one, or leave the condition out"),)


def test_not_unicode() -> None:
    """An expression that can't be encoded is refused, not passed on."""
    assert refusal("scope.a == '\ud800'").metadata == {"place": "1:13"}


def test_errors_are_printable() -> None:
    """Control characters of an expression are not repeated."""
    assert refusal("scope.a == \x1b").message.isprintable()


def test_every_part_of_an_error_is_bounded() -> None:
    """Long names and long expressions are cut in errors."""
    name = "a" * 2_000
    assert len(refusal(f"{name} == 1").message) < 1_000
    error = failure(f"scope.{name} == 1", {})
    assert len(error.message) < 700
    assert len(error.metadata["condition"]) < 600


# --- Errors of evaluations


@pytest.mark.parametrize(
    ("expression", "place", "problem"),
    [
        ("scope.missing == 1", "1:6", "the key 'missing' is not in the scope"),
        ("true &&\n scope.missing.name == 1", "2:7", "the key 'missing' is not in the scope"),
        ("scope.who.phone == 1", "1:10", "the map has no key 'phone'"),
        ("scope.who[scope.name] == 1", "1:10", "the map has no such key"),
        ("scope.who[scope.count] == 1", "1:10", "the map has no such key"),
        ("scope.name.first == 'A'", "1:11", "of type string, not of a map"),
        ("has(scope.name.first)", "1:4", "not defined for string"),
        ("scope.items[5] == 1", "1:12", "outside of the list"),
        ("scope.items[-1] == 1", "1:12", "outside of the list"),
        ("scope.items[0.5] == 1", "1:12", "not defined for list and double"),
        ("scope.items['x'] == 1", "1:12", "not defined for list and string"),
        ("scope.name[0] == 'A'", "1:11", "not defined for string and int"),
        ("scope.name < 3", "1:12", "not defined for string and int"),
        ("scope.ok < 1", "1:10", "not defined for bool and int"),
        ("scope.items < scope.items", "1:13", "not defined for list and list"),
        ("scope.count + 1.0 == 4.0", "1:13", "not defined for int and double"),
        ("scope.count + 'a' == ''", "1:13", "not defined for int and string"),
        ("-scope.name == ''", "1:1", "not defined for string"),
        ("scope.price % scope.whole == 1.0", "1:13", "not defined for double and double"),
        ("scope.count / (scope.count - 3) == 1", "1:13", "division by zero"),
        ("scope.count % (scope.count - 3) == 1", "1:13", "division by zero"),
        ("scope.count * 9223372036854775807 > 0", "1:13", "out of the range"),
        ("scope.count + 9223372036854775807 > 0", "1:13", "out of the range"),
        ("-9223372036854775807 - scope.count > 0", "1:22", "out of the range"),
        ("-9223372036854775808 / dyn(-1) > 0", "1:22", "out of the range"),
        ("-9223372036854775808 % dyn(-1) > 0", "1:22", "out of the range"),
        ("-(-9223372036854775808) > scope.count", "1:1", "out of the range"),
        ("size(scope.count) > 1", "1:5", "not defined for int"),
        ("scope.count.contains('a')", "1:21", "not defined for int and string"),
        ("scope.name.startsWith(scope.count)", "1:22", "not defined for string and int"),
        ("scope.name.endsWith(scope.ok)", "1:20", "not defined for string and bool"),
        ("scope.count.matches('a')", "1:21", "not defined for int"),
        ("1 in scope.name", "1:3", "not defined for int and string"),
        ("[1] in scope.who", "1:5", "not defined for list and map"),
        ("scope.name.all(x, true)", "1:15", "not defined for string"),
        ("dyn([1]).all(x, x)", "1:17", "the condition of all() is of type int"),
        ("dyn([1]).exists(x, x)", "1:20", "the condition of exists() is of type int"),
        ("dyn([1]).exists_one(x, x)", "1:24", "the condition of exists_one() is of type int"),
        ("scope.count && true", "1:6", "an operand of && is of type int"),
        ("false || scope.count", "1:15", "an operand of || is of type int"),
        ("!scope.count", "1:1", "the operand of ! is of type int"),
        ("scope.count ? true : false", "1:13", "what stands before ? is of type int"),
        ("scope.count", "1:1", "the result is of type int, not a boolean"),
        ("int(scope.name) == 1", "1:4", "the string is no int"),
        ("int('9223372036854775808') == scope.count", "1:4", "the string is no int"),
        ("int(' 1') == scope.count", "1:4", "the string is no int"),
        ("int('1_0') == scope.count", "1:4", "the string is no int"),
        ("int('٣') == scope.count", "1:4", "the string is no int"),
        ("int(1e19) == scope.count", "1:4", "out of the range of an int"),
        ("int(0.0 / 0.0) == scope.count", "1:4", "out of the range of an int"),
        ("int(scope.ok) == 1", "1:4", "not defined for bool"),
        ("double(scope.name) == 1.0", "1:7", "no finite double"),
        ("double('1e400') > 1.0", "1:7", "no finite double"),
        ("double('inf') > 1.0", "1:7", "no finite double"),
        ("double(scope.ok) == 1.0", "1:7", "not defined for bool"),
        ("string(scope.price) == '2.5'", "1:7", "not defined for double"),
        ("string(scope.items) == ''", "1:7", "not defined for list"),
        ("string(b'\\xff') == ''", "1:7", "no UTF-8"),
        ("bytes(scope.count) == b''", "1:6", "not defined for int"),
        ("bool(scope.name)", "1:5", "the string is no bool"),
        ("bool(scope.count)", "1:5", "not defined for int"),
    ],
)
def test_fails(expression: str, place: str, problem: str) -> None:
    """What has no value fails the condition: the error names it, whose it is, the place and the reason."""
    error = failure(expression)
    assert problem in error.message
    assert f" at {place}: " in error.message
    assert "'billing'" in error.message
    assert error.metadata == {"subject": "billing", "condition": f"cel: {expression}", "place": place}


def test_the_first_error_is_told() -> None:
    """Of several errors the first one in the expression counts."""
    assert failure("scope.first == 1 || scope.second == 1").metadata["place"] == "1:6"


def test_errors_name_no_content() -> None:
    """No value of the scope, and no key that the expression does not have, gets into an error."""
    secret = "s3cr3t"
    scope: dict[str, ScopeValue] = {"text": secret, "map": {secret: secret}, "list": [secret], "key": secret}
    for expression in (
        "scope.text < 1",
        "scope.map[scope.list[0]].x == 1",
        "scope.map.other == 1",
        "int(scope.text) == 1",
        "scope.list.all(x, x)",
        "{'a': 1}[scope.key] == 1",
        "scope.text",
        "scope.map.all(key, scope.map[key] > 1)",
    ):
        error = failure(expression, scope)
        assert secret not in error.message + str(error.metadata)


def test_errors_of_the_scope_pass() -> None:
    """What goes wrong while a value is fetched is none of the condition's errors, and nothing absorbs it."""

    def get(key: str) -> ScopeValue | None:
        raise PlannerdError(Reason.INVALID_VALUE, f"{key} is malformed")

    with pytest.raises(PlannerdError) as caught:
        compiled("scope.a == 1 || true").evaluate(get, "billing")
    assert caught.value.reason is Reason.INVALID_VALUE


# --- Use


def test_equal_expressions_are_kept_once() -> None:
    """Compiling an expression again gives the same object."""
    assert compiled("scope.a == 12345") is compiled("scope.a == 12345")


def test_many_threads() -> None:
    """Conditions may be compiled and evaluated by several threads at a time."""

    def work(number: int) -> bool:
        scope: dict[str, Any] = {"n": number, "items": list(range(number % 50))}
        condition = compiled(f"scope.n == {number} && scope.items.all(x, x < {number % 7 + 50})")
        return all(condition.evaluate(scope.get, "billing") for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
