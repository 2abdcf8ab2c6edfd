"""From the syntax tree to something that can be run.

Each node becomes a function of the `Frame`, which holds what one evaluation knows. On the way everything that
reaches for the scope is found: only keys that stand in the expression, each asked for by `scope.x`,
`scope["x"]`, `has(scope.x)` or `"x" in scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from plannerd.conditions.cel.limits import (
    MAX_LOOPS,
    MAX_PATTERN_CHARACTERS,
    MAX_PATTERNS,
    WORK_PER_CONVERSION,
    WORK_PER_ENTRY,
    WORK_PER_ERROR,
    WORK_PER_LOOP,
    WORK_PER_OPERATION,
)
from plannerd.conditions.cel.operations import (
    BINARY,
    CONVERSIONS,
    TYPES,
    UNARY,
    Binary,
    Exhausted,
    Failure,
    Unary,
    Value,
    Work,
    equal,
    name_of,
    no_such_operation,
    shown,
)
from plannerd.conditions.cel.patterns import Pattern
from plannerd.conditions.cel.syntax import Call, Constant, ListOf, Loop, MapOf, Name, Node, Refused, Select
from plannerd.values import PENDING, Opaque, ScopeValue, Text, is_blank, is_present

Get: TypeAlias = "Callable[[str], ScopeValue | None]"
"""The value of a key of the scope, or None where it has none."""

_UNREAD: Final = object()

_READABLE: Final = frozenset({bool, int, float, bytes, list, dict})
"""Types whose values are always present, and read as they are."""


class Frame(Work):
    """One evaluation: its work, the scope, and the variables of the loops around.

    Args:
        get: the scope.
        keys: the keys that may be asked for, numbered.
        loops: how many loops may be nested.
        left: units of work.
    """

    __slots__ = ("_get", "_keys", "_present", "_raw", "_values", "variables")

    def __init__(self, get: Get, keys: Sequence[str], loops: int, left: int) -> None:
        self.left = left
        self.variables: list[Value] = [None] * loops
        self._get = get
        self._keys = keys
        self._raw: list[Value] = [_UNREAD] * len(keys)
        self._values: list[Value] = [_UNREAD] * len(keys)
        self._present: list[bool | None] = [None] * len(keys)

    def value(self, number: int, offset: int) -> Value:
        """The value of a key.

        Raises:
            Failure: the key is absent, or its value is not known here.
        """
        value = self._values[number]
        if value is _UNREAD:
            value = self._values[number] = self._readable(number, offset)
        return value

    def present(self, number: int) -> bool:
        """Whether a key is in the scope."""
        present = self._present[number]
        if present is None:
            present = self._present[number] = is_present(self._fetched(number))
        return present

    def _fetched(self, number: int) -> Value:
        value = self._raw[number]
        if value is _UNREAD:
            value = self._raw[number] = self._get(self._keys[number])
        return value

    def _readable(self, number: int, offset: int) -> Value:
        value = self._fetched(number)
        if type(value) in _READABLE:
            return value
        if self.present(number):
            if isinstance(value, Text):
                return value.text
            if value is not PENDING and not isinstance(value, Opaque):
                return value
        raise _unreadable(value, shown(self._keys[number]), offset)


def _unreadable(value: Value, key: str, offset: int) -> Failure:
    if value is PENDING:
        return Failure(f"the output '{key}' has not arrived yet: only its presence is known", offset)
    if isinstance(value, Opaque):
        return Failure(f"the value of '{key}' is opaque: only its presence is known", offset)
    return Failure(f"the key '{key}' is not in the scope; ask for its presence first", offset)


Run: TypeAlias = Callable[[Frame], Value]


def boolean(value: Value, what: str, offset: int) -> bool:
    """`value`, which must be a boolean.

    Raises:
        Failure: it is none.
    """
    if value is True or value is False:
        return bool(value)
    raise Failure(f"{what} is of type {name_of(value)}, not a boolean", offset)


class Program:
    """What an expression does.

    Args:
        root: its syntax tree.

    Raises:
        Refused: it uses the scope in a way that conditions don't have, or too much of something.
    """

    def __init__(self, root: Node) -> None:
        self.keys: dict[str, int] = {}
        self.read: set[str] = set()
        self.price = 0
        self.loops = 0
        self._variables: list[str] = []
        self._patterns: list[str] = []
        self.run = self._node(root)

    def _node(self, node: Node) -> Run:
        self.price += 1
        match node:
            case Constant(_, value):
                return lambda _: value
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf(_, elements):
                parts = [self._node(element) for element in elements]
                return lambda frame: [part(frame) for part in parts]
            case MapOf():
                return self._map(node)
            case Loop():
                return self._loop(node)

    # --- The scope, variables, fields

    def _name(self, node: Name) -> Run:
        for number in reversed(range(len(self._variables))):
            if self._variables[number] == node.name:
                return lambda frame: frame.variables[number]
        if node.name == "scope":
            raise Refused(
                "scope can't be used as a whole: only the keys that an expression names reach it; "
                'write scope.x, scope["x"], has(scope.x) or "x" in scope',
                node.offset,
            )
        kind = TYPES.get(node.name)
        if kind is None:
            raise Refused(f"the type {node.name} is not available", node.offset)
        return lambda _: kind

    def _is_scope(self, node: Node) -> bool:
        # No variable of a loop may be called scope.
        return isinstance(node, Name) and node.name == "scope"

    def _number(self, key: str, offset: int) -> int:
        if is_blank(key):
            raise Refused("a key of the scope can't be blank", offset)
        return self.keys.setdefault(key, len(self.keys))

    def _presence(self, key: str, offset: int) -> Run:
        number = self._number(key, offset)
        return lambda frame: frame.present(number)

    def _read(self, key: str, offset: int) -> Run:
        number = self._number(key, offset)
        self.read.add(key)
        return lambda frame: frame.value(number, offset)

    def _select(self, node: Select) -> Run:
        offset, field, name = node.offset, node.field, shown(node.field)
        if self._is_scope(node.operand):
            return self._presence(field, offset) if node.test else self._read(field, offset)
        operand = self._node(node.operand)

        def has(frame: Frame) -> bool:
            value = operand(frame)
            if type(value) is not dict:
                raise no_such_operation("has()", offset, value)
            return field in value

        def select(frame: Frame) -> Value:
            value = operand(frame)
            if type(value) is not dict:
                raise Failure(f"the field '{name}' is asked of a value of type {name_of(value)}, not of a map", offset)
            if field not in value:
                raise Failure(f"the map has no key '{name}'; ask has() first", offset)
            found = value[field]
            return found.text if type(found) is Text else found

        return has if node.test else select

    def _map(self, node: MapOf) -> Run:
        keys: list[str] = []
        values: list[Run] = []
        for key, value in node.entries:
            if not isinstance(key, Constant) or not isinstance(key.value, str):
                raise Refused("the keys of a map must be string literals", key.offset)
            if key.value in keys:
                raise Refused("the map has this key twice", key.offset)
            keys.append(key.value)
            values.append(self._node(value))
        self.price += len(keys) * WORK_PER_ENTRY
        return lambda frame: {key: value(frame) for key, value in zip(keys, values, strict=True)}

    # --- Functions and operators

    def _call(self, node: Call) -> Run:
        name, arguments, offset = node.function, node.arguments, node.offset
        match name, arguments:
            case "_&&_", _:
                return self._logic(node, decisive=False)
            case "_||_", _:
                return self._logic(node, decisive=True)
            case "_[_]", (of, index) if self._is_scope(of):
                if isinstance(index, Constant) and isinstance(index.value, str):
                    return self._read(index.value, offset)
                raise Refused('a key of the scope must be a string literal: scope["x"]', offset)
            case "@in", (key, of) if self._is_scope(of):
                if isinstance(key, Constant) and isinstance(key.value, str):
                    return self._presence(key.value, offset)
                raise Refused('a key of the scope must be a string literal: "x" in scope', offset)
            case "@in", (searched, ListOf(_, elements)) if elements:
                choices = [element.value for element in elements if isinstance(element, Constant)]
                if len(choices) == len(elements) and all(isinstance(choice, str) for choice in choices):
                    return self._choice(searched, frozenset(map(str, choices)), len(elements))
            case "matches", (text, Constant(at, str(pattern))):
                return self._matches(self._node(text), pattern, at)
            case "matches", _:
                raise Refused("the pattern of matches() must be a string literal", offset)
            case "!_", (argument,):
                negated = self._node(argument)
                return lambda frame: not boolean(negated(frame), "the operand of !", offset)
            case "_==_", (left, right):
                return self._equality(left, right, wanted=True)
            case "_!=_", (left, right):
                return self._equality(left, right, wanted=False)
            case "_?_:_", (test, yes, no):
                return self._conditional(self._node(test), self._node(yes), self._node(no), offset)
        parts = [self._node(argument) for argument in arguments]
        self.price += WORK_PER_CONVERSION if name in CONVERSIONS else WORK_PER_OPERATION
        if len(parts) == 1 and name in UNARY:
            return _unary(UNARY[name], parts[0], offset)
        if len(parts) == 2 and name in BINARY:
            return _binary(BINARY[name], parts[0], parts[1], offset)
        raise Refused(f"{name} is not available", offset)

    def _equality(self, left: Node, right: Node, *, wanted: bool) -> Run:
        a, b = self._node(left), self._node(right)
        self.price += WORK_PER_OPERATION
        for constant, other in ((left, b), (right, a)):
            if isinstance(constant, Constant) and isinstance(constant.value, str):
                return _equal_to(other, constant.value, wanted=wanted)
        if wanted:
            return lambda frame: equal(a(frame), b(frame), frame)
        return lambda frame: not equal(a(frame), b(frame), frame)

    def _choice(self, searched: Node, choices: frozenset[str], size: int) -> Run:
        value = self._node(searched)
        self.price += size

        def run(frame: Frame) -> bool:
            wanted = value(frame)
            return type(wanted) is str and wanted in choices

        return run

    def _conditional(self, test: Run, yes: Run, no: Run, offset: int) -> Run:
        def run(frame: Frame) -> Value:
            return yes(frame) if boolean(test(frame), "what stands before ?", offset) else no(frame)

        return run

    def _matches(self, text: Run, pattern: str, offset: int) -> Run:
        self._patterns.append(pattern)
        if len(self._patterns) > MAX_PATTERNS or sum(map(len, self._patterns)) > MAX_PATTERN_CHARACTERS:
            raise Refused(
                f"matches() may be called {MAX_PATTERNS} times, with patterns of {MAX_PATTERN_CHARACTERS} characters "
                "together; put them into one, or use several conditions",
                offset,
            )
        compiled = Pattern(pattern, offset)
        return lambda frame: compiled.found(text(frame), frame, offset)

    def _operands(self, node: Node, function: str) -> list[Node]:
        """The operands of a chain of `&&`, or of `||`, which the parser balances into a tree."""
        if isinstance(node, Call) and node.function == function:
            return [operand for part in node.arguments for operand in self._operands(part, function)]
        return [node]

    def _logic(self, node: Call, *, decisive: bool) -> Run:
        """`&&` or `||`: a decisive operand decides, whatever the others are, errors included."""
        operands = [(part.offset, self._node(part)) for part in self._operands(node, node.function)]
        what = f"an operand of {'||' if decisive else '&&'}"
        opposite = not decisive

        def run(frame: Frame) -> bool:
            failed: tuple[str, int] | None = None
            value: object
            for offset, operand in operands:
                try:
                    value = operand(frame)
                    if value is decisive:
                        return decisive
                    if value is not opposite:
                        boolean(value, what, offset)
                except Failure as failure:
                    frame.spend(WORK_PER_ERROR)
                    failed = failed or (failure.problem, failure.offset)
            if failed is not None:
                raise Failure(*failed)
            return opposite

        return run

    # --- Loops

    def _loop(self, node: Loop) -> Run:
        if node.variable == "scope" or node.variable in TYPES:
            raise Refused(f"{node.variable} means something else; call the variable otherwise", node.offset)
        items = self._node(node.items)
        number = len(self._variables)
        if number >= MAX_LOOPS:
            raise Refused(f"all(), exists() and exists_one() are nested more than {MAX_LOOPS} deep", node.offset)
        self.loops = max(self.loops, number + 1)
        self.price += WORK_PER_LOOP
        before = self.price
        self._variables.append(node.variable)
        condition = self._node(node.condition)
        self._variables.pop()
        price = self.price - before + 1
        at = node.condition.offset

        def elements(frame: Frame) -> list[Value] | dict[str, Value]:
            found = items(frame)
            if type(found) is list or type(found) is dict:
                return found
            raise no_such_operation(f"{node.kind}()", node.offset, found)

        def any_or_all(frame: Frame) -> bool:
            failed: tuple[str, int] | None = None
            value: object
            variables = frame.variables
            for element in elements(frame):
                frame.left -= price
                if frame.left < 0:
                    raise Exhausted
                variables[number] = element.text if type(element) is Text else element
                try:
                    value = condition(frame)
                    if value is decisive:
                        return decisive
                    if value is not opposite:
                        boolean(value, what, at)
                except Failure as failure:
                    frame.spend(WORK_PER_ERROR)
                    failed = failed or (failure.problem, failure.offset)
            if failed is not None:
                raise Failure(*failed)
            return opposite

        def exactly_one(frame: Frame) -> bool:
            found = 0
            variables = frame.variables
            for element in elements(frame):
                frame.left -= price
                if frame.left < 0:
                    raise Exhausted
                variables[number] = element.text if type(element) is Text else element
                found += boolean(condition(frame), what, at)
            return found == 1

        what = f"the condition of {node.kind}()"
        decisive = node.kind == "exists"
        opposite = not decisive
        return exactly_one if node.kind == "exists_one" else any_or_all


def _unary(operation: Unary, a: Run, offset: int) -> Run:
    return lambda frame: operation(a(frame), frame, offset)


def _binary(operation: Binary, a: Run, b: Run, offset: int) -> Run:
    return lambda frame: operation(a(frame), b(frame), frame, offset)


def _equal_to(operand: Run, constant: str, *, wanted: bool) -> Run:
    """Comparing with a text that stands in the expression."""

    def run(frame: Frame) -> bool:
        value = operand(frame)
        return (type(value) is str and value == constant) is wanted

    return run
