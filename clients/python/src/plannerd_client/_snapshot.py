"""Everything that is needed to go on with a run elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from plannerd_client._definition import PlannerAgent
from plannerd_client._json import Reader, to_base64, value_from_json, value_to_json
from plannerd_client._reports import CallOutput, Report, ReportKind
from plannerd_client._results import Suspension
from plannerd_client._scope import Changes, Entry
from plannerd_client._values import plain
from plannerd_client.errors import InvalidSnapshot

FORMAT: Final = "plannerd-client/snapshot"
VERSION: Final = 1

ValueCodec: TypeAlias = Callable[[str, Any], Any]
"""Converts one value on its way to or from bytes; is given the scope key (or the agent's id) and the value."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is needed to go on with a run, in another process if need be.

    Get one from `RunResult.snapshot`, from `PlannerdError.snapshot` or in `on_snapshot`, and pass it to
    `run(..., resume=snapshot)`. The planner, the agents and the functions are not part of it: whoever resumes
    describes them again.

    Attributes:
        invocation_id: the invocation.
        suspensions: what the run waits for.
        scope: the values that had arrived.
    """

    invocation_id: str
    planner_agent: PlannerAgent
    state: bytes
    salt: bytes
    entries: Mapping[str, Entry]
    unknown: Changes
    outputs: Mapping[str, CallOutput]
    unreported: tuple[Report, ...]
    request: bytes
    request_changes: Changes
    request_reports: tuple[Report, ...]
    suspensions: tuple[Suspension, ...]
    answered: tuple[str, ...]
    ending: bytes

    # `entries` is the scope as the client has it, `unknown` what the server last knew of the keys that differ.
    # `unreported` was not sent; `request` was sent and not answered: it is sent again as it is. `ending` is the step
    # that ended the invocation: whoever resumes from it has the same end again.

    @property
    def scope(self) -> dict[str, Any]:
        """The values that had arrived, by key."""
        return {key: entry.value for key, entry in self.entries.items() if not entry.pending}

    def dumps(self, *, encode: ValueCodec | None = None) -> bytes:
        """The snapshot as JSON, versioned, without pickle.

        Dataclasses, pydantic models and enums in the scope come back as maps, lists and scalars.

        Args:
            encode: replaces values that can't travel, or that `loads` shall restore.

        Raises:
            UnsupportedValue: a value can't travel, and `encode` did not replace it.
        """
        return json.dumps(_Writer(self, encode).document(), ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def loads(cls, data: bytes | str, *, decode: ValueCodec | None = None) -> Snapshot:
        """The snapshot that `dumps` wrote.

        Args:
            data: what `dumps` returned.
            decode: makes objects of values again: is given the scope key, or for outputs without one the agent's id.

        Raises:
            InvalidSnapshot: `data` is no snapshot, is damaged, or was written by a newer version of this package.
        """
        try:
            document = json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidSnapshot(f"not JSON: {error}") from None
        return _read(Reader(document, "snapshot"), decode or (lambda name, value: value))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


class _Writer:
    def __init__(self, snapshot: Snapshot, encode: ValueCodec | None) -> None:
        self._snapshot = snapshot
        self._encode = encode

    def document(self) -> dict[str, Any]:
        it = self._snapshot
        agent = it.planner_agent
        return {
            "format": FORMAT,
            "version": VERSION,
            "invocation_id": it.invocation_id,
            "planner_agent": {
                "name": agent.name,
                "arguments": list(agent.arguments),
                "output_key": agent.output_key,
                "output_type": agent.output_type,
            },
            "state": to_base64(it.state),
            "salt": to_base64(it.salt),
            "scope": {key: self._fresh(key, entry) for key, entry in it.entries.items()},
            "unknown": self._changes(it.unknown),
            "outputs": {
                call_id: {
                    "agent": output.agent,
                    "key": output.key,
                    "entry": self._entry(output.key or output.agent, output.entry),
                }
                for call_id, output in it.outputs.items()
            },
            "unreported": [self._report(report) for report in it.unreported],
            "request": to_base64(it.request),
            "request_changes": self._changes(it.request_changes),
            "request_reports": [self._report(report) for report in it.request_reports],
            "suspensions": [self._suspension(suspension) for suspension in it.suspensions],
            "answered": list(it.answered),
            "ending": to_base64(it.ending),
        }

    def _value(self, name: str, value: Any) -> Any:
        return value_to_json(plain(value if self._encode is None else self._encode(name, value), name))

    def _fresh(self, name: str, entry: Entry) -> dict[str, Any]:
        return {"pending": entry.pending} if entry.pending else {"value": self._value(name, entry.value)}

    def _entry(self, key: str, entry: Entry | None) -> dict[str, Any] | None:
        """An entry; one that the scope holds is not written twice."""
        if entry is None:
            return None
        return {"current": True} if self._snapshot.entries.get(key) is entry else self._fresh(key, entry)

    def _changes(self, changes: Changes) -> dict[str, Any]:
        return {key: self._entry(key, entry) for key, entry in changes.items()}

    def _report(self, report: Report) -> dict[str, Any]:
        return {
            "call_id": report.call_id,
            "kind": report.kind,
            "key": report.key,
            "entry": self._entry(report.key, report.entry),
            "recovered": report.recovered,
        }

    def _suspension(self, suspension: Suspension) -> dict[str, Any]:
        return {
            "response_id": suspension.response_id,
            "call_id": suspension.call_id,
            "agent": suspension.agent,
            "request": self._value(suspension.agent, suspension.request),
            "arguments": {key: self._value(key, value) for key, value in suspension.arguments.items()},
            "expires_at": suspension.expires_at,
        }


def _read(reader: Reader, decode: ValueCodec) -> Snapshot:
    if reader.text("format") != FORMAT:
        raise InvalidSnapshot("not a snapshot of plannerd-client")
    version = reader.take("version", int)
    if version != VERSION:
        raise InvalidSnapshot(f"version {version} is not {VERSION}: written by another version of plannerd-client")
    agent = reader.object("planner_agent")
    planner_agent = PlannerAgent(
        agent.text("name"), agent.texts("arguments"), agent.text("output_key"), agent.take("output_type", int)
    )
    agent.end()
    entries = {key: _fresh(Reader(item, f"scope.{key}"), key, decode) for key, item in reader.items("scope")}
    snapshot = Snapshot(
        invocation_id=reader.text("invocation_id"),
        planner_agent=planner_agent,
        state=reader.blob("state"),
        salt=reader.blob("salt"),
        entries=entries,
        unknown=_changes(reader, "unknown", entries, decode),
        outputs={
            key: _output(Reader(item, f"outputs.{key}"), entries, decode) for key, item in reader.items("outputs")
        },
        unreported=tuple(_report(item, entries, decode) for item in reader.objects("unreported")),
        request=reader.blob("request"),
        request_changes=_changes(reader, "request_changes", entries, decode),
        request_reports=tuple(_report(item, entries, decode) for item in reader.objects("request_reports")),
        suspensions=tuple(_suspension(item) for item in reader.objects("suspensions")),
        answered=reader.texts("answered"),
        ending=reader.blob("ending"),
    )
    reader.end()
    return snapshot


def _fresh(reader: Reader, name: str, decode: ValueCodec) -> Entry:
    if reader.has("pending"):
        entry = Entry(pending=reader.text("pending"))
    else:
        entry = Entry(decode(name, value_from_json(reader.anything("value"), reader.path)))
    reader.end()
    return entry


def _entry(item: Any, path: str, key: str, entries: Mapping[str, Entry], decode: ValueCodec) -> Entry | None:
    if item is None:
        return None
    if item == {"current": True}:
        if key not in entries:
            raise InvalidSnapshot(f"{path}: the scope has no {key!r}")
        return entries[key]
    return _fresh(Reader(item, path), key, decode)


def _changes(reader: Reader, name: str, entries: Mapping[str, Entry], decode: ValueCodec) -> Changes:
    return {key: _entry(item, f"{name}.{key}", key, entries, decode) for key, item in reader.items(name)}


def _output(reader: Reader, entries: Mapping[str, Entry], decode: ValueCodec) -> CallOutput:
    agent, key = reader.text("agent"), reader.text("key")
    entry = _entry(reader.anything("entry"), reader.path, key or agent, entries, decode)
    if entry is None:
        raise InvalidSnapshot(f"{reader.path}.entry: must not be null")
    reader.end()
    return CallOutput(agent, key, entry)


def _report(reader: Reader, entries: Mapping[str, Entry], decode: ValueCodec) -> Report:
    call_id, kind, key = reader.text("call_id"), reader.text("kind"), reader.text("key")
    known: tuple[ReportKind, ...] = get_args(ReportKind)
    if kind not in known:
        raise InvalidSnapshot(f"{reader.path}.kind: {kind!r} is none of {known}")
    entry = _entry(reader.anything("entry"), reader.path, key, entries, decode)
    report = Report(call_id, kind, key, entry, reader.take("recovered", bool))
    reader.end()
    return report


def _suspension(reader: Reader) -> Suspension:
    suspension = Suspension(
        response_id=reader.text("response_id"),
        call_id=reader.text("call_id"),
        agent=reader.text("agent"),
        request=value_from_json(reader.anything("request"), reader.path),
        arguments={
            key: value_from_json(item, f"{reader.path}.arguments.{key}") for key, item in reader.items("arguments")
        },
        expires_at=reader.number_or_none("expires_at"),
    )
    reader.end()
    return suspension
