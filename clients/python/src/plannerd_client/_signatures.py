"""What a function says about itself: which scope keys it reads, what it returns, what it is for."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plannerd_client._context import AgentContext, Suspend
from plannerd_protos.planner.v1 import agent_pb2

REQUIRED: Final = inspect.Parameter.empty
"""Stands for the default of a parameter that has none."""


@dataclass(frozen=True, slots=True)
class Key:
    """The scope key of a parameter, where it is not the parameter's name: `order: Annotated[str, Key("order-id")]`."""

    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that is read from the scope.

    Args:
        name: the name in the function's signature.
        key: the scope key.
        optional: None is passed where the key is not in the scope.
        default: what is passed where the key is not in the scope; `REQUIRED` without one.
        positional: it can't be passed by name.
    """

    name: str
    key: str
    optional: bool = False
    default: Any = REQUIRED
    positional: bool = False

    @property
    def mandatory(self) -> bool:
        """Whether the agent can't be called while the key is not in the scope."""
        return not self.optional and self.default is REQUIRED

    @property
    def fallback(self) -> Any:
        """What is passed where the key is not in the scope."""
        return None if self.default is REQUIRED else self.default


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function reads and returns; `context` is the name of the parameter that takes the `AgentContext`."""

    parameters: tuple[Parameter, ...]
    context: str | None
    output_type: agent_pb2.OutputType.ValueType


def inspect_function(function: Callable[..., Any]) -> Signature:
    """Read the signature of `function`.

    Raises:
        TypeError: it takes `*args` or `**kwargs`, which name no scope keys.
    """
    hints = _hints(function)
    parameters: list[Parameter] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise TypeError(f"{parameter}: an agent names what it reads, so it can't take *args or **kwargs")
        hint = hints.get(parameter.name, Any)
        if _is_context(hint):
            context = parameter.name
        else:
            parameters.append(_parameter(parameter, hint))
    return Signature(tuple(parameters), context, output_type_of(hints.get("return", REQUIRED)))


def summary_of(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring, in one line; empty without one."""
    documented = function if inspect.isroutine(function) else type(function)
    if documented.__doc__ is None:
        return ""
    paragraph = (inspect.getdoc(documented) or "").split("\n\n", 1)[0]
    return " ".join(paragraph.split())


def output_type_of(hint: Any) -> agent_pb2.OutputType.ValueType:
    """The declared type of an output for a return annotation; `REQUIRED` stands for none."""
    if hint is REQUIRED:
        return agent_pb2.OUTPUT_TYPE_UNSPECIFIED
    if hint is None or hint is types.NoneType:
        return agent_pb2.OUTPUT_TYPE_NONE
    members = [member for member in _members(hint) if member not in {types.NoneType, Suspend}]
    kinds = {_kind(member) for member in members}
    return kinds.pop() if len(kinds) == 1 else agent_pb2.OUTPUT_TYPE_ANY


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = function
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError:  # a name that only exists for type checkers: take what can be taken
        return dict(inspect.get_annotations(target))


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == AgentContext.__name__
    return hint is AgentContext


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    key = parameter.name
    if typing.get_origin(hint) is typing.Annotated:
        key = next((extra.name for extra in hint.__metadata__ if isinstance(extra, Key)), key)
        hint = typing.get_args(hint)[0]
    return Parameter(
        name=parameter.name,
        key=key,
        optional=parameter.default is None or (parameter.default is REQUIRED and types.NoneType in _members(hint)),
        default=parameter.default,
        positional=parameter.kind is parameter.POSITIONAL_ONLY,
    )


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return tuple(inner for member in typing.get_args(hint) for inner in _members(member))
    if typing.get_origin(hint) is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    return (hint,)


def _kind(hint: Any) -> agent_pb2.OutputType.ValueType:
    if typing.get_origin(hint) is typing.Literal:
        kinds = {_kind(type(value)) for value in typing.get_args(hint)}
        return kinds.pop() if len(kinds) == 1 else agent_pb2.OUTPUT_TYPE_ANY
    cls = typing.get_origin(hint) or hint
    if cls is Any or cls is object or not isinstance(cls, type):
        return agent_pb2.OUTPUT_TYPE_ANY
    for base, kind in _KINDS:
        if issubclass(cls, base):
            return kind
    return agent_pb2.OUTPUT_TYPE_OBJECT


_KINDS: Final[tuple[tuple[type | tuple[type, ...], agent_pb2.OutputType.ValueType], ...]] = (
    (bool, agent_pb2.OUTPUT_TYPE_BOOLEAN),
    (str, agent_pb2.OUTPUT_TYPE_TEXT),
    ((int, float), agent_pb2.OUTPUT_TYPE_NUMBER),
    (bytes, agent_pb2.OUTPUT_TYPE_OBJECT),
    (Mapping, agent_pb2.OUTPUT_TYPE_MAP),
    (Sequence, agent_pb2.OUTPUT_TYPE_LIST),
)
