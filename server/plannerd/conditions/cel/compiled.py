"""Compiled conditions, and their errors as clients see them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Final

from plannerd.conditions.cel.limits import MAX_CHARACTERS, WORK
from plannerd.conditions.cel.operations import Exhausted, Failure, Work
from plannerd.conditions.cel.program import Frame, Get, Program, Run, boolean
from plannerd.conditions.cel.syntax import Refused, parse
from plannerd.errors import PlannerdError, Reason, invalid

_CACHED: Final = 64
_SHOWN: Final = 300


def _place(expression: str, offset: int) -> str:
    """A place as line:column, both from 1; columns count characters."""
    before = expression[:offset]
    return f"{before.count(chr(10)) + 1}:{offset - before.rfind(chr(10))}"


@dataclass(frozen=True, slots=True)
class CompiledCel:
    """A CEL condition that can be evaluated, any number of times and from any thread.

    Attributes:
        expression: its text.
        keys: the keys of the scope whose values it may read, in the order in which they occur.
        presence_keys: the keys that it asks for with has() or `in` only.
    """

    expression: str
    keys: tuple[str, ...]
    presence_keys: tuple[str, ...]
    _all_keys: tuple[str, ...] = field(repr=False, compare=False)
    _run: Run = field(repr=False, compare=False)
    _loops: int = field(repr=False, compare=False)
    _price: int = field(repr=False, compare=False)

    def evaluate(self, get: Get, subject: str, work: Work | None = None) -> bool:
        """Whether the condition holds.

        Args:
            get: gives the value of a key of the scope, None where it is absent. It is asked for `keys` and
                `presence_keys` only, and what it raises is passed on.
            subject: the agent or desire that the condition belongs to, for the error.
            work: what may be spent, where several evaluations share it; by default this one gets `WORK`.

        Raises:
            PlannerdError: CONDITION_FAILED with `subject`, `condition` and, where there is one, `place` in its
                metadata. It names keys and types, never a value.
        """
        shared = Work(WORK) if work is None else work
        frame = Frame(get, self._all_keys, self._loops, shared.left)
        try:
            frame.spend(self._price)
            return boolean(self._run(frame), "the result", 0)
        except Failure as failure:
            raise self._failed(subject, failure.problem, _place(self.expression, failure.offset)) from None
        except Exhausted:
            raise self._failed(
                subject, "it takes too much work on this scope; let it look at fewer items or shorter texts", None
            ) from None
        finally:
            shared.left = frame.left

    def _failed(self, subject: str, problem: str, place: str | None) -> PlannerdError:
        shown = self.expression if len(self.expression) <= _SHOWN else self.expression[: _SHOWN - 1] + "…"
        metadata = {"subject": subject, "condition": f"cel: {shown}"}
        if place is not None:
            metadata["place"] = place
        at = "" if place is None else f" at {place}"
        return PlannerdError(
            Reason.CONDITION_FAILED,
            f"The condition {shown} of '{subject}' could not be evaluated{at}: {problem}.",
            metadata=metadata,
        )


@functools.lru_cache(maxsize=_CACHED)
def _compile(expression: str) -> CompiledCel:
    program = Program(parse(expression))
    return CompiledCel(
        expression=expression,
        keys=tuple(key for key in program.keys if key in program.read),
        presence_keys=tuple(key for key in program.keys if key not in program.read),
        _all_keys=tuple(program.keys),
        _run=program.run,
        _loops=program.loops,
        _price=program.price,
    )


def compile_cel(expression: str, path: str) -> CompiledCel:
    """Compile a CEL condition.

    Args:
        expression: its text.
        path: the path of the field that it came in, for the error.

    Raises:
        PlannerdError: INVALID_CONDITION; it can't be parsed, its types don't fit, or it is refused. Where the
            place is known it is in the message and in the metadata (`place`), as line:column.
    """
    if not expression or expression.isspace():
        raise _invalid(path, "the expression is empty; write one, or leave the condition out")
    if len(expression) > MAX_CHARACTERS:
        raise _invalid(path, f"the expression has {len(expression)} characters; {MAX_CHARACTERS} are allowed")
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        raise _invalid(path, "the expression is not valid Unicode", _place(expression, error.start)) from None
    try:
        return _compile(expression)
    except Refused as refused:
        place = None if refused.offset is None else _place(expression, refused.offset)
        raise _invalid(path, refused.problem, place) from None


def _invalid(path: str, problem: str, place: str | None = None) -> PlannerdError:
    at = "" if place is None else f"at {place}: "
    return invalid(
        path, f"{at}{problem}", reason=Reason.INVALID_CONDITION, metadata=None if place is None else {"place": place}
    )
