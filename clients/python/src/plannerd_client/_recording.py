"""Recordings of runs, for `plannerd replay`: the messages of each answered request, as JSON, one a line."""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message

HEADER: Final = json.dumps({"plannerd_recording": 1}) + "\n"
RECORDED: Final = frozenset({"Init", "FirstAction", "NextAction"})
"""The requests that make a run."""


def recorded(method: str, request: Message, reply: Message) -> str:
    """The line of an answered request."""
    line = {"method": method, "request": _json(request), "reply": _json(reply)}
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"


def _json(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)
