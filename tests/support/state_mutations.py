"""Execution states as nobody should send them: cut, extended, retyped, crossed, hostile."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

Path: TypeAlias = tuple[str | int, ...]

OPEN_MAPS: Final = ("marks", "issued", "finished", "progress")
"""The maps of a state whose keys are data."""

DEEP: Final = json.loads("[" * 200 + "]" * 200)

HOSTILE: Final[list[Any]] = [
    None, True, False, 0, 1, 2, 3, -1, 7, 10**9, 2**31, 2**48, 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 10**400,
    0.0, 1.0, 2.0, 0.5, -0.0, 1e300, float("nan"), float("inf"), float("-inf"),
    "", " ", "start", "await", "suspend", "done", "giveUp", "noOp", "outstanding", "pending", "suspended", "OTHER",
    "lookup", "expert", "fetcher", "branch1.1.0", "branch1.1.1", "branch1.9.0", "branch9.1.0", "a.b.1.0", "..", "1",
    "\ud800", "\udfff", "\u0000", "x" * 5000, "state", "planner",
    [], [[]], [None], ["lookup"], ["lookup", "lookup"], ["branch1.1.0"], [[1, 1, 1]], [[1, 1, 99]], [[2, 1, 1]],
    [[1, 2**52, 1]], [["a", {"call": "branch1.1.0"}]], [["a", None]], ["page"], ["x", "y"], DEEP,
    {}, {"": 0}, {"x": {}}, {"lookup": "branch1.1.0"}, {"branch1": [[1, 3, 3]]}, {"kind": "noOp"},
    {"kind": "done", "result": None}, {"kind": "start", "calls": ["branch1.1.0"]}, {"kind": "start", "calls": []},
    {"kind": "await", "keys": ["page"], "calls": ["branch1.1.0"]}, {"kind": "await", "keys": [], "calls": []},
    {"kind": "suspend", "calls": ["branch1.1.0"]}, {"kind": "suspend", "calls": []},
    {"kind": "giveUp", "reason": "OTHER", "message": "m"}, {"kind": "giveUp", "reason": "?", "message": "m"},
    {"kind": "done", "result": {"value": 10**30}}, {"kind": "done", "result": {"value": DEEP}},
    {"kind": "done", "result": {"call": "branch1.1.0"}}, {"kind": "done", "result": {"key": "x"}},
    {"kind": "done", "result": {"outputs": [["a", None], ["a", {"key": "\ud800"}]]}},
    {"action": {"kind": "done", "result": None}, "outcome": "OTHER", "summary": "s"},
    {"action": {"kind": "done", "result": {"value": DEEP}}, "outcome": "GOAL_REACHED", "summary": "s"},
    {"action": {"kind": "noOp"}, "outcome": "OTHER", "summary": "s"},
]  # fmt: skip


def paths(data: Any, here: Path = ()) -> Iterator[Path]:
    """The path of every part of a document, the whole included."""
    yield here
    if isinstance(data, dict):
        for key in data:
            yield from paths(data[key], (*here, key))
    elif isinstance(data, list):
        for index in range(len(data)):
            yield from paths(data[index], (*here, index))


def part(data: Any, path: Path) -> Any:
    """What stands at a path."""
    for key in path:
        data = data[key]
    return data


def replaced(data: Any, path: Path, value: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    made = copy.deepcopy(data)
    part(made, path[:-1])[path[-1]] = value
    return made


def without(data: Any, path: Path) -> Any:
    """A copy without what stands at a path."""
    made = copy.deepcopy(data)
    del part(made, path[:-1])[path[-1]]
    return made


def in_open_map(path: Path) -> bool:
    """Whether a path is that of an entry of a map whose keys are data, or below."""
    return any(key in OPEN_MAPS for key in path[:-1])


def encoded(data: Any) -> bytes:
    """A document as JSON, with escapes for what is no Unicode."""
    return json.dumps(data, separators=(",", ":")).encode()


@st.composite
def mutated(draw: st.DrawFn, state: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Any:
    """A document after one to three changes: parts deleted, replaced, moved, doubled, or taken from other documents."""
    data: Any = copy.deepcopy(dict(state))
    for _ in range(draw(st.integers(1, 3))):
        places = [path for path in paths(data) if path]
        if not places:
            break
        path = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "delete", "other", "move", "extend", "double"])):
            case "replace":
                data = replaced(data, path, draw(st.sampled_from(HOSTILE)))
            case "delete":
                data = without(data, path)
            case "other":
                other = draw(st.sampled_from(others))
                key = path[0]
                if key in other:
                    data = replaced(data, (key,), copy.deepcopy(other[str(key)]))
            case "move":
                data = replaced(data, path, copy.deepcopy(part(data, draw(st.sampled_from(places)))))
            case "extend" if isinstance(part(data, path), dict):
                data = replaced(data, (*path, draw(st.sampled_from(["unknown", "", "branch2", "kind", "ticket"]))), 1)
            case "double" if isinstance(part(data, path), list) and part(data, path):
                data = replaced(data, path, part(data, path) * 2)
            case _:
                pass
    return data


@st.composite
def broken_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes of a state, damaged: cut, extended, flipped, doubled keys, other encodings."""
    text = data.decode()
    where = draw(st.integers(0, len(data) - 1))
    match draw(st.sampled_from(["cut", "head", "extend", "flip", "insert", "encoding", "keys", "number", "garbage"])):
        case "cut":
            return data[:where]
        case "head":
            return data[where + 1 :]
        case "extend":
            return data + draw(st.sampled_from([b"{}", b",", b"\x00", b"null", data]))
        case "flip":
            return data[:where] + bytes([data[where] ^ draw(st.integers(1, 255))]) + data[where + 1 :]
        case "insert":
            return data[:where] + draw(st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\x00", b"\\ud800"])) + data[where:]
        case "encoding":
            return text.encode(draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])))
        case "keys":
            return text.replace('{"action"', '{"action":null,"action"', 1).encode()
        case "number":
            bad = draw(
                st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "0x1", "01", "[" * 50_000])
            )
            return text.replace(":0", f":{bad}").replace(":1", f":{bad}").encode()
        case _:
            return draw(st.binary(max_size=200))
