"""A record outside the process: the fields under which a shared store keeps it.

What continues an invocation is its execution state, in the format that clients get. Beside it stand what a
client would send again (configuration, options, scope) and what makes a repeat possible (the last reply).

| field | what it holds |
|---|---|
| `p` | the position, `epoch.revision.branch`, for people |
| `c` | the configuration, an `InitRequest` of planner, planner agent and agents |
| `m` | the rest, as JSON: format, id, options, base and digest of the last request, warnings |
| `d` | the data of the execution state |
| `r` | the last reply, as it was sent |
| `o` | outputs that the planner keeps for a later move, as a JSON list; only if there are any |
| `s:KEY` | of one scope key: value, size and mark, as a JSON list |
| `w` | the identity that it belongs to |
| `ended` | only of a tombstone: how it was ended, as JSON |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Final, TypeAlias, cast

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.explanation import ExplainLevel
from plannerd.invocations.position import Position
from plannerd.invocations.record import Definition, Ending, EndOutcome, InvocationOptions, Record, Reply, Tombstone
from plannerd.invocations.scope import Scope
from plannerd.invocations.state_format import ExecutionState, dump_state, restore
from plannerd.invocations.stores.scope_values import dump_values, load_values
from plannerd.invocations.summary import status_of
from plannerd.planners.fields import Fields
from plannerd.planners.moves import Warn, WarningCode
from plannerd.values import ScopeValue, Value

FORMAT: Final = 1
"""The version of these fields."""

StoredFields: TypeAlias = dict[bytes, bytes]

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_POSITION: Final = b"p"
_CONFIGURATION: Final = b"c"
_META: Final = b"m"
_STATE: Final = b"d"
_REPLY: Final = b"r"
_OUTPUTS: Final = b"o"
_SCOPE: Final = b"s:"
_ENDED: Final = b"ended"

OWNER: Final = b"w"
"""The field of the identity that an invocation belongs to, which is in the key of a record and not in itself."""


def dump_tombstone(tombstone: Tombstone) -> StoredFields:
    """The fields of an invocation that was ended."""
    ending = tombstone.ending
    if ending is None:
        return {_POSITION: _position_text(tombstone.position), _ENDED: b"{}"}
    written = {field.name: getattr(ending, field.name) for field in fields_of(ending)} | {
        "outcome": ending.outcome.name
    }
    return {_POSITION: _position_text(tombstone.position), _ENDED: _encode(written).encode()}


def load_tombstone(position: bytes, ended: bytes) -> Tombstone:
    """What was stored of an invocation that was ended."""
    given = json.loads(ended)
    ending = Ending(**(given | {"outcome": EndOutcome[given["outcome"]]})) if given else None
    return Tombstone(read_position(position), ending)


def dump_record(record: Record, state: ExecutionState | None = None) -> StoredFields:
    """All fields of `record`, whose state is `state` where that was made already."""
    moving = _moving_fields(record, state or dump_state(record))
    return {_CONFIGURATION: record.definition.source, **moving, **_dump_scope(record.scope, Scope())}


def dump_changes(
    record: Record, before: Record, state: ExecutionState | None = None
) -> tuple[StoredFields, list[bytes]]:
    """What to write, and which fields to remove, to make `record` of what is stored of `before`."""
    if record.definition is not before.definition:
        raise ValueError("another configuration is another record")
    gone = [_SCOPE + key.encode() for key in before.scope.values if key not in record.scope.values]
    moving = _moving_fields(record, state or dump_state(record))
    gone += [field for field in (_REPLY, _OUTPUTS) if field not in moving]
    return {**moving, **_dump_scope(record.scope, before.scope)}, gone


def load(stored: StoredFields, define: Callable[[bytes], Definition]) -> Record | Tombstone:
    """What was stored.

    Args:
        stored: all fields.
        define: compiles a configuration from its bytes.

    Raises:
        PlannerdError: STATE_NEWER, where a newer version of the server wrote it.
        Exception: the fields are damaged.
    """
    position = read_position(stored[_POSITION])
    if _ENDED in stored:
        return load_tombstone(stored[_POSITION], stored[_ENDED])
    meta = Fields(json.loads(stored[_META]), "stored")
    version = meta.integer("format")
    if version > FORMAT:
        raise PlannerdError(
            Reason.STATE_NEWER,
            f"The stored invocation has format {version}; this server knows up to {FORMAT}. Ask a newer replica.",
            metadata={"format_version": str(version), "newest_known": str(FORMAT)},
        )
    meta.get("line")  # for listings; the rest of the record says the same
    began, changed = cast("list[float]", meta.items("times"))
    definition = define(stored[_CONFIGURATION])
    fresh = Record(
        invocation_id=meta.text("id"),
        definition=definition,
        options=_load_options(meta.fields("options")),
        position=position,
        init_digest=bytes.fromhex(meta.text("initDigest")),
        planner_state=definition.planner.initial(),
    )
    restored = _restored(fresh, meta.integer("stateFormat"), stored[_STATE])
    planner_state = restored.planner_state
    if _OUTPUTS in stored:
        outputs = cast("list[Value]", load_values(stored[_OUTPUTS]))
        planner_state = definition.planner.load_outputs(planner_state, outputs)
    record = replace(
        restored,
        planner_state=planner_state,
        scope=_load_scope(stored),
        attached=meta.boolean("attached"),
        began=began,
        changed=changed,
        reply=_load_reply(meta, stored),
        # With those of the restore: what a planner notices then, it does not notice again later.
        warnings=tuple(dict.fromkeys((*map(_load_warning, meta.items("warnings")), *restored.warnings))),
    )
    meta.done()
    return record


def _restored(fresh: Record, version: int, data: bytes) -> Record:
    state = ExecutionState(fresh.definition.kind, version, fresh.invocation_id, fresh.position, data)
    try:
        return restore(fresh, state)
    except PlannerdError as error:
        if error.reason is Reason.STATE_NEWER:
            raise
        raise ValueError(f"a stored state can't be restored: {error.message}") from error  # not the client's fault


def _moving_fields(record: Record, state: ExecutionState) -> StoredFields:
    """What any step may change."""
    meta = {
        "format": FORMAT,
        "stateFormat": state.format_version,
        "id": record.invocation_id,
        "options": _dump_options(record.options),
        "initDigest": record.init_digest.hex(),
        "attached": record.attached,
        "request": None if record.reply is None else _dump_request(record.reply),
        "times": [record.began, record.changed],
        "line": [record.definition.kind, status_of(record).name, record.options.model, len(record.calls)],
        "warnings": [[warn.code.name, warn.message, warn.agent_id] for warn in record.warnings],
    }
    found = {
        _POSITION: _position_text(record.position),
        _META: _encode(meta).encode(),
        _STATE: state.data,
    }
    if record.reply is not None:
        found[_REPLY] = record.reply.encoded
    if outputs := record.definition.planner.dump_outputs(record.planner_state):
        found[_OUTPUTS] = dump_values(*outputs)
    return found


# ---- options: those that are set, by name


def _dump_options(options: InvocationOptions) -> dict[str, object]:
    return {name: value.name if isinstance(value, ExplainLevel) else value for name, value in options.given().items()}


def _load_options(given: Fields) -> InvocationOptions:
    found: dict[str, object] = {}
    for field in fields_of(InvocationOptions):
        if given.has(field.name):
            value = given.get(field.name)
            found[field.name] = ExplainLevel[str(value)] if isinstance(field.default, ExplainLevel) else value
    given.done()
    return InvocationOptions(**found)  # type: ignore[arg-type]


# ---- reply and warnings


def _dump_request(reply: Reply) -> dict[str, str]:
    return {"base": _position_text(reply.base).decode(), "digest": reply.request_digest.hex()}


def _load_reply(meta: Fields, stored: Mapping[bytes, bytes]) -> Reply | None:
    if meta.get("request") is None:
        return None
    request = meta.fields("request")
    base = read_position(request.text("base").encode())
    return Reply(stored[_REPLY], base, bytes.fromhex(request.text("digest")))


def _load_warning(item: object) -> Warn:
    code, message, agent_id = cast("list[str]", item)
    return Warn(WarningCode[code], message, agent_id)


# ---- scope and position


def _dump_scope(scope: Scope, before: Scope) -> StoredFields:
    """The entries of `scope` that differ from `before`."""
    return {
        _SCOPE + key.encode(): dump_values(value, scope.sizes.get(key, 0), scope.marks.get(key))
        for key, value in scope.values.items()
        if key not in before.values
        or value is not before.values[key]
        or scope.marks.get(key) != before.marks.get(key)
        or scope.sizes.get(key, 0) != before.sizes.get(key, 0)
    }


def _load_scope(stored: Mapping[bytes, bytes]) -> Scope:
    values: dict[str, ScopeValue] = {}
    sizes: dict[str, int] = {}
    marks: dict[str, str] = {}
    for field, data in stored.items():
        if field.startswith(_SCOPE):
            key = field[len(_SCOPE) :].decode()
            values[key], size, mark = load_values(data)
            sizes[key] = cast("int", size)
            if mark is not None:
                marks[key] = cast("str", mark)
    return Scope(values, sizes, marks)


def _position_text(position: Position) -> bytes:
    return f"{position.epoch}.{position.revision}.{position.branch}".encode()


def read_position(text: bytes) -> Position:
    """A position as it is stored."""
    epoch, revision, branch = text.decode().split(".", 2)
    return Position(int(epoch), int(revision), branch)
