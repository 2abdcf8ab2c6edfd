"""Recordings: the requests of a run and their answers, as JSON, one exchange a line.

The first line is `{"plannerd_recording": 1}`. Each further line is an object with `method` (`Init`, `FirstAction`
or `NextAction`), `request` and `reply`, the messages of the contract in the JSON form of protobuf.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import Message

from plannerd_protos.planner.v1 import planner_pb2

VERSION: Final = 1
_HEADER: Final = "plannerd_recording"
_KEYS: Final = {"method", "request", "reply"}
_MESSAGES: Final[Mapping[str, tuple[type[Message], type[Message]]]] = {
    "Init": (planner_pb2.InitRequest, planner_pb2.InitResponse),
    "FirstAction": (planner_pb2.FirstActionRequest, planner_pb2.FirstActionResponse),
    "NextAction": (planner_pb2.NextActionRequest, planner_pb2.NextActionResponse),
}

Change: TypeAlias = tuple[Sequence[str], Any]
"""A change of an Init: the path of a field, and its value in JSON."""


class RecordingError(Exception):
    """A file is no recording, or a change does not fit it. Its text is for the operator."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answered request.

    Attributes:
        line: where it stands in the file.
        method: which request it is.
        request: what was asked.
        reply: what was answered.
    """

    line: int
    method: str
    request: Any
    reply: Any


Recording: TypeAlias = tuple[Exchange, ...]


def read_recording(file: Path, changes: Sequence[Change] = ()) -> Recording:
    """The exchanges of a recording, in order.

    Args:
        file: the recording.
        changes: what is put into every Init before it is understood.

    Raises:
        RecordingError: the file can't be read or is no recording, with the line; or a change does not fit.
    """
    try:
        # Only "\n" ends a line: JSON has other characters in texts that Python takes for ends of lines. Editors of
        # some systems write a byte order mark, which "utf-8-sig" leaves out.
        lines = file.read_text("utf-8-sig").split("\n")
    except OSError as error:
        raise RecordingError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecordingError(f"{file}: this is not UTF-8 text") from None
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines, start=1):
        where = f"{file}, line {number}"
        written = _object(line, where) if line.strip() else {}
        if _HEADER in written:
            if written != {_HEADER: VERSION}:
                raise RecordingError(f"{where}: version {written[_HEADER]!r} of recordings is not known here")
        elif written:
            if not exchanges and not _started(lines):
                raise RecordingError(
                    f'{where}: this is no recording: its first line must be {{"{_HEADER}": {VERSION}}}'
                )
            exchanges.append(_exchange(number, written, where, changes))
    if not exchanges:
        raise RecordingError(f"{file}: there is nothing in this recording")
    return tuple(exchanges)


def _started(lines: Sequence[str]) -> bool:
    return _HEADER in lines[0]


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        written = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{where}: this is not JSON: {error}") from None
    if not isinstance(written, dict):
        raise RecordingError(f"{where}: each line must be a JSON object")
    return written


def _exchange(number: int, written: dict[str, Any], where: str, changes: Sequence[Change]) -> Exchange:
    if written.keys() != _KEYS:
        raise RecordingError(f"{where}: a line has exactly {', '.join(sorted(_KEYS))}")
    method = written["method"]
    if not isinstance(method, str) or method not in _MESSAGES:
        raise RecordingError(f"{where}: method must be one of {', '.join(_MESSAGES)}")
    request, reply = _MESSAGES[method]
    if method == "Init":
        for path, value in changes:
            _put(written["request"], path, value)
    return Exchange(
        number,
        method,
        _message(request, written["request"], f"{where}: request"),
        _message(reply, written["reply"], f"{where}: reply"),
    )


def _message(kind: type[Message], written: object, where: str) -> Message:
    message = kind()
    if not isinstance(written, dict):
        raise RecordingError(f"{where}: must be a JSON object")
    try:
        json_format.ParseDict(written, message, max_recursion_depth=200)
    except (json_format.ParseError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RecordingError(f"{where}: {error}") from None
    return message


def _put(target: Any, path: Sequence[str], value: Any) -> None:
    """Put `value` at `path`, whose parts are names of fields and positions in lists."""
    whole = ".".join(path)
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(target, list):
            if not part.isdigit() or int(part) >= len(target):
                raise RecordingError(f"--set {whole}: '{part}' must be a position from 0 to {len(target) - 1}")
            key: Any = int(part)
        elif isinstance(target, dict):
            key = part
            if not last and part not in target:
                raise RecordingError(f"--set {whole}: the recording's Init has no '{part}' there")
        else:
            raise RecordingError(f"--set {whole}: there is nothing below '{path[depth - 1]}'")
        if last:
            target[key] = value
        else:
            target = target[key]
