"""What a run has to tell the server about its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from plannerd_client._scope import Entry
from plannerd_client._values import encode, is_present, plain
from plannerd_protos.planner.v1 import planner_pb2, step_pb2, value_pb2

ReportKind: TypeAlias = Literal["output", "skipped", "pending", "suspended"]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one call.

    Args:
        call_id: the call.
        kind: what became of it.
        key: the scope key that this wrote; empty without one.
        entry: what it wrote there.
        recovered: an error handler supplied the output.
    """

    call_id: str
    kind: ReportKind
    key: str = ""
    entry: Entry | None = None
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The output of a finished call: its agent's id, its output key, and the output as it was written."""

    agent: str
    key: str
    entry: Entry


def needs_value(need: value_pb2.Need.ValueType) -> bool:
    """Whether the output itself has to travel. What is not said is taken for yes."""
    return need in {value_pb2.NEED_VALUE, value_pb2.NEED_UNSPECIFIED}


def result_of(report: Report, call: step_pb2.Call, response_id: str, salt: bytes) -> planner_pb2.AgentResult:
    """The message for a report.

    Args:
        report: what is reported.
        call: the call that it is about.
        response_id: where the answer of a suspended call belongs.
        salt: the key of tags.

    Raises:
        UnsupportedValue: the output is needed and can't travel.
    """
    message = planner_pb2.AgentResult(call_id=report.call_id)
    match report.kind:
        case "skipped":
            message.skipped.SetInParent()
        case "pending":
            message.pending.SetInParent()
        case "suspended":
            message.suspended.response_id = response_id
        case "output":
            path = f"output of {call.agent_id}"
            _fill_output(message.output, call.output_need, report.entry or Entry(None), path, salt)
            message.recovered = report.recovered
    return message


def _fill_output(
    output: planner_pb2.Output, need: value_pb2.Need.ValueType, entry: Entry, path: str, salt: bytes
) -> None:
    if needs_value(need):
        output.value.CopyFrom(encode(plain(entry.value, path)))
    elif need == value_pb2.NEED_NONE:
        output.withheld.SetInParent()
    elif is_present(entry.value):
        output.opaque.tag = entry.tag(path, salt)
    else:
        output.value.CopyFrom(encode(None))
