"""Between the data of cases and the messages of the contract."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import NULL_VALUE

from plannerd_protos.planner.v1 import agent_pb2, decision_pb2, planner_pb2, step_pb2, value_pb2

PENDING: Final = {"$pending": True}
"""How a case writes an output that has not arrived."""

# PropList.txt of Unicode, White_Space.
_NOT_BLANK: Final = re.compile("[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_BELIEFS: Final = {True: agent_pb2.BELIEF_TRUE, False: agent_pb2.BELIEF_FALSE, "failed": agent_pb2.BELIEF_FAILED}


# --- values


def value(written: Any) -> value_pb2.Value:
    """The Value that a case writes as plain data or as a map with one key that starts with `$`."""
    match written:
        case None:
            return value_pb2.Value(null_value=NULL_VALUE)
        case bool():
            return value_pb2.Value(bool_value=written)
        case int():
            return value_pb2.Value(int_value=written)
        case float():
            return value_pb2.Value(double_value=written)
        case str():
            return value_pb2.Value(string_value=written)
        case list():
            return value_pb2.Value(list_value=value_pb2.ListValue(values=[value(item) for item in written]))
        case dict():
            key = next(iter(written), "")
            if len(written) == 1 and isinstance(key, str) and key.startswith("$"):
                return _tagged(key, written[key])
            return _map(written)
    raise ValueError(f"no value: {written!r}")


def _map(entries: Mapping[str, Any]) -> value_pb2.Value:
    return value_pb2.Value(map_value=value_pb2.MapValue(entries={key: value(item) for key, item in entries.items()}))


def _tagged(tag: str, written: Any) -> value_pb2.Value:
    match tag:
        case "$int":
            return value_pb2.Value(int_value=int(written))
        case "$double":
            return value_pb2.Value(double_value=float(written))
        case "$bytes":
            return value_pb2.Value(bytes_value=base64.b64decode(written, validate=True))
        case "$text":
            return value_pb2.Value(content=value_pb2.Content(text=value_pb2.TextContent(text=written)))
        case "$image":
            data = base64.b64decode(written["data"], validate=True)
            image = value_pb2.ImageContent(media_type=written["media_type"], data=data)
            return value_pb2.Value(content=value_pb2.Content(image=image))
        case "$opaque":
            return value_pb2.Value(opaque=opaque(written))
        case "$pending":
            return value_pb2.Value(pending=value_pb2.Pending())
        case "$map":
            return _map(written)
        case "$unset":
            return value_pb2.Value()
    raise ValueError(f"no kind of value: {tag}")


def opaque(tag: str) -> value_pb2.Opaque:
    """The Opaque that a case writes as a text."""
    return value_pb2.Opaque(tag=tag.encode())


def plain(message: value_pb2.Value) -> Any:
    """A Value as a case would write it."""
    match message.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value":
            return message.bool_value
        case "int_value":
            return message.int_value
        case "double_value":
            whole = message.double_value.is_integer()
            return {"$double": message.double_value} if whole else message.double_value
        case "string_value":
            return message.string_value
        case "bytes_value":
            return {"$bytes": base64.b64encode(message.bytes_value).decode()}
        case "list_value":
            return [plain(item) for item in message.list_value.values]
        case "map_value":
            return {key: plain(message.map_value.entries[key]) for key in sorted(message.map_value.entries)}
        case "content" if message.content.WhichOneof("kind") == "text":
            return {"$text": message.content.text.text}
        case "content":
            image = message.content.image
            return {"$image": {"media_type": image.media_type, "data": base64.b64encode(image.data).decode()}}
        case "opaque":
            return {"$opaque": message.opaque.tag.decode("utf-8", "replace")}
        case "pending":
            return dict(PENDING)
    return {"$unset": True}


def is_tagged(written: Any, tag: str) -> bool:
    """Whether a case writes a value of this kind."""
    return isinstance(written, dict) and len(written) == 1 and tag in written


def can_be_opaque(written: Any) -> bool:
    """Whether a client may send a tag in place of this value: present, and well-formed as far as one can see."""
    if written is None or (isinstance(written, str) and _NOT_BLANK.search(written) is None):
        return False
    return not any(is_tagged(written, tag) for tag in ("$opaque", "$pending", "$text", "$unset"))


def tag_of(written: Any) -> bytes:
    """A tag for a value: equal for equal values, numbers by value and maps without order."""
    canonical = json.dumps(_by_value(plain(value(written))), sort_keys=True)
    return hashlib.blake2b(canonical.encode(), digest_size=16).digest()


def _by_value(written: Any) -> Any:
    match written:
        case {"$double": float(number)} if math.isfinite(number) and number.is_integer():
            return int(number)
        case dict():
            return {key: _by_value(item) for key, item in written.items()}
        case list():
            return [_by_value(item) for item in written]
    return written


# --- requests


def init_request(
    planner: Mapping[str, Any],
    planner_agent: Mapping[str, Any],
    agents: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> planner_pb2.InitRequest:
    """An InitRequest without an id, from the parts of a case."""
    return json_format.ParseDict(
        {
            **planner,
            "planner_agent": _agent(planner_agent),
            "agents": [_agent(agent) for agent in agents],
            **options,
        },
        planner_pb2.InitRequest(),
    )


def _agent(written: Mapping[str, Any]) -> dict[str, Any]:
    agent = dict(written)
    if "arguments" in agent:
        agent["arguments"] = [{"name": item} if isinstance(item, str) else item for item in agent["arguments"]]
    if "output_type" in agent:
        agent["output_type"] = f"OUTPUT_TYPE_{agent['output_type']}"
    return agent


def planner_map(written: Mapping[str, Any]) -> value_pb2.MapValue:
    """A planner map, from plain data."""
    return value_pb2.MapValue(entries={key: value(item) for key, item in written.items()})


def beliefs(written: Mapping[str, Any], names: Sequence[str]) -> dict[str, agent_pb2.Belief.ValueType]:
    """The beliefs to send: those of `names` that the client has an outcome for."""
    return {name: _BELIEFS[written[name]] for name in names if written.get(name) is not None}


# --- replies


def name_of(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum's value, without its prefix."""
    name: str = enum.Name(number)
    return name.removeprefix(f"{prefix}_")


def question(message: decision_pb2.Question) -> dict[str, Any]:
    """A question as a case would write it in full."""
    written: dict[str, Any] = {"name": message.name, "text": message.text}
    match message.WhichOneof("kind"):
        case "yes_no":
            kind = message.yes_no
            written["yes_no"] = {
                "yes_when": kind.yes_when if kind.HasField("yes_when") else None,
                "no_when": kind.no_when if kind.HasField("no_when") else None,
            }
        case "choice":
            written["choice"] = [
                {"name": option.name, "description": option.description if option.HasField("description") else None}
                for option in message.choice.options
            ]
        case "scale":
            written["scale"] = list(message.scale.levels)
    return written


def assessment(message: step_pb2.AgentAssessment) -> dict[str, Any]:
    """What an explanation says of an agent, as a case would write it in full."""
    return {
        "status": name_of(step_pb2.AgentStatus, message.status, "AGENT_STATUS"),
        "score": message.score if message.HasField("score") else None,
        "threshold": message.threshold if message.HasField("threshold") else None,
        "called": message.called,
        "missing_keys": list(message.missing_keys),
    }


def goal(message: step_pb2.GoalAssessment) -> dict[str, Any]:
    """What an explanation says of the goal, as a case would write it in full."""
    return {
        "probability": message.probability if message.HasField("probability") else None,
        "threshold": message.threshold,
        "result_missing": message.result_missing,
    }


# ---- streams

STREAMED: Final = {
    "Init": "init",
    "FirstAction": "first_action",
    "NextAction": "next_action",
    "ExecutionState": "execution_state",
    "End": "end",
}
"""Where the messages of each method are inside those of the stream."""


def run_request(number: int, method: str, request: Message) -> planner_pb2.RunRequest:
    """A request of a stream."""
    made = planner_pb2.RunRequest(id=number)
    getattr(made, STREAMED[method]).CopyFrom(request)
    return made


def inside(raw: bytes, field: int) -> bytes:
    """The bytes of a field of an encoded message, which has a length, as they were sent."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        size, place = _varint(raw, place)
        if tag & 7 == 0:  # a number, which is all there was
            continue
        if tag >> 3 == field:
            return raw[place : place + size]
        place += size
    raise ValueError(f"there is no field {field}")


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    number, shift = 0, 0
    while raw[place] & 0x80:
        number |= (raw[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return number | raw[place] << shift, place + 1
