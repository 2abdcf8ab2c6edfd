"""The input of a decision as a System One state, cut to the bytes that a model takes.

A state is a JSON object with a value under the name of each field, or one plain text. Images are assets:
where one stood is a reference to it, and the SDK sends its bytes beside the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from typesafe_sdk import Image as Asset

from plannerd.decisions.answers import Truncation
from plannerd.decisions.questions import Field
from plannerd.decisions.text import InputText
from plannerd.errors import PlannerdError, Reason
from plannerd.values import Image, Text, Value

Form: TypeAlias = Literal["json", "text"]

_CUTS: Final = 8  # more cuts than this are never needed, but for inputs that are all names
_MARGIN: Final = 0.97  # the kept part may take more bytes per character than the whole


@dataclass(frozen=True, slots=True)
class State:
    """A state as the SDK takes it; `truncation` says by how much it was cut."""

    content: Any
    truncation: Truncation | None = None


def make_state(fields: Sequence[Field], form: Form, max_bytes: int, model: str) -> State:
    """The state of an input, in at most `max_bytes` bytes of JSON, not counting images.

    What is too long is cut as `InputText.cut` says: no name is dropped, and each value keeps something. In the form
    `json`, a value that must be cut becomes the beginning of its text.

    Args:
        fields: the input, in order.
        form: a JSON object, or plain text.
        max_bytes: of the state.
        model: the configured name, for errors.

    Raises:
        PlannerdError: DECISION_MODEL_LIMIT if the names alone take more.
    """
    whole = _Whole(fields, form)
    content = whole.content(None)
    encoded = _encoded(content)
    size = len(encoded)
    if size <= max_bytes:
        return State(content)
    original = len(encoded.decode())
    budget = whole.text.size
    for left in range(_CUTS, -1, -1):
        budget = int(budget * max_bytes / size * _MARGIN) if left else 0
        content = whole.content(budget)
        encoded = _encoded(content)
        size = len(encoded)
        if size <= max_bytes:
            return State(content, Truncation(original, len(encoded.decode())))
    raise PlannerdError(
        Reason.DECISION_MODEL_LIMIT,
        f"decision model '{model}' takes at most {max_bytes} bytes of input, and the names in it alone have more",
        metadata={"limit": "input_bytes", "allowed": str(max_bytes), "requested": str(size), "model": model},
    )


class _Whole:
    """An input in one of the forms."""

    def __init__(self, fields: Sequence[Field], form: Form) -> None:
        self._fields = fields
        self._form = form
        self._assets = {id(image): Asset(image.data) for field in fields for image in _images(field.value)}
        self.text = InputText(fields)

    def content(self, budget: int | None) -> Any:
        """The state with `budget` characters of text; None: uncut."""
        if self._form == "text":
            text = self.text.cut(self.text.size if budget is None else budget).text
            return self._with_images(text, self._fields)
        cuts: Sequence[str | None] = [None] * len(self._fields) if budget is None else self.text.cut_values(budget)
        return {
            field.name: self._plain(field.value) if cut is None else self._with_images(cut, [field])
            for field, cut in zip(self._fields, cuts, strict=True)
        }

    def _with_images(self, text: str, fields: Sequence[Field]) -> Any:
        """`text`, and after it what text can't hold."""
        assets = [self._assets[id(image)] for field in fields for image in _images(field.value)]
        return [text, *assets] if assets else text

    def _plain(self, value: Value) -> Any:
        if isinstance(value, Text):
            return value.text
        if isinstance(value, Image):
            return self._assets[id(value)]
        if isinstance(value, dict):
            return {key: self._plain(value[key]) for key in sorted(value)}
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        return value


def _images(value: Value) -> Iterator[Image]:
    """The images in a value, in the order in which it is rendered."""
    if isinstance(value, Image):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _images(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _images(item)


def _encoded(content: Any) -> bytes:
    """The state as it travels; `str` of an asset is its reference."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=str).encode()
