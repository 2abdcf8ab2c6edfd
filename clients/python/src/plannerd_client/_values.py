"""Python values, the values of the wire, and digests of both.

Everything that leaves the process passes through `plain`: it checks a value, names the path of what can't
travel, and turns dataclasses, pydantic models and enums into maps, lists and scalars. `encode`, `digest` and the
snapshot format then work on the few types that are left.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
import sys
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.struct_pb2 import NULL_VALUE

from plannerd_client.errors import ProtocolError, UnsupportedValue
from plannerd_protos.planner.v1 import value_pb2

MAX_NESTING: Final = 24
"""How deep lists and maps may be nested in one value, the outermost one counted."""

_SUPPORTED: Final = (
    "None, bool, int (64 bits), finite float, str, bytes, list, tuple, dict with str keys, Text, Image, enums,"
    " dataclasses and pydantic models"
)
# The characters with the Unicode property White_Space. str.isspace() takes U+001C to U+001F as well.
_WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text as a part of a message, where a decision model tells such parts from plain strings."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image by its encoded bytes. Addresses are not accepted: plannerd fetches nothing.

    Args:
        media_type: starts with `image/`, for instance `image/png`.
        data: the encoded image, not empty.

    Raises:
        ValueError: one of the two is not as described.
    """

    media_type: str
    data: bytes

    def __post_init__(self) -> None:
        if not self.media_type.startswith("image/"):
            raise ValueError(f"media_type must start with 'image/', not be {self.media_type!r}")
        if not self.data:
            raise ValueError("data must not be empty")


Plain: TypeAlias = "None | bool | int | float | str | bytes | list[Plain] | dict[str, Plain] | Text | Image"
"""What `plain` returns: the types that travel."""


def is_present(value: object) -> bool:
    """Whether `value` counts as *in the scope*: not None and, if it is text, not blank.

    Blank is text of no characters but those with the Unicode property White_Space.
    """
    if isinstance(value, Text):
        value = value.text
    if isinstance(value, str):
        return bool(value.strip(_WHITE_SPACE))
    return value is not None


def plain(value: object, path: str) -> Plain:
    """Check `value` and reduce it to the types that travel.

    Dataclasses and pydantic models become maps of *all* their fields, private ones included; enums become their
    value; tuples become lists. Nothing else is converted.

    Args:
        value: any object.
        path: how errors call it, for instance the scope key that it belongs to.

    Raises:
        UnsupportedValue: something in it can't travel. The error names its path.
    """
    return _plain(value, path, 0)


def _plain(value: object, path: str, depth: int) -> Plain:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, depth)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise UnsupportedValue(path, f"{value} does not fit into 64 bits: send it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnsupportedValue(path, f"{value} is not a finite number")
        return float(value)
    if isinstance(value, bytes | Image):
        return value
    if isinstance(value, Text):
        _text(value.text, path)
        return value
    return _container(value, path, depth + 1)


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedValue(path, f"the text has a lone surrogate at {error.start}") from None
    return str(value)


def _container(value: object, path: str, depth: int) -> Plain:
    entries: dict[str, object]
    if isinstance(value, list | tuple):
        _check_depth(path, depth)
        return [_plain(item, f"{path}[{index}]", depth) for index, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise UnsupportedValue(path, f"the key {key!r} is {_type_name(key)}: keys must be str")
            _text(key, f"{path}: the key {key!r}")
        entries = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        model = _pydantic_fields(value)
        if model is None:
            raise UnsupportedValue(path, f"a value of type {_type_name(value)} can't travel; possible are {_SUPPORTED}")
        entries = model
    _check_depth(path, depth)
    return {str(key): _plain(item, f"{path}.{key}", depth) for key, item in entries.items()}


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_NESTING:
        raise UnsupportedValue(path, f"lists and maps are nested more than {MAX_NESTING} deep")


def _pydantic_fields(value: object) -> dict[str, object] | None:
    """All fields of a pydantic model: declared, extra and private ones; None if it is no model."""
    pydantic: Any = sys.modules.get("pydantic")  # who has a model has imported it
    if pydantic is None or not isinstance(value, pydantic.BaseModel):
        return None
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    return {**fields, **(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def encode(value: Plain) -> value_pb2.Value:
    """The value of the wire for what `plain` returned."""
    target = value_pb2.Value()
    _fill(target, value)
    return target


def _fill(target: value_pb2.Value, value: Plain) -> None:
    match value:
        case str():
            target.string_value = value
        case None:
            target.null_value = NULL_VALUE
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case list():
            target.list_value.SetInParent()
            for item in value:
                _fill(target.list_value.values.add(), item)
        case dict():
            target.map_value.SetInParent()
            for key, item in value.items():
                _fill(target.map_value.entries[key], item)
        case bytes():
            target.bytes_value = value
        case Text():
            target.content.text.text = value.text
        case Image():
            target.content.image.media_type = value.media_type
            target.content.image.data = value.data


def decode(value: value_pb2.Value, path: str) -> Plain:
    """The Python value for a value of the wire.

    Raises:
        ProtocolError: it is unset, nested more than 24 deep, or of a kind that this client does not know.
    """
    return _decode(value, path, 0)


def _decode(value: value_pb2.Value, path: str, depth: int) -> Plain:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "map_value":
            _check_reply_depth(path, depth + 1)
            entries = value.map_value.entries.items()
            return {key: _decode(item, f"{path}.{key}", depth + 1) for key, item in entries}
        case "list_value":
            _check_reply_depth(path, depth + 1)
            values = enumerate(value.list_value.values)
            return [_decode(item, f"{path}[{index}]", depth + 1) for index, item in values]
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "null_value":
            return None
        case "bytes_value":
            return value.bytes_value
        case "content" if value.content.WhichOneof("kind") == "text":
            return Text(value.content.text.text)
        case "content" if value.content.WhichOneof("kind") == "image":
            return Image(value.content.image.media_type, value.content.image.data)
        case kind:
            raise ProtocolError(f"the server sent a value of a kind that this client does not know: {path} ({kind})")


def _check_reply_depth(path: str, depth: int) -> None:
    if depth > MAX_NESTING:
        raise ProtocolError(f"the server sent lists and maps nested more than {MAX_NESTING} deep: {path}")


def digest(value: Plain, key: bytes) -> bytes:
    """32 bytes that stand for the meaning of `value`.

    Equal values have equal digests: maps in any order, 2 and 2.0 alike; True is no number.

    Args:
        value: what `plain` returned.
        key: up to 64 bytes that make digests of different owners differ, so that nobody can guess values from them.
    """
    hasher = hashlib.blake2b(key=key, digest_size=32)
    stack: list[Plain] = [value]
    while stack:
        item = stack.pop()
        match item:
            case None | bool():
                hasher.update({None: b"0", True: b"1", False: b"2"}[item])
            case str():
                _feed(hasher, b"s", item.encode())
            case int():
                _feed(hasher, b"n", b"%d" % item)
            case float():
                _feed(hasher, b"n", b"%d" % int(item) if item.is_integer() else repr(item).encode())
            case bytes():
                _feed(hasher, b"b", item)
            case Text():
                _feed(hasher, b"t", item.text.encode())
            case Image():
                _feed(hasher, b"i", item.media_type.encode())
                _feed(hasher, b"i", item.data)
            case list():
                hasher.update(b"l%d;" % len(item))
                stack.extend(reversed(item))
            case dict():
                hasher.update(b"m%d;" % len(item))
                for name in sorted(item, reverse=True):
                    stack += [item[name], name]
    return hasher.digest()


def _feed(hasher: hashlib.blake2b, mark: bytes, data: bytes) -> None:
    hasher.update(b"%s%d;" % (mark, len(data)))
    hasher.update(data)
