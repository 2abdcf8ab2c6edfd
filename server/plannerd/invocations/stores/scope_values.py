"""Scope values as JSON text, without loss: what JSON lacks is a map with an empty key that says what it is."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Final, cast

from plannerd.values import PENDING, Image, Opaque, ScopeValue, Text

_TAG: Final = ""
_TAGGED: Final = '"":'

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dump_values(*values: ScopeValue) -> bytes:
    """`values` as a JSON list."""
    try:
        text = _encode(values)
    except TypeError:  # something that JSON does not have
        text = ""
    if not text or _TAGGED in text:
        text = _encode([_plain(value) for value in values])
    return text.encode()


def load_values(data: bytes) -> list[ScopeValue]:
    """What `dump_values` made `data` of.

    Raises:
        ValueError: it made it of nothing.
    """
    text = data.decode()
    loaded = json.loads(text)
    if not isinstance(loaded, list):
        raise ValueError("no list of values")
    if _TAGGED not in text:
        return loaded
    return [_restored(item) for item in loaded]


def _plain(value: object) -> object:
    match value:
        case dict():
            items = {key: _plain(item) for key, item in value.items()}
            return {_TAG: "map", "items": list(items.items())} if _TAG in items else items
        case list() | tuple():
            return [_plain(item) for item in value]
        case bytes():
            return {_TAG: "bytes", "base64": b64encode(value).decode()}
        case Text(text):
            return {_TAG: "text", "text": text}
        case Image(media_type, data):
            return {_TAG: "image", "type": media_type, "base64": b64encode(data).decode()}
        case Opaque(tag):
            return {_TAG: "opaque", "tag": tag.hex()}
        case _ if value is PENDING:
            return {_TAG: "pending"}
    return value


def _restored(item: object) -> ScopeValue:
    match item:
        case {"": "map", "items": list(pairs)}:
            return cast("ScopeValue", {key: _restored(part) for key, part in pairs})
        case {"": "bytes", "base64": str(text)}:
            return b64decode(text)
        case {"": "text", "text": str(text)}:
            return Text(text)
        case {"": "image", "type": str(media_type), "base64": str(text)}:
            return Image(media_type, b64decode(text))
        case {"": "opaque", "tag": str(tag)}:
            return Opaque(bytes.fromhex(tag))
        case {"": "pending"}:
            return PENDING
        case {"": tag}:
            raise ValueError(f"no kind of value is called {tag!r}")
        case dict():
            return cast("ScopeValue", {key: _restored(part) for key, part in item.items()})
        case list():
            return cast("ScopeValue", [_restored(part) for part in item])
    return cast("ScopeValue", item)
