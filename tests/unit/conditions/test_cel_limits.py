"""What bounds a CEL condition: its form when it is compiled, its work when it is evaluated."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Mapping

import pytest

from plannerd.conditions.cel import WORK, CompiledCel, Work, compile_cel
from plannerd.conditions.cel.limits import MAX_CHARACTERS, MAX_LOOPS, MAX_NESTING, MAX_PATTERN_CHARACTERS, MAX_PATTERNS
from plannerd.errors import PlannerdError, Reason
from plannerd.values import Image, ScopeValue

# --- The form of an expression


def accepted(expression: str) -> CompiledCel:
    return compile_cel(expression, "cel")


def refused(expression: str) -> str:
    with pytest.raises(PlannerdError) as caught:
        compile_cel(expression, "cel")
    assert caught.value.reason is Reason.INVALID_CONDITION
    return caught.value.message


def test_length() -> None:
    """An expression has at most 2,048 characters, whatever their bytes."""
    assert MAX_CHARACTERS == 2_048
    for character in ("a", "😀"):
        expression = f"scope.a == '{character * (MAX_CHARACTERS - 13)}'"
        assert len(expression) == MAX_CHARACTERS
        accepted(expression)
        assert "2049 characters; 2048 are allowed" in refused(expression + " ")


@pytest.mark.parametrize(
    ("start", "again", "end", "times"),
    [
        ("", "(", "true{)}", MAX_NESTING),
        ("true", " == true", "", MAX_NESTING - 1),
        ("scope", ".a", "", MAX_NESTING - 1),
        ("scope.a", "[0]", "", MAX_NESTING - 2),
        ("1", " + 1", " == 1", MAX_NESTING - 2),
        ("", "!(", "true{)}", MAX_NESTING - 1),
        ("", "dyn(", "true{)}", MAX_NESTING - 1),
        ("", "[", "{]} == []", MAX_NESTING - 1),
        ("", "true ? true : ", "true", MAX_NESTING - 1),
    ],
)
def test_nesting(start: str, again: str, end: str, times: int) -> None:
    """Brackets and chains have at most 32 levels."""

    def nested(levels: int) -> str:
        closed = end.replace("{)}", ")" * levels).replace("{]}", "]" * levels)
        return start + again * levels + closed

    accepted(nested(times))
    assert "more than 32 levels" in refused(nested(times + 1))


def test_chains_without_levels() -> None:
    """Any number of conditions may be put together with `&&` or with `||`, and a list may be long."""
    accepted(" || ".join(["scope.a"] * 180))
    accepted(" && ".join(["scope.a"] * 180))
    accepted("scope.a in [" + ", ".join(["'b'"] * 400) + "]")


def test_nested_loops() -> None:
    """Loops are nested three deep; beside each other there may be any number."""

    def nested(depth: int) -> str:
        return "[1].all(x, " * depth + "true" + ")" * depth

    accepted(nested(MAX_LOOPS))
    assert "nested more than 3 deep" in refused(nested(MAX_LOOPS + 1))
    assert "nested more than 3 deep" in refused(nested(15))
    accepted(" && ".join([nested(MAX_LOOPS)] * 10))


def test_patterns() -> None:
    """The patterns of an expression are few, short together, and small when compiled."""
    one = "scope.t.matches('{}')"
    accepted(" || ".join([one.format("a")] * MAX_PATTERNS))
    assert "may be called 4 times" in refused(" || ".join([one.format("a")] * (MAX_PATTERNS + 1)))
    accepted(one.format("a" * MAX_PATTERN_CHARACTERS))
    assert "256 characters together" in refused(one.format("a" * (MAX_PATTERN_CHARACTERS + 1)))
    half = one.format("a" * (MAX_PATTERN_CHARACTERS // 2))
    accepted(f"{half} || {half}")
    assert "256 characters together" in refused(f"{half} || {half} || {one.format('a')}")
    accepted(one.format("^\\\\p{Lu}\\\\p{Ll}+$"))
    accepted(one.format("a{1000}"))
    assert "RE2" in refused(one.format("a{1001}"))
    assert "RE2" in refused(one.format("(((a{10}){10}){10}){10}"))
    accepted(one.format("a{1000}b{1000}c{1000}d{900}"))
    assert "too large" in refused(one.format("a{1000}b{1000}c{1000}d{1000}"))
    assert "too large" in refused(one.format("\\\\pL" * 60))


# --- The work of an evaluation

BIG: Mapping[str, ScopeValue] = {
    "numbers": list(range(100_000)),
    "others": list(range(100_000)),
    "long": "a" * 1_000_000,
    "same": "".join(["a"] * 1_000_000),
    "wide": "é" * 500_000,
    "raw": b"a" * 1_000_000,
    "map": {str(number): number for number in range(100_000)},
    "texts": ["a" * 500 + str(number) for number in range(2_000)],
    "maps": [{"a": number, "b": "x"} for number in range(20_000)],
    "maps2": [{"a": number, "b": "x"} for number in range(20_000)],
    "picture": Image("image/png", b"a" * 1_000_000),
    "needle": "a" * 49 + "b" + "a" * 49,
}


def spent(expression: str, scope: Mapping[str, ScopeValue]) -> int:
    """The units of work that an evaluation takes."""
    work = Work(WORK)
    accepted(expression).evaluate(scope.get, "billing", work)
    return WORK - work.left


def exhausts(expression: str, scope: Mapping[str, ScopeValue] = BIG) -> None:
    with pytest.raises(PlannerdError) as caught:
        accepted(expression).evaluate(scope.get, "billing")
    assert caught.value.reason is Reason.CONDITION_FAILED
    assert "takes too much work" in caught.value.message
    assert caught.value.metadata.keys() == {"subject", "condition"}


def test_the_last_unit_of_work() -> None:
    """An evaluation that needs all of its work succeeds; with a unit less it fails."""
    expression = "scope.numbers.all(n, n >= 0)"
    scope: dict[str, ScopeValue] = {"numbers": list(range(1_000))}
    units = spent(expression, scope)
    assert accepted(expression).evaluate(scope.get, "billing", Work(units))
    with pytest.raises(PlannerdError, match="too much work"):
        accepted(expression).evaluate(scope.get, "billing", Work(units - 1))


def test_length_of_lists() -> None:
    """A simple loop looks at some fifteen thousand items, and no more."""
    scope: dict[str, ScopeValue] = {"numbers": list(range(15_000))}
    assert accepted("scope.numbers.all(n, n >= 0)").evaluate(scope.get, "billing")
    exhausts("scope.numbers.all(n, n >= 0)")


def test_size_costs_nothing_by_itself() -> None:
    """Large values are no burden where a condition doesn't look through them."""
    assert spent("size(scope.numbers) == 100000 && scope.numbers[99999] == 99999 && has(scope.map)", BIG) < 100
    assert spent("scope.map['5'] == 5 && '7' in scope.map && size(scope.long) > 1 && scope.long != 'a'", BIG) < 100
    assert spent("scope.numbers.exists(n, n == 50)", BIG) < 1_000


@pytest.mark.parametrize("size", [1_000, 20_000, 100_000, 1_000_000])
def test_ordinary_texts(size: int) -> None:
    """Searching a long text for a word is within the work of one evaluation."""
    scope: dict[str, ScopeValue] = {"log": "a line of a log\n" * (size // 16)}
    assert not accepted("scope.log.contains('Traceback (most recent call last)')").evaluate(scope.get, "billing")
    if size <= 20_000:
        assert not accepted("scope.log.matches('(?i)\\\\b(error|fatal)\\\\b')").evaluate(scope.get, "billing")


def test_work_is_shared() -> None:
    """Several evaluations may share their work; when it is used up, the next one fails at once."""
    condition = accepted("scope.numbers.all(n, n >= 0)")
    scope: dict[str, ScopeValue] = {"numbers": list(range(10_000))}
    work = Work(WORK)
    assert condition.evaluate(scope.get, "billing", work)
    assert 0 < work.left < WORK
    with pytest.raises(PlannerdError, match="too much work"):
        condition.evaluate(scope.get, "billing", work)
    with pytest.raises(PlannerdError, match="too much work"):
        accepted("true").evaluate(scope.get, "billing", work)
    assert condition.evaluate(scope.get, "billing")


def filled(start: str, part: str, end: str, separator: str) -> str:
    """An expression as long as it may be."""
    times = (MAX_CHARACTERS - len(start) - len(end) + len(separator)) // (len(part) + len(separator))
    return start + separator.join([part] * times) + end


HOSTILE = {
    "a loop over a long list": "scope.numbers.all(n, n >= 0)",
    "nested loops": "scope.numbers.all(a, scope.numbers.all(b, scope.numbers.all(c, a + b + c >= 0)))",
    "a long condition in a loop": filled("scope.numbers.all(n, ", "n<1000000", ")", "&&"),
    "errors in a loop": filled("scope.numbers.all(n, ", "n<''", "|| true)", "||"),
    "an error for each item": "scope.numbers.exists(n, n < '')",
    "absent keys in a loop": filled("scope.numbers.all(n, ", "scope.q", "|| true)", "||"),
    "equal long texts": "scope.numbers.all(n, scope.long == scope.same)",
    "ordered long texts": "scope.numbers.all(n, scope.long <= scope.same)",
    "equal long lists": "scope.numbers.all(n, scope.numbers == scope.others)",
    "equal maps": "scope.maps == scope.maps2",
    "equal images": "scope.numbers.all(n, scope.picture in [scope.picture])",
    "a list searched": "scope.numbers.all(n, n in scope.others)",
    "texts put together": filled("", "scope.long+scope.long==''", "", "||"),
    "lists put together": filled("", "scope.numbers+scope.numbers==[]", "", "||"),
    "bytes put together": filled("", "scope.raw+scope.raw==b''", "", "||"),
    "doubling": "[scope.long + scope.long].all(a, [a + a].all(b, [b + b].all(c, c + c == '')))",
    "small texts multiplied": "['0123456789abcdef'].all(a, [{}].all(b, [{}].all(c, {} == '')))".format(
        "+".join("a" * 25), "+".join("b" * 25), " == '' || ".join(["+".join("c" * 25)] * 20)
    ),
    "a text searched": filled("", "scope.long.contains(scope.needle)", "", "||"),
    "texts searched": "scope.numbers.all(n, scope.texts.all(t, !t.contains(scope.needle)))",
    "a pattern on a long text": "scope.long.matches('[ab]*a[ab]{10}c')",
    "a large pattern": "scope.texts.all(t, !t.matches('(a{0,20}){0,20}c'))",
    "a pattern that nests": "scope.long.matches('(a*)*(b*)*(a*b*)*c') || scope.long.matches('((a+)+)+c')",
    "conversions": "scope.numbers.all(n, string(int(string(n))) == string(n))",
    "encoding": "scope.numbers.all(n, bytes(scope.wide) != b'')",
    "decoding": "scope.numbers.all(n, string(scope.raw) != '')",
    "maps made": "scope.numbers.all(n, {'a': n, 'b': n} != {})",
    "lists made": filled("scope.numbers.all(n, [", "n", "] != [])", ","),
}


@pytest.mark.parametrize("expression", HOSTILE.values(), ids=HOSTILE)
def test_hostile(expression: str) -> None:
    """The work of any expression on any scope ends soon, and without much memory."""
    condition = accepted(expression)
    tracemalloc.start()
    try:
        exhausts(expression)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    before = time.process_time()
    with pytest.raises(PlannerdError):
        condition.evaluate(BIG.get, "billing")
    # Some ten milliseconds; the rest is for slow machines.
    assert time.process_time() - before < 0.5


def test_hostile_texts_are_refused_soon() -> None:
    """What no expression is takes no time to refuse."""
    for text in (
        "(",
        "[",
        "{",
        "!",
        "-",
        "?",
        "'",
        '"',
        ".",
        "a&&",
        "f(",
        "\x00",
        "😀",
        "1+",
        "[].all(x,",
        "\\",
        "//",
        "\n",
    ):
        expression = (text * MAX_CHARACTERS)[:MAX_CHARACTERS]
        before = time.process_time()
        refused(expression)
        assert time.process_time() - before < 0.5
