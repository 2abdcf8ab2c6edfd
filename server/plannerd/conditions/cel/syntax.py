"""From the text of an expression to a checked syntax tree.

Parsing and type checking are cel-cpp's, Google's implementation of CEL; this module alone imports it. It
hands out the tree in the wire format of `cel.expr.CheckedExpr`, a public and frozen protobuf message, which
is read here field by field: its Python classes are in no maintained package, and the fields that matter are
few. What a condition has no use for is refused here or by the checker, which is given nothing else to know.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cel_expr_python import cel  # type: ignore[import-untyped]

from plannerd.conditions.cel.limits import MAX_NESTING


class Refused(Exception):  # noqa: N818 - the name says what happened
    """An expression that is not taken.

    Args:
        problem: what is wrong and what to do.
        offset: where, in characters from the start of the expression, or None where that is not known.
    """

    def __init__(self, problem: str, offset: int | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    offset: int
    value: bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or the name of a type."""

    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with `test`, `has(operand.field)`."""

    offset: int
    operand: Node
    field: str
    test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; `x.f(y)` and `f(x, y)` are the same here."""

    offset: int
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    offset: int
    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{a: b}`."""

    offset: int
    entries: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`items.all(variable, condition)`, or one of its two siblings."""

    offset: int
    kind: Literal["all", "exists", "exists_one"]
    items: Node
    variable: str
    condition: Node


Node: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Loop

FUNCTIONS: Final = (
    *("size", "contains", "startsWith", "endsWith", "matches"),
    *("type", "dyn", "int", "double", "string", "bool", "bytes"),
)
"""The functions that a condition may call. None of them knows the time or reaches outside."""

_OPERATORS: Final = ("_&&_", "_||_", "!_", "_?_:_", "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "@in", "_[_]")
_COMPARED: Final = ("int", "double", "string", "bytes", "bool")
_MIXED: Final = (("int", "double"), ("double", "int"))
# map() and filter() are known to the parser only so that they can be refused with a reason.
_MACROS: Final = ("has", "all", "exists", "exists_one", "map", "filter")

_FAILED: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")


def _declare(name: str, overloads: list[tuple[str, str]]) -> dict[str, object]:
    """A boolean operator on two operands, for the environment's configuration."""

    def operand(kind: str) -> dict[str, object]:
        return {"type_name": kind, "is_type_param": kind == "A"}

    return {
        "name": name,
        "overloads": [
            {"id": f"{name}{a}_{b}", "args": [operand(a), operand(b)], "return": {"type_name": "bool"}}
            for a, b in overloads
        ],
    }


@functools.cache
def _environment() -> cel.Env:
    """What expressions are checked against: `scope`, the functions above, and nothing else.

    The comparisons are declared anew because cel-cpp's checker knows none between an int and a double.
    """
    ordered = [*((kind, kind) for kind in _COMPARED), *_MIXED]
    config = {
        "stdlib": {
            "include_macros": list(_MACROS),
            "include_functions": [{"name": name} for name in (*FUNCTIONS, *_OPERATORS, "@not_strictly_false")],
        },
        "functions": [
            *(_declare(name, ordered) for name in ("_<_", "_<=_", "_>_", "_>=_")),
            *(_declare(name, [("A", "A"), *_MIXED]) for name in ("_==_", "_!=_")),
        ],
    }
    # JSON is YAML.
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(json.dumps(config)),
        variables={"scope": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)},
    )


def printable(text: str) -> str:
    """A library's words, fit for an error: cut, and without control characters that came from the expression."""
    return "".join(character if character.isprintable() else "?" for character in text[:400])


def parse(expression: str) -> Node:
    """The checked tree of `expression`, whose result is a boolean or is not known before it is evaluated.

    Raises:
        Refused: it can't be parsed, its types don't fit, or it uses what conditions don't have.
    """
    try:
        compiled = _environment().compile(expression)
    except RuntimeError as error:
        raise _refusal(expression, str(error)) from None
    result = compiled.return_type().name()
    if result not in {"BOOL", "DYN"}:
        raise Refused(f"the result is of type {result.lower()}, not a boolean; compare it with something", 0)
    return _Reader(compiled.serialize()).node()


def _refusal(expression: str, text: str) -> Refused:
    """What the parser or checker found, as told by the text of its error."""
    found = _FAILED.search(text)
    # No place is given for what is nested too deeply, neither by the parser nor by the code before it.
    if found is None or int(found[1]) < 1:
        return Refused(
            f"it can't be parsed; it may have more than {MAX_NESTING} levels, counting brackets and the links of a "
            "chain like a + b + c: use fewer of them",
            None,
        )
    line, column, problem = int(found[1]), int(found[2]), found[3].replace(" (in container '')", "")
    if problem.startswith("undeclared reference"):
        problem += f"; there are the variable scope and the functions {', '.join(FUNCTIONS)}"
    elif problem.startswith("has() argument"):
        problem += """; for a key that is no identifier, write "x-y" in scope"""
    elif problem.startswith("Syntax error") and " expecting {" in problem:
        problem = problem[: problem.index(" expecting {")]
    lines = expression.split("\n")
    offset = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    return Refused(printable(problem), offset)


# --- The wire format. Field numbers: cel/expr/checked.proto, cel/expr/syntax.proto.

_Field: TypeAlias = tuple[int, int, bytes]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> list[_Field]:
    """The fields of a message: number, the value of a varint (else 0), the bytes of any other (else empty)."""
    fields: list[_Field] = []
    at, end = 0, len(data)
    while at < end:
        # Tags and most lengths take one byte.
        tag, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
        wire = tag & 7
        if wire in {0, 2}:
            value, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at)
            if wire == 0:
                fields.append((tag >> 3, value, b""))
                continue
        else:
            value = 8 if wire == 1 else 4
        fields.append((tag >> 3, 0, data[at : at + value]))
        at += value
    return fields


class _Reader:
    """Reads a `google.protobuf.Any` that holds a CheckedExpr."""

    def __init__(self, serialized: bytes) -> None:
        self._offsets: dict[int, int] = {}
        self._root = b""
        for number, _, checked in _fields(serialized):
            if number == 2:
                for part, _, data in _fields(checked):
                    if part == 4:
                        self._root = data
                    elif part == 5:
                        self._read_offsets(data)

    def _read_offsets(self, source_info: bytes) -> None:
        for number, _, entry in _fields(source_info):
            if number == 4:
                pair = {part: value for part, value, _ in _fields(entry)}
                self._offsets[pair.get(1, 0)] = pair.get(2, 0)

    def node(self) -> Node:
        """The whole tree."""
        return self._node(self._root)

    def _node(self, data: bytes) -> Node:
        identity, kind, content = 0, 0, data
        for number, value, part in _fields(data):
            if number == 2:
                identity = value
            else:
                kind, content = number, part
        offset = self._offsets.get(identity, 0)
        match kind:
            case 3:
                return _constant(offset, content)
            case 4:
                return Name(offset, _fields(content)[0][2].decode())
            case 5:
                return self._select(offset, content)
            case 6:
                return self._call(offset, content)
            case 7:
                return ListOf(offset, tuple(self._node(part) for number, _, part in _fields(content) if number == 1))
            case 8:
                return self._map(offset, content)
            case 9:
                return self._loop(offset, content)
        raise Refused("it has something that conditions don't have", offset)

    def _select(self, offset: int, data: bytes) -> Select:
        part = {number: content for number, _, content in _fields(data)}
        return Select(offset, self._node(part[1]), part[2].decode(), test=3 in part)

    def _call(self, offset: int, data: bytes) -> Call:
        function = ""
        arguments: list[Node] = []
        for number, _, part in _fields(data):
            if number == 2:
                function = part.decode()
            else:  # the target, which comes first, or an argument
                arguments.append(self._node(part))
        return Call(offset, function, tuple(arguments))

    def _map(self, offset: int, data: bytes) -> MapOf:
        entries: list[tuple[Node, Node]] = []
        for number, _, part in _fields(data):
            if number == 1:
                raise Refused("protobuf messages can't be made in a condition", offset)
            entry = {field: content for field, _, content in _fields(part)}
            entries.append((self._node(entry[3]), self._node(entry[4])))
        return MapOf(offset, tuple(entries))

    def _loop(self, offset: int, data: bytes) -> Loop:
        """A macro, recognised by what the parser made of it."""
        part = {number: content for number, _, content in _fields(data)}
        start = self._node(part[4])
        step = self._node(part[6])
        items = self._node(part[2])
        if isinstance(start, Constant) and isinstance(step, Call) and 8 not in part:
            variable = part[1].decode()
            match start.value, step.function:
                case True, "_&&_":
                    return Loop(offset, "all", items, variable, step.arguments[1])
                case False, "_||_":
                    return Loop(offset, "exists", items, variable, step.arguments[1])
                case 0, "_?_:_":
                    return Loop(offset, "exists_one", items, variable, step.arguments[0])
        raise Refused("map() and filter() are not available; ask with all(), exists() or exists_one()", offset)


def _constant(offset: int, data: bytes) -> Constant:
    number, value, content = _fields(data)[0]
    match number:
        case 1:
            return Constant(offset, None)
        case 2:
            return Constant(offset, bool(value))
        case 3:
            return Constant(offset, value - (1 << 64) if value >> 63 else value)
        case 5:
            return Constant(offset, float(struct.unpack("<d", content)[0]))
        case 6:
            return Constant(offset, content.decode())
        case 7:
            return Constant(offset, content)
    raise Refused("unsigned numbers are not available; leave the u away", offset)
