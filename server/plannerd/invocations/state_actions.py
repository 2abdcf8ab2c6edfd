"""Actions as plain values, for the execution state."""

from __future__ import annotations

from typing import cast

from plannerd.invocations.record import (
    AwaitCalls,
    CallOutput,
    Finished,
    NamedOutputs,
    PlannerValue,
    ScopeOutput,
    StartCalls,
    StepAction,
    StepResult,
    SuspendCalls,
)
from plannerd.planners.fields import Fields
from plannerd.planners.moves import GiveUp, GiveUpReason, NoOp
from plannerd.values import Value


def dump_action(action: StepAction | None) -> dict[str, object] | None:
    """An action as plain values; None before the first."""
    match action:
        case None:
            return None
        case StartCalls(call_ids):
            return {"kind": "start", "calls": list(call_ids)}
        case AwaitCalls(keys, call_ids):
            return {"kind": "await", "keys": list(keys), "calls": list(call_ids)}
        case SuspendCalls(call_ids):
            return {"kind": "suspend", "calls": list(call_ids)}
        case GiveUp(reason, message):
            return {"kind": "giveUp", "reason": reason.name, "message": message}
        case NoOp():
            return {"kind": "noOp"}
        case Finished(result):
            return {"kind": "done", "result": _dump_result(result)}


def _dump_result(result: StepResult | None) -> dict[str, object] | None:
    match result:
        case None:
            return None
        case NamedOutputs(outputs):
            return {"outputs": [[name, _dump_source(source)] for name, source in outputs]}
        case PlannerValue(value):
            return {"value": value}
        case CallOutput() | ScopeOutput():
            return _dump_source(result)


def _dump_source(source: CallOutput | ScopeOutput | None) -> dict[str, object] | None:
    match source:
        case None:
            return None
        case CallOutput(call_id):
            return {"call": call_id}
        case ScopeOutput(key):
            return {"key": key}


def load_action(fields: Fields, name: str) -> StepAction | None:
    """The action in the field `name`.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE.
    """
    if fields.get(name) is None:
        return None
    data = fields.fields(name)
    action: StepAction
    match data.text("kind"):
        case "start":
            action = StartCalls(data.texts("calls"))
        case "await":
            action = AwaitCalls(data.texts("keys"), data.texts("calls"))
        case "suspend":
            action = SuspendCalls(data.texts("calls"))
        case "giveUp":
            reason = data.text("reason")
            if reason not in GiveUpReason.__members__:
                raise data.error("reason", "is no reason to give up")
            action = GiveUp(GiveUpReason[reason], data.text("message"))
        case "noOp":
            action = NoOp()
        case "done":
            action = Finished(_load_result(data))
        case _:
            raise data.error("kind", "is no kind of action")
    data.done()
    return action


def _load_result(data: Fields) -> StepResult | None:
    if data.get("result") is None:
        return None
    result = data.fields("result")
    loaded: StepResult | None
    if result.has("value"):
        loaded = PlannerValue(cast("Value", result.get("value")))
    elif result.has("outputs"):
        outputs: list[tuple[str, CallOutput | ScopeOutput | None]] = []
        for item in result.items("outputs"):
            match item:
                case [str(name), None]:
                    outputs.append((name, None))
                case [str(name), source]:
                    outputs.append((name, _load_source(Fields(source, "state.action.result.outputs"))))
                case _:
                    raise result.error("outputs", "must be a list of pairs of a name and an output")
        loaded = NamedOutputs(tuple(outputs))
    else:
        return _load_source(result)
    result.done()
    return loaded


def _load_source(data: Fields) -> CallOutput | ScopeOutput:
    source = CallOutput(data.text("call")) if data.has("call") else ScopeOutput(data.text("key"))
    data.done()
    return source
