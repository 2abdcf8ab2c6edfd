"""Reads data from outside strictly: unknown, missing and wrongly typed fields are refused by path."""

from __future__ import annotations

from collections.abc import Mapping

from plannerd.errors import PlannerdError, Reason, invalid


class Fields:
    """One map of an execution state, read field by field; `done` refuses what was not read.

    Every method raises INVALID_EXECUTION_STATE with the path of the field.
    """

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, Mapping):
            raise self._error(path, "must be a map")
        self._data = data
        self._path = path
        self._read: set[str] = set()

    @staticmethod
    def _error(path: str, problem: str) -> PlannerdError:
        return invalid(path, problem, reason=Reason.INVALID_EXECUTION_STATE)

    def error(self, name: str, problem: str) -> PlannerdError:
        """An error about the field `name`."""
        return self._error(f"{self._path}.{name}", problem)

    def has(self, name: str) -> bool:
        """Whether the field is there at all."""
        return name in self._data

    def get(self, name: str) -> object:
        """The field, of whatever type; it must be there."""
        self._read.add(name)
        if name not in self._data:
            raise self.error(name, "is missing")
        value: object = self._data[name]
        return value

    def integer(self, name: str, minimum: int = 0, maximum: int = 2**53) -> int:
        """A whole number within bounds."""
        value = self.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a client whose language has one number type
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, "must be a whole number")
        if not minimum <= value <= maximum:
            raise self.error(name, f"must be from {minimum} to {maximum}, but is {value}")
        return value

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self.get(name)
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def text(self, name: str) -> str:
        """A text."""
        value = self.get(name)
        if not isinstance(value, str):
            raise self.error(name, "must be a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None where the field is null."""
        return None if self.get(name) is None else self.text(name)

    def items(self, name: str) -> list[object]:
        """A list."""
        value = self.get(name)
        if not isinstance(value, list):
            raise self.error(name, "must be a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, none of them twice."""
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise self.error(name, "must be a list of texts")
        if len(set(values)) != len(values):
            raise self.error(name, "must not name anything twice")
        return tuple(str(value) for value in values)

    def fields(self, name: str) -> Fields:
        """A map, to be read in turn."""
        return Fields(self.get(name), f"{self._path}.{name}")

    def mapping(self, name: str) -> Mapping[str, object]:
        """A map of whatever."""
        value = self.get(name)
        if not isinstance(value, Mapping):
            raise self.error(name, "must be a map")
        return value

    def done(self) -> None:
        """Refuse every field that was not read."""
        unknown = sorted(str(name) for name in self._data if name not in self._read)
        if unknown:
            raise self.error(unknown[0], "is not a field of this format")
