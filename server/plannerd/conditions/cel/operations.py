"""What operators and functions do with values, at a price.

Values are those of `plannerd.values`, as the scope holds them: nothing is converted, so that a condition
costs what it looks at. The semantics are CEL's: no number is a boolean, int and double are compared by
value and never mixed in arithmetic, values of different types are unequal, everything else that does not fit
is an error. An error is a `Failure`, which `&&` and `||` may put aside; running out of work is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, TypeAlias

from plannerd.conditions.cel.limits import (
    CHARACTERS_COMPARED_PER_UNIT,
    CHARACTERS_MADE_PER_UNIT,
    ITEMS_MADE_PER_UNIT,
    WORK_PER_ITEM_COMPARED,
    price_of_search,
)
from plannerd.values import Image, Text


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a value: what `type(x)` gives and what `int` stands for."""

    name: str


class Failure(Exception):  # noqa: N818 - the name says what happened
    """An evaluation that has no value.

    Args:
        problem: why, without any content of the scope.
        offset: where in the expression, in characters.
    """

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


class Exhausted(Exception):  # noqa: N818 - the name says what happened
    """The work of an evaluation is used up."""


class Work:
    """What an evaluation may still spend, in units."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, units: int) -> None:
        """Take `units`.

        Raises:
            Exhausted: there are no more.
        """
        self.left -= units
        if self.left < 0:
            raise Exhausted


# Any: the operations look at types themselves, one by one, and are called too often to be checked twice.
Value: TypeAlias = Any

TYPES: Final = {
    name: TypeName(name)
    for name in ("null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "map", "type")
}
"""The types that an expression may name. No value is a uint."""

_TYPE_OF: Final = {
    NoneType: TYPES["null_type"],
    bool: TYPES["bool"],
    int: TYPES["int"],
    float: TYPES["double"],
    str: TYPES["string"],
    Text: TYPES["string"],
    bytes: TYPES["bytes"],
    list: TYPES["list"],
    dict: TYPES["map"],
    TypeName: TYPES["type"],
}

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_NUMBERS: Final = frozenset({int, float})
_ORDERED: Final = frozenset({bool, int, float, str, bytes})
_SCALARS: Final = frozenset({NoneType, bool, int, float, TypeName})
_INT_TEXT: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE_TEXT: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_MAX_DOUBLE_TEXT: Final = 400
_SHOWN: Final = 80
_BOOL_TEXT: Final = {
    **dict.fromkeys(("1", "t", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "false", "FALSE", "False"), False),
}


def shown(name: str) -> str:
    """A name that stands in the expression, short enough for an error."""
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"


def name_of(value: Value) -> str:
    """The name of a value's type, for errors."""
    found = _TYPE_OF.get(type(value))
    return found.name if found is not None else "image" if type(value) is Image else "unknown"


def no_such_operation(operator: str, offset: int, *operands: Value) -> Failure:
    """The error of an operation that these operands don't have."""
    return Failure(f"{operator} is not defined for {' and '.join(map(name_of, operands))}", offset)


# --- Comparing


def equal(a: Value, b: Value, work: Work) -> bool:
    """Whether two values are equal; those of different types are not, but for numbers."""
    kind, other = type(a), type(b)
    if kind is Text:
        return equal(a.text, b, work)
    if other is Text:
        return equal(a, b.text, work)
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and bool(a == b)
    if kind in _SCALARS:
        return bool(a == b)
    if kind is str or kind is bytes:
        if len(a) != len(b):
            return False
        work.spend(len(a) // CHARACTERS_COMPARED_PER_UNIT)
        return bool(a == b)
    if kind is list:
        if len(a) != len(b):
            return False
        for left, right in zip(a, b, strict=True):
            work.spend(WORK_PER_ITEM_COMPARED)
            if not equal(left, right, work):
                return False
        return True
    if kind is dict:
        if len(a) != len(b):
            return False
        for key, left in a.items():
            work.spend(WORK_PER_ITEM_COMPARED)
            if key not in b or not equal(left, b[key], work):
                return False
        return True
    work.spend(len(a.data) // CHARACTERS_COMPARED_PER_UNIT)
    return bool(a == b)


def _ordered(a: Value, b: Value, work: Work, operator: str, offset: int) -> None:
    """Check that two values have an order.

    Raises:
        Failure: they have none.
    """
    kind, other = type(a), type(b)
    if kind is not other:
        if kind in _NUMBERS and other in _NUMBERS:
            return
    elif kind in _ORDERED:
        if kind is str or kind is bytes:
            work.spend(min(len(a), len(b)) // CHARACTERS_COMPARED_PER_UNIT)
        return
    raise no_such_operation(operator, offset, a, b)


def less(a: Value, b: Value, work: Work, offset: int) -> bool:
    """`a < b`."""
    _ordered(a, b, work, "<", offset)
    return bool(a < b)


def less_or_equal(a: Value, b: Value, work: Work, offset: int) -> bool:
    """`a <= b`."""
    _ordered(a, b, work, "<=", offset)
    return bool(a <= b)


def greater(a: Value, b: Value, work: Work, offset: int) -> bool:
    """`a > b`."""
    _ordered(a, b, work, ">", offset)
    return bool(a > b)


def greater_or_equal(a: Value, b: Value, work: Work, offset: int) -> bool:
    """`a >= b`."""
    _ordered(a, b, work, ">=", offset)
    return bool(a >= b)


# --- Arithmetic


def _whole(value: int, offset: int) -> int:
    """An int that is one of CEL's."""
    if _INT_MIN <= value <= _INT_MAX:
        return value
    raise Failure("the result is out of the range of an int", offset)


def add(a: Value, b: Value, work: Work, offset: int) -> Value:
    """`a + b`: numbers, or texts, bytes or lists put together."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return _whole(a + b, offset)
        if kind is float:
            return a + b
        if kind is str or kind is bytes or kind is list:
            work.spend((len(a) + len(b)) // (ITEMS_MADE_PER_UNIT if kind is list else CHARACTERS_MADE_PER_UNIT))
            return a + b
    raise no_such_operation("+", offset, a, b)


def subtract(a: Value, b: Value, work: Work, offset: int) -> Value:
    """`a - b`."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return _whole(a - b, offset)
        if kind is float:
            return a - b
    raise no_such_operation("-", offset, a, b)


def multiply(a: Value, b: Value, work: Work, offset: int) -> Value:
    """`a * b`."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return _whole(a * b, offset)
        if kind is float:
            return a * b
    raise no_such_operation("*", offset, a, b)


def divide(a: Value, b: Value, work: Work, offset: int) -> Value:
    """`a / b`: of ints, rounded towards zero; of doubles, as IEEE 754 has it."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            if b == 0:
                raise Failure("division by zero", offset)
            quotient = abs(a) // abs(b)
            return _whole(quotient if (a < 0) == (b < 0) else -quotient, offset)
        if kind is float:
            if b != 0:
                return a / b
            return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)  # noqa: PLR0124
    raise no_such_operation("/", offset, a, b)


def remainder(a: Value, b: Value, work: Work, offset: int) -> Value:
    """`a % b`, of the sign of `a`."""
    if type(a) is int and type(b) is int:
        if b == 0:
            raise Failure("division by zero", offset)
        if a == _INT_MIN and b == -1:
            raise Failure("the result is out of the range of an int", offset)
        rest = abs(a) % abs(b)
        return -rest if a < 0 else rest
    raise no_such_operation("%", offset, a, b)


def negate(a: Value, work: Work, offset: int) -> Value:
    """`-a`."""
    if type(a) is int:
        return _whole(-a, offset)
    if type(a) is float:
        return -a
    raise no_such_operation("-", offset, a)


# --- Collections


def item(a: Value, index: Value, work: Work, offset: int) -> Value:
    """`a[index]`."""
    kind = type(a)
    if kind is dict:
        if type(index) is str and index in a:
            found = a[index]
        elif type(index) in {str, int, float, bool}:
            raise Failure("the map has no such key", offset)
        else:
            raise no_such_operation("[]", offset, a, index)
    elif kind is list:
        if type(index) is float and index.is_integer():
            index = int(index)
        if type(index) is not int:
            raise no_such_operation("[]", offset, a, index)
        if not 0 <= index < len(a):
            raise Failure("the index is outside of the list", offset)
        found = a[index]
    else:
        raise no_such_operation("[]", offset, a, index)
    return found.text if type(found) is Text else found


def contained(a: Value, collection: Value, work: Work, offset: int) -> bool:
    """`a in collection`: among the items of a list or the keys of a map."""
    kind = type(collection)
    if kind is dict:
        if type(a) in {str, int, float, bool}:
            return type(a) is str and a in collection
    elif kind is list:
        for element in collection:
            work.spend(WORK_PER_ITEM_COMPARED)
            if equal(a, element, work):
                return True
        return False
    raise no_such_operation("in", offset, a, collection)


def size(a: Value, work: Work, offset: int) -> int:
    """How many characters a text has, how many bytes, how many items."""
    if type(a) in {str, bytes, list, dict}:
        return len(a)
    raise no_such_operation("size()", offset, a)


# --- Texts


def contains(a: Value, part: Value, work: Work, offset: int) -> bool:
    """`a.contains(part)`."""
    if type(a) is str and type(part) is str:
        work.spend(price_of_search(len(a), len(part)))
        return part in a
    raise no_such_operation("contains()", offset, a, part)


def starts_with(a: Value, start: Value, work: Work, offset: int) -> bool:
    """`a.startsWith(start)`."""
    if type(a) is str and type(start) is str:
        work.spend(len(start) // CHARACTERS_COMPARED_PER_UNIT)
        return a.startswith(start)
    raise no_such_operation("startsWith()", offset, a, start)


def ends_with(a: Value, end: Value, work: Work, offset: int) -> bool:
    """`a.endsWith(end)`."""
    if type(a) is str and type(end) is str:
        work.spend(len(end) // CHARACTERS_COMPARED_PER_UNIT)
        return a.endswith(end)
    raise no_such_operation("endsWith()", offset, a, end)


# --- Types and conversions


def type_of(a: Value, work: Work, offset: int) -> TypeName:
    """`type(a)`."""
    found = _TYPE_OF.get(type(a))
    if found is None:
        raise no_such_operation("type()", offset, a)
    return found


def same(a: Value, work: Work, offset: int) -> Value:
    """`dyn(a)`, which only the type checker minds."""
    return a


def to_int(a: Value, work: Work, offset: int) -> int:
    """`int(a)`: of a double, rounded towards zero; of a text, digits with a sign or without."""
    kind = type(a)
    if kind is int:
        return int(a)
    if kind is float:
        if _INT_MIN < a < -_INT_MIN:
            return int(a)
        raise Failure("the double is out of the range of an int", offset)
    if kind is str:
        if _INT_TEXT.fullmatch(a) and _INT_MIN <= int(a) <= _INT_MAX:
            return int(a)
        raise Failure("the string is no int", offset)
    raise no_such_operation("int()", offset, a)


def to_double(a: Value, work: Work, offset: int) -> float:
    """`double(a)`: of a text, a decimal number."""
    kind = type(a)
    if kind is float or kind is int:
        return float(a)
    if kind is str:
        work.spend(min(len(a), _MAX_DOUBLE_TEXT) // 8)
        if len(a) <= _MAX_DOUBLE_TEXT and _DOUBLE_TEXT.fullmatch(a):
            number = float(a)
            if math.isfinite(number):
                return number
        raise Failure("the string is no finite double", offset)
    raise no_such_operation("double()", offset, a)


def to_string(a: Value, work: Work, offset: int) -> str:
    """`string(a)`. Not of a double: every implementation of CEL writes those differently."""
    kind = type(a)
    if kind is str:
        return str(a)
    if kind is bool:
        return "true" if a else "false"
    if kind is int:
        return str(a)
    if kind is bytes:
        work.spend(len(a) // CHARACTERS_MADE_PER_UNIT)
        try:
            return str(a, "utf-8")
        except UnicodeDecodeError:
            raise Failure("the bytes are no UTF-8", offset) from None
    raise no_such_operation("string()", offset, a)


def to_bytes(a: Value, work: Work, offset: int) -> bytes:
    """`bytes(a)`: of a text, its UTF-8."""
    kind = type(a)
    if kind is bytes:
        return bytes(a)
    if kind is str:
        work.spend(len(a) // CHARACTERS_MADE_PER_UNIT)
        try:
            return bytes(a, "utf-8")
        except UnicodeEncodeError:
            raise Failure("the string is no valid Unicode", offset) from None
    raise no_such_operation("bytes()", offset, a)


def to_bool(a: Value, work: Work, offset: int) -> bool:
    """`bool(a)`."""
    kind = type(a)
    if kind is bool:
        return bool(a)
    if kind is str:
        found = _BOOL_TEXT.get(a)
        if found is not None:
            return found
        raise Failure("the string is no bool", offset)
    raise no_such_operation("bool()", offset, a)


Unary: TypeAlias = Callable[[Value, Work, int], Value]
Binary: TypeAlias = Callable[[Value, Value, Work, int], Value]

UNARY: Final[dict[str, Unary]] = {
    "-_": negate,
    "size": size,
    "type": type_of,
    "dyn": same,
    "int": to_int,
    "double": to_double,
    "string": to_string,
    "bytes": to_bytes,
    "bool": to_bool,
}
CONVERSIONS: Final = frozenset({"int", "double", "string", "bytes", "bool"})
BINARY: Final[dict[str, Binary]] = {
    "_<_": less,
    "_<=_": less_or_equal,
    "_>_": greater,
    "_>=_": greater_or_equal,
    "_+_": add,
    "_-_": subtract,
    "_*_": multiply,
    "_/_": divide,
    "_%_": remainder,
    "_[_]": item,
    "@in": contained,
    "contains": contains,
    "startsWith": starts_with,
    "endsWith": ends_with,
}
