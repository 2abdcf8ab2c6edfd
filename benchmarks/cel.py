"""CEL conditions next to libraries for CEL, and the most expensive ones that are accepted.

    python -m benchmarks.cel [--rounds 7]

The libraries are measured as they come: compiled once, then evaluated on a scope of Python values, the whole
of it (`all`) or only the keys that the expression uses (`keys`). Rounds are interleaved, so that a machine
that slows down slows all of them; medians of CPU time are reported, and what counts are the ratios.
`cel-expr-python` is Google's and what plannerd parses with; `common-expression-language` and `cel-python` are
left out where they are not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plannerd.conditions.cel import WORK, Work, compile_cel
from plannerd.conditions.cel.compiled import _compile
from plannerd.conditions.cel.limits import MAX_CHARACTERS
from plannerd.errors import PlannerdError
from plannerd.values import ScopeValue

EXPRESSION = 'scope.priority > 3 && has(scope.customer) && scope["order-id"] == "A-17" && scope.total >= 10.5'
LOOP = "scope.notes.exists(note, note.number == 799)"
SMALL: Mapping[str, Any] = {"priority": 5, "customer": "Ada", "order-id": "A-17", "total": 99.5}

Scope = dict[str, Any]


def scope_of(notes: int) -> Scope:
    """A scope that also has what the condition doesn't look at."""
    return {**SMALL, "notes": [{"text": "x" * 80, "number": number, "open": True} for number in range(notes)]}


def median_of(rounds: int, kinds: Mapping[str, Callable[[], object]], seconds: float = 0.05) -> dict[str, float]:
    """Microseconds of CPU of a call of each kind: the median of interleaved rounds."""
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    calls: dict[str, int] = {}
    for kind, call in kinds.items():
        calls[kind] = max(1, int(seconds / max(_seconds(call), 1e-6)))
    for _ in range(rounds):
        for kind, call in kinds.items():
            started = time.process_time()
            for _ in range(calls[kind]):
                call()
            times[kind].append((time.process_time() - started) / calls[kind] * 1e6)
    return {kind: statistics.median(values) for kind, values in times.items()}


def evaluators(expression: str, scope: Scope) -> Iterator[tuple[str, Callable[[], object]]]:
    """What can evaluate the expression, by name."""
    condition = compile_cel(expression, "cel")
    used = {key: scope[key] for key in condition.keys} | dict.fromkeys(condition.presence_keys, True)
    yield "plannerd", lambda: condition.evaluate(scope.get, "an agent")

    cel_cpp = importlib.import_module("cel_expr_python.cel")
    environment = cel_cpp.NewEnv(variables={"scope": cel_cpp.Type.Map(cel_cpp.Type.STRING, cel_cpp.Type.DYN)})
    expected = environment.compile(expression)
    yield "cel-expr-python, keys", lambda: expected.eval(data={"scope": used}).value()
    yield "cel-expr-python, all", lambda: expected.eval(data={"scope": scope}).value()
    try:
        rust = importlib.import_module("cel")
    except ImportError:
        pass
    else:
        program = rust.compile(expression)
        yield "common-expression-language, keys", lambda: program.execute({"scope": used})
        yield "common-expression-language, all", lambda: program.execute({"scope": scope})
    try:
        celpy = importlib.import_module("celpy")
    except ImportError:
        pass
    else:
        python = celpy.Environment()
        runner = python.program(python.compile(expression))
        yield "cel-python, keys", lambda: runner.evaluate({"scope": celpy.json_to_cel(used)})
        yield "cel-python, all", lambda: runner.evaluate({"scope": celpy.json_to_cel(scope)})


def compare(title: str, expression: str, scope: Scope, rounds: int) -> None:
    """Print a table: microseconds, and how many times of plannerd's that is."""
    times = median_of(rounds, dict(evaluators(expression, scope)))
    print(f"\n{title}\n  {expression}")
    for kind, microseconds in times.items():
        print(f"  {kind:34} {microseconds:10.1f} us {microseconds / times['plannerd']:9.1f} x")


# --- The most expensive ones

LONG = "a" * 1_000_000
RANDOM = random.Random(1)  # the same letters each time


def letters(length: int) -> str:
    """A text that keeps an automaton busy."""
    return "".join(RANDOM.choices("ab", k=length))


BIG: Mapping[str, ScopeValue] = {
    "numbers": list(range(100_000)),
    "others": list(range(100_000)),
    "long": LONG,
    "same": "".join(list(LONG)),
    "wide": "\U0001f600" * 250_000,
    "nested": [[[[[[[[1]]]]]]]] * 20_000,
    "nested2": [[[[[[[[1]]]]]]] for _ in range(20_000)],
    "maps": [{"a": number, "b": "x"} for number in range(20_000)],
    "maps2": [{"a": number, "b": "x"} for number in range(20_000)],
    "words": [letters(1_000) for _ in range(1_000)],
    "letters": letters(29_000),
    "needle": "a" * 49 + "b" + "a" * 49,
    "text": "a" * 29_000,
    "digits": "1" * 398 + "x",
}


def filled(start: str, part: str, end: str, separator: str) -> str:
    """An expression as long as it may be."""
    times = (MAX_CHARACTERS - len(start) - len(end) + len(separator)) // (len(part) + len(separator))
    return start + separator.join([part] * times) + end


HOSTILE: Mapping[str, str] = {
    "nested loops": "scope.numbers.all(a, scope.numbers.all(b, scope.numbers.all(c, a + b + c >= 0)))",
    "a loop, long condition": filled("scope.numbers.all(n, ", "n<1000000", ")", "&&"),
    "errors put aside": filled("scope.numbers.all(n, ", "n<''", "|| true)", "||"),
    "an error for each item": "scope.numbers.exists(n, " + "!(" * 25 + "n.x" + ")" * 25 + ")",
    "deep equality": "scope.nested == scope.nested2",
    "equal maps": "scope.maps == scope.maps2",
    "equal long texts": "scope.numbers.all(n, scope.long == scope.same)",
    "texts put together": filled("", "scope.wide+scope.wide==''", "", "||"),
    "values kept alive": "[" + ", ".join(["scope.wide + 'x'"] * 6) + "] == [] || scope.numbers + scope.numbers == []",
    "a text searched": filled("", "scope.text.contains(scope.needle)", "", "||"),
    "numbers from texts": "scope.numbers.all(n, double(scope.digits) > 0.0 || true)",
    "a pattern of many states": "scope.words.all(w, !w.matches('(a|b)*a(a|b){100}c'))",
    "a large pattern": "scope.words.all(w, !w.matches('(a{0,20}){0,20}c'))",
    "a pattern on a long text": "scope.letters.matches('[ab]*a[ab]{20}c')",
}


def hostile() -> None:
    """Print what the worst expressions take before they end or are stopped."""
    print(f"\nHostile expressions on a scope of some 20 MB, {WORK} units of work each")
    for title, expression in HOSTILE.items():
        condition = compile_cel(expression, "cel")

        def once(units: int = WORK) -> int:
            work = Work(units)
            with contextlib.suppress(PlannerdError):
                condition.evaluate(BIG.get, "an agent", work)  # noqa: B023 - called at once
            return units - max(work.left, 0)

        best = min(_seconds(once) for _ in range(5))
        tracemalloc.start()
        units = once()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  {title:26} {best * 1e3:7.1f} ms {peak / 1e6:6.1f} MB {units:8} units")


COSTLY_TO_COMPILE: Mapping[str, str] = {
    "an ordinary one": EXPRESSION,
    "many operators": filled("scope.xs.all(x, ", "x<1", ")", "&&"),
    "many loops": filled("", "[1].all(a,a==1)", "", "&&"),
    "a long list": filled("[", "1", "] == []", ","),
    "no expression": "\U0001f600" * MAX_CHARACTERS,
    "patterns": "scope.t.matches('" + "\\\\pL" * 64 + "')",
}


def compiling() -> None:
    """Print what the worst expressions take to be compiled or refused."""
    print("\nCompiling, or refusing")
    for title, expression in COSTLY_TO_COMPILE.items():

        def once() -> None:
            _compile.cache_clear()
            with contextlib.suppress(PlannerdError):
                compile_cel(expression, "cel")  # noqa: B023 - called at once

        best = min(_seconds(once) for _ in range(5))
        print(f"  {title:26} {best * 1e3:7.2f} ms {len(expression):8} characters")


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def run(rounds: int) -> None:
    """Measure and print."""
    for notes in (0, 8, 800):
        scope = scope_of(notes)
        compare(f"One condition, scope of {len(json.dumps(scope)):,} bytes", EXPRESSION, scope, rounds)
    compare("A loop over 800 items", LOOP, scope_of(800), rounds)
    hostile()
    compiling()


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cel", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    run(parser.parse_args().rounds)


if __name__ == "__main__":
    main()
