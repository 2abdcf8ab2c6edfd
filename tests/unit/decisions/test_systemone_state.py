"""The input of a decision as a System One state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typesafe_sdk import Image as Asset

from plannerd.decisions.answers import Truncation
from plannerd.decisions.questions import Field
from plannerd.decisions.systemone.state import Form, State, make_state
from plannerd.errors import PlannerdError, Reason
from plannerd.values import Image, Text, Value

PHOTO = Image("image/png", b"\x89PNG\r\n\x1a\nphoto")
BIG = 1 << 20

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.builds(Text, st.text())
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
FIELDS = st.lists(
    st.builds(Field, st.text(min_size=1, max_size=8), VALUES, st.integers(0, 2)),
    min_size=1,
    max_size=6,
    unique_by=lambda field: field.name,
)


def content(*fields: Field, form: Form = "json", most: int = BIG) -> Any:
    return make_state(fields, form, most, "m").content


def size(state: Any) -> int:
    return len(json.dumps(state, ensure_ascii=False, separators=(",", ":"), default=str).encode())


def made(fields: list[Field], form: Form, most: int) -> State | PlannerdError:
    try:
        return make_state(fields, form, most, "m")
    except PlannerdError as error:
        return error


def test_an_object_in_the_order_of_the_fields() -> None:
    """The state has each value under its name, in order, and the keys inside maps sorted."""
    state = content(
        Field("request", "twice"),
        Field("order", {"lines": [{"sku": "A-7", "n": 2}, []], "id": 2**62}),
        Field("candidateAnswer", None),
        Field("note", Text("see photo")),
        Field("ratio", 0.5),
    )
    assert json.dumps(state) == (
        '{"request": "twice", "order": {"id": 4611686018427387904, "lines": [{"n": 2, "sku": "A-7"}, []]}, '
        '"candidateAnswer": null, "note": "see photo", "ratio": 0.5}'
    )


def test_plain_text() -> None:
    """In the form `text` the state is the text that models in this server read, too."""
    assert (
        content(Field("request", "twice"), Field("order", {"id": 7}), form="text") == "request: twice\norder:\n  id: 7"
    )


def test_images_are_assets() -> None:
    """An image stands where it was, as an asset with its bytes; in a text it comes after it."""
    state = content(Field("photo", PHOTO), Field("more", {"a": [PHOTO, "x"]}))
    assert isinstance(state["photo"], Asset)
    assert state["photo"].data == PHOTO.data
    assert state["more"] == {"a": [state["photo"], "x"]}
    text = content(Field("photo", PHOTO), Field("note", "x"), form="text")
    assert text[0] == "photo: [image/png]\nnote: x"
    assert [asset.data for asset in text[1:]] == [PHOTO.data]


def test_text_can_not_pass_for_an_image() -> None:
    """A reference to an image can't be known beforehand, so no text of a client can be one."""
    first, second = (str(content(Field("photo", PHOTO))["photo"]) for _ in range(2))
    assert first != second


@pytest.mark.parametrize("form", ["json", "text"])
@given(fields=FIELDS, most=st.integers(0, 600))
def test_cut_to_fit(form: Form, fields: list[Field], most: int) -> None:
    """A state that is too long is cut to what is allowed, all names are still there, and it says by how much."""
    whole = make_state(fields, form, BIG, "m")
    assert whole.truncation is None
    state = made(fields, form, most)
    if isinstance(state, PlannerdError):
        assert state.reason is Reason.DECISION_MODEL_LIMIT
        assert (state.metadata["limit"], state.metadata["allowed"]) == ("input_bytes", str(most))
        names: Any = {field.name: "" for field in fields} if form == "json" else "\n".join(f.name + ":" for f in fields)
        assert size(names) > most
        return
    assert size(state.content) <= most
    if size(whole.content) <= most:
        assert state == whole
        return
    assert state.truncation is not None
    assert state.truncation.used_chars < state.truncation.original_chars
    if form == "json":
        assert list(state.content) == [field.name for field in fields]


def test_what_is_cut_and_what_is_not() -> None:
    """Values that fit stay as they are; a value that does not becomes the beginning of its text."""
    fields = [
        Field("id", 7),
        Field("history", [{"said": "word " * 500}, {"said": "more " * 500}]),
        Field("candidateAnswer", "the answer " * 20, rank=2),
    ]
    state = make_state(fields, "json", 1500, "m")
    assert state.content["id"] == 7
    assert state.content["candidateAnswer"] == "the answer " * 20
    assert state.content["history"].startswith("-\n  said: word word")
    assert state.content["history"].endswith("...")
    assert 1200 < size(state.content) <= 1500
    assert state.truncation == Truncation(size(content(*fields)), size(state.content))


def test_images_are_never_cut() -> None:
    """A value that is cut keeps its images, behind its text."""
    value: Value = {"a": PHOTO, "b": "word " * 500}
    state = content(Field("report", value), most=600)
    text, image = state["report"]
    assert text.endswith("...")
    assert image.data == PHOTO.data
    [text, image] = content(Field("report", value), form="text", most=600)
    assert text.endswith("...")
    assert image.data == PHOTO.data


def test_the_limit_counts_bytes() -> None:
    """What counts are bytes as they travel: characters outside ASCII take more, and so do escapes."""
    for text in ("ä" * 1000, "\x01" * 1000, '"' * 1000):
        state = make_state([Field("request", text)], "json", 700, "m")
        assert 550 < size(state.content) <= 700


def test_names_alone_are_too_long() -> None:
    """If the names alone take more than the model takes, nothing is sent, and the error says so."""
    with pytest.raises(PlannerdError, match="names in it alone") as caught:
        content(Field("n" * 100, "x"), most=50)
    assert caught.value.metadata["model"] == "m"
