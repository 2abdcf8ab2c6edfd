"""Values as JSON without loss, and a reader that accepts nothing it was not asked for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, TypeVar

from plannerd_client._values import MAX_NESTING, Image, Plain, Text
from plannerd_client.errors import InvalidSnapshot

T = TypeVar("T")


def to_base64(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def value_to_json(value: Plain) -> Any:
    """Something that `json` writes and `value_from_json` turns back into `value`.

    Bytes and contents become a map of one key that starts with `$`; a map that has such a key is wrapped itself.
    """
    match value:
        case bytes():
            return {"$bytes": to_base64(value)}
        case Text():
            return {"$text": value.text}
        case Image():
            return {"$image": {"media_type": value.media_type, "data": to_base64(value.data)}}
        case list():
            return [value_to_json(item) for item in value]
        case dict():
            entries = {key: value_to_json(item) for key, item in value.items()}
            return {"$map": entries} if any(key.startswith("$") for key in entries) else entries
        case _:
            return value


def value_from_json(data: Any, path: str, depth: int = 0) -> Plain:
    """The value that `value_to_json` wrote.

    Raises:
        InvalidSnapshot: `data` is nothing that it writes.
    """
    if depth > MAX_NESTING:
        raise InvalidSnapshot(f"{path}: nested more than {MAX_NESTING} deep")
    if isinstance(data, list):
        return [value_from_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(data)]
    if not isinstance(data, dict):
        if data is None or isinstance(data, str | bool | int | float):
            return data
        raise InvalidSnapshot(f"{path}: a {type(data).__name__} is no value")
    if not any(key.startswith("$") for key in data):
        return _entries(data, path, depth)
    reader = Reader(data, path)
    value: Plain
    if "$bytes" in data:
        value = reader.blob("$bytes")
    elif "$text" in data:
        value = Text(reader.text("$text"))
    elif "$image" in data:
        image = reader.object("$image")
        value = Image(image.text("media_type"), image.blob("data"))
        image.end()
    else:
        value = _entries(reader.take("$map", dict), path, depth)
    reader.end()
    return value


def _entries(data: dict[str, Any], path: str, depth: int) -> Plain:
    return {key: value_from_json(item, f"{path}.{key}", depth + 1) for key, item in data.items()}


class Reader:
    """Takes the fields of a JSON object one by one, checks their types, and at the `end` that none is left.

    Args:
        data: what should be an object.
        path: how errors call it.
    """

    def __init__(self, data: Any, path: str) -> None:
        if not isinstance(data, dict):
            raise InvalidSnapshot(f"{path}: must be an object, not {type(data).__name__}")
        self._data = dict(data)
        self.path = path

    def take(self, name: str, kind: type[T]) -> T:
        """The field `name`, of exactly this type: true is no number."""
        if name not in self._data:
            raise InvalidSnapshot(f"{self.path}: {name!r} is missing")
        value = self._data.pop(name)
        if type(value) is not kind:
            raise InvalidSnapshot(f"{self.path}.{name}: must be {kind.__name__}, not {type(value).__name__}")
        return value

    def text(self, name: str) -> str:
        """A string."""
        return self.take(name, str)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self.take(name, list)
        for value in values:
            if not isinstance(value, str):
                raise InvalidSnapshot(f"{self.path}.{name}: must hold strings only")
        return tuple(values)

    def blob(self, name: str) -> bytes:
        """Bytes, from base64."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except binascii.Error as error:
            raise InvalidSnapshot(f"{self.path}.{name}: {error}") from None

    def number_or_none(self, name: str) -> float | None:
        """A number, or null."""
        value = self.anything(name)
        if value is None or type(value) in {int, float}:
            return value  # type: ignore[no-any-return]
        raise InvalidSnapshot(f"{self.path}.{name}: must be a number or null")

    def anything(self, name: str) -> Any:
        """A field of any type."""
        if name not in self._data:
            raise InvalidSnapshot(f"{self.path}: {name!r} is missing")
        return self._data.pop(name)

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return name in self._data

    def object(self, name: str) -> Reader:
        """A reader of the object in a field."""
        return Reader(self.anything(name), f"{self.path}.{name}")

    def items(self, name: str) -> Iterable[tuple[str, Any]]:
        """The fields of the object in a field."""
        return self.take(name, dict).items()

    def objects(self, name: str) -> list[Reader]:
        """Readers of the objects of the list in a field."""
        return [Reader(item, f"{self.path}.{name}[{index}]") for index, item in enumerate(self.take(name, list))]

    def end(self) -> None:
        """Nothing else may be there."""
        if self._data:
            raise InvalidSnapshot(f"{self.path}: unknown fields {sorted(self._data)}")
