"""The execution state: everything needed to continue an invocation elsewhere, as canonical JSON.

It is data from outside when it comes back: parsed strictly, refused with the path of the field that does
not fit. It holds neither values of the scope nor outputs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NoReturn, cast

from plannerd.decisions.answers import MAX_MODEL_CHARS
from plannerd.errors import PlannerdError, Reason, invalid
from plannerd.invocations.calls import CallStatus, IssuedCalls, LiveCall, Run
from plannerd.invocations.position import Position
from plannerd.invocations.record import Finished, Held, Record
from plannerd.invocations.state_actions import dump_action, load_action
from plannerd.invocations.state_checks import check_consistent
from plannerd.planners.fields import Fields
from plannerd.planners.moves import GiveUp, Outcome, Warn, WarningCode
from plannerd.values import MAX_NESTING, Value

MAX_COUNT: Final = 1 << 48
"""Epochs and revisions are believed up to here."""

MAX_BRANCH_CHARS: Final = 64

_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode

_RECONFIGURED: Final = "~"
"""Behind the digest of a configuration that is not the one that the invocation began with."""

MARK: Final = re.compile(r"pending|t[0-9a-f]{0,64}|v[0-9a-f]{24}")
"""What stands for a value: an output on its way, a client's tag, a digest."""

MAX_STATE_BYTES: Final = 1 << 20
"""The largest state that is looked at; a real one of 200 agents has some 20 KB."""


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """An execution state as it travels; `data` is canonical JSON."""

    planner: str
    format_version: int
    invocation_id: str
    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class StateFormat:
    """One version of the data of an execution state.

    Attributes:
        dump: the data of an invocation, as plain values that JSON can hold.
        load: brings a record as an Init without resume would make it to where the data says; the position is
            not part of the data.
    """

    dump: Callable[[Record], Mapping[str, object]]
    load: Callable[[Record, Fields], Record]


def newest_format() -> int:
    """The newest version that this server knows."""
    return max(FORMATS)


def dump_state(record: Record, version: int | None = None) -> ExecutionState:
    """The execution state of an invocation.

    Args:
        record: the invocation.
        version: the format to write; None: the newest.
    """
    version = newest_format() if version is None else version
    data = FORMATS[version].dump(record)
    encoded = _encode(data).encode()
    return ExecutionState(record.definition.kind, version, record.invocation_id, record.position, encoded)


def restore(fresh: Record, state: ExecutionState) -> Record:
    """`fresh`, brought to where `state` was taken.

    Args:
        fresh: the record that an Init without resume would make, with the configuration as it is now.
        state: from `dump_state`, perhaps of another server and version.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE, STATE_OF_OTHER_PLANNER, STATE_NEWER or LIVE_AGENT_MISSING.
    """
    _check_envelope(fresh, state)
    fields = Fields(_parse(state.data), "state")
    restored = FORMATS[state.format_version].load(replace(fresh, position=state.position), fields)
    fields.done()
    check_consistent(restored, fields, same_configuration=not restored.reconfigured)
    return restored


def _dump_1(record: Record) -> Mapping[str, object]:
    planner = record.definition.planner
    system = planner.system
    return {
        "planner": planner.dump(record.planner_state),
        "cursor": planner.dump_cursor(record.planner_state),
        "action": dump_action(record.action),
        "calls": [
            {
                "id": call.id,
                "agent": system.reference(call.agent),
                "status": call.status.value,
                "told": call.told,
                "responseId": call.response_id,
                "external": call.external,
                "final": call.final,
            }
            for call in record.calls
        ],
        "issued": {branch: [list(run) for run in runs] for branch, runs in record.issued.branches.items()},
        "finished": {system.reference(agent): call_id for agent, call_id in record.finished.items()},
        "waiting": None if record.waiting is None else list(record.waiting),
        "held": None
        if record.held is None
        else {
            "action": dump_action(record.held.action),
            "outcome": record.held.outcome.name,
            "summary": record.held.summary,
        },
        "marks": dict(record.known),
        "config": record.definition.digest + (_RECONFIGURED if record.reconfigured else ""),
        "model": record.model,
        "traceparent": record.traceparent,
    }


def _load_1(fresh: Record, fields: Fields) -> Record:
    planner, system = fresh.definition.planner, fresh.definition.planner.system
    by_reference = system.by_reference
    planner_map = cast("Mapping[str, Value]", fields.mapping("planner"))
    cursor = cast("Mapping[str, Value]", fields.mapping("cursor"))
    planner_state, warnings = planner.load(planner_map, cursor)
    issued = _load_issued(fields)
    calls = tuple(
        _load_call(Fields(item, f"state.calls[{position}]"), by_reference, issued)
        for position, item in enumerate(fields.items("calls"))
    )
    finished = _load_finished(fields, by_reference, issued)
    action = load_action(fields, "action")
    held = _load_held(fields)
    waiting = None if fields.get("waiting") is None else fields.texts("waiting")
    given_marks = fields.fields("marks")
    marks = {key: given_marks.text(key) for key in fields.mapping("marks")}
    for key, mark in marks.items():
        if not MARK.fullmatch(mark):
            raise given_marks.error(key, "is no mark")
    for name, longest in (("model", MAX_MODEL_CHARS), ("traceparent", 64)):
        if len(fields.text(name)) > longest:
            raise fields.error(name, f"must have at most {longest} characters")
    config = fields.text("config")
    changed = config.removesuffix(_RECONFIGURED) != fresh.definition.digest
    reconfigured = changed or config.endswith(_RECONFIGURED)
    if changed:
        warnings.append(
            Warn(
                WarningCode.CONFIG_CHANGED,
                "The invocation was started with another configuration; it goes on with the one given now.",
            )
        )
    return replace(
        fresh,
        planner_state=planner_state,
        known={key: mark for key, mark in marks.items() if key in planner.watched},
        calls=calls,
        issued=issued,
        finished=finished,
        waiting=waiting,
        held=held,
        action=action,
        warnings=tuple(warnings),
        model=fields.text("model"),
        traceparent=fields.text("traceparent") or fresh.traceparent,
        reconfigured=reconfigured,
    )


def _check_envelope(fresh: Record, state: ExecutionState) -> None:
    kind = fresh.definition.kind
    if state.planner != kind:
        raise PlannerdError(
            Reason.STATE_OF_OTHER_PLANNER,
            f"The state is of the planner '{state.planner}', but this Init asks for '{kind}'.",
            metadata={"planner": state.planner},
        )
    if state.format_version > newest_format():
        raise PlannerdError(
            Reason.STATE_NEWER,
            f"The state has format version {state.format_version}; this server knows up to {newest_format()}. "
            "Send it to a newer replica.",
            metadata={"format_version": str(state.format_version), "newest_known": str(newest_format())},
        )
    if state.format_version not in FORMATS:
        raise _broken("state.format_version", f"{state.format_version} is no version of this format")
    if state.invocation_id != fresh.invocation_id:
        raise _broken("state.invocation_id", "is another invocation's; continue it under its own id")
    position = state.position
    if not (1 <= position.epoch <= MAX_COUNT and 0 <= position.revision <= MAX_COUNT and _is_branch(position.branch)):
        raise _broken("state.position", "is no position of an invocation")


def _is_branch(text: str) -> bool:
    return 1 <= len(text) <= MAX_BRANCH_CHARS and text.isascii() and text.isalnum()


def _broken(path: str, problem: str) -> PlannerdError:
    return invalid(path, problem, reason=Reason.INVALID_EXECUTION_STATE)


def _parse(data: bytes) -> object:
    if len(data) > MAX_STATE_BYTES:
        raise _broken("state.data", f"has {len(data)} bytes, more than {MAX_STATE_BYTES}")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _broken("state.data", "has a key twice")
        return found

    def no_constant(name: str) -> NoReturn:
        raise _broken("state.data", f"has the number {name}")

    try:
        parsed: object = json.loads(data.decode(), object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise _broken("state.data", "is no JSON; it must be sent back exactly as it came") from None
    _check_plain(parsed, MAX_NESTING + 8)
    return parsed


def _check_plain(item: object, room: int) -> None:
    """Refuse what could not be written again: lone surrogates, numbers that are too large, deep nesting."""
    if not room:
        raise _broken("state.data", "is nested too deep")
    match item:
        case bool() | None:
            pass
        case str():
            if not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
                raise _broken("state.data", "has a text that is no Unicode")
        case int():
            if not -(2**63) <= item < 2**63:
                raise _broken("state.data", "has a number beyond 64 bits")
        case float():
            if not math.isfinite(item):
                raise _broken("state.data", "has a number that is not finite")
        case list():
            for part in item:
                _check_plain(part, room - 1)
        case dict():
            for key, part in item.items():
                _check_plain(key, room - 1)
                _check_plain(part, room - 1)
        case _:
            raise _broken("state.data", "has something that is no JSON")


def _load_issued(fields: Fields) -> IssuedCalls:
    branches: dict[str, tuple[Run, ...]] = {}
    for branch, items in fields.mapping("issued").items():
        if not _is_branch(branch):
            raise fields.error("issued", "names a branch that can't be one")
        runs: list[Run] = []
        for item in items if isinstance(items, list) else [None]:
            match item:
                case [int(first), int(last), int(calls)] if (
                    bool not in map(type, item) and 0 < first <= last < 2**53 and 0 < calls < 2**31
                ):
                    runs.append((first, last, calls))
                case _:
                    raise fields.error(f"issued.{branch}", "must be a list of runs of steps")
        if any(later[0] <= earlier[1] for earlier, later in pairwise(runs)):
            raise fields.error(f"issued.{branch}", "must be in order")
        branches[branch] = tuple(runs)
    return IssuedCalls(branches)


def _load_call(fields: Fields, by_reference: Mapping[str, int], issued: IssuedCalls) -> LiveCall:
    call_id = fields.text("id")
    if call_id not in issued:
        raise fields.error("id", "was never issued")
    name = fields.text("agent")
    if name not in by_reference:
        raise PlannerdError(
            Reason.LIVE_AGENT_MISSING,
            f"The state has the call '{call_id}' of the agent '{name}', which is not declared. Declare it again.",
            metadata={"agent": name, "call_id": call_id},
        )
    try:
        status = CallStatus(fields.text("status"))
    except ValueError:
        raise fields.error("status", "is no status of a call") from None
    call = LiveCall(
        call_id,
        by_reference[name],
        status,
        fields.boolean("told"),
        fields.text("responseId"),
        fields.boolean("external"),
        fields.boolean("final"),
    )
    fields.done()
    return call


def _load_finished(fields: Fields, by_reference: Mapping[str, int], issued: IssuedCalls) -> dict[int, str]:
    finished: dict[int, str] = {}
    for name, call_id in fields.mapping("finished").items():
        if not isinstance(call_id, str) or call_id not in issued:
            raise fields.error(f"finished.{name}", "must be a call that was issued")
        if name in by_reference:
            finished[by_reference[name]] = call_id
    return finished


def _load_held(fields: Fields) -> Held | None:
    if fields.get("held") is None:
        return None
    held = fields.fields("held")
    action = load_action(held, "action")
    outcome = held.text("outcome")
    if not isinstance(action, Finished | GiveUp):
        raise held.error("action", "must be an ending")
    if outcome not in Outcome.__members__:
        raise held.error("outcome", "is no outcome")
    loaded = Held(action, Outcome[outcome], held.text("summary"))
    held.done()
    return loaded


FORMATS: Final[dict[int, StateFormat]] = {1: StateFormat(_dump_1, _load_1)}
"""Every format that can be restored, by its version. A released one stays here for ever."""
