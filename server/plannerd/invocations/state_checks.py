"""Whether the parts of a restored state fit together: a state that could never go on is refused at once."""

from __future__ import annotations

from plannerd.invocations.calls import CallStatus
from plannerd.invocations.record import AwaitCalls, Finished, Record, StartCalls, SuspendCalls
from plannerd.planners.fields import Fields
from plannerd.planners.moves import GiveUp, NoOp


def check_consistent(record: Record, fields: Fields, *, same_configuration: bool) -> None:
    """Hold action, live calls, waiting and planner against each other.

    Args:
        record: restored from the state.
        fields: the state, for the paths of errors.
        same_configuration: whether the state was taken with the configuration that it is restored with;
            another one may have moved what the planner was running.

    Raises:
        PlannerdError: INVALID_EXECUTION_STATE.
    """
    by_id = {call.id: call for call in record.calls}
    if len(by_id) != len(record.calls):
        raise fields.error("calls", "must not name a call twice")
    for position, call in enumerate(record.calls):
        if call.told is not (call.status is CallStatus.PENDING) and call.status is not CallStatus.SUSPENDED:
            raise fields.error(f"calls[{position}].told", "does not fit the status of the call")

    if record.waiting is not None and not record.waiting:
        raise fields.error("waiting", "must name what is waited for")
    for branch, runs in record.issued.branches.items():
        if runs and runs[-1][1] > record.position.revision:
            raise fields.error(f"issued.{branch}", "has steps that are still to come")
    if not _fits(record):
        raise fields.error("action", "does not fit the live calls")
    if same_configuration and record.action is not None and not record.terminal:
        _check_planner(record, fields)


def _fits(record: Record) -> bool:
    by_id = {call.id: call for call in record.calls}

    def named(call_ids: tuple[str, ...], status: CallStatus) -> bool:
        return all(call_id in by_id and by_id[call_id].status is status for call_id in call_ids)

    waits = record.waiting is not None
    match record.action:
        case None | Finished() | GiveUp():
            return not record.calls and not waits and record.held is None
        case StartCalls(call_ids):
            return bool(call_ids) and named(call_ids, CallStatus.OUTSTANDING) and not waits
        case AwaitCalls(keys, call_ids):
            before_suspension = any(call.status is CallStatus.SUSPENDED for call in record.calls)
            meant = set(keys) <= set(record.waiting) if record.waiting is not None else before_suspension
            return bool(keys) and meant and named(call_ids, CallStatus.PENDING)
        case SuspendCalls(call_ids):
            return bool(call_ids) and named(call_ids, CallStatus.SUSPENDED)
        case NoOp():
            return bool(record.calls)


def _check_planner(record: Record, fields: Fields) -> None:
    """The planner must be waiting for the live calls that it has not heard of, and for no others."""
    expected = record.definition.planner.expects(record.planner_state)
    untold = frozenset(call.agent for call in record.calls if not call.told)
    if expected is not None and record.held is None and untold != expected:
        raise fields.error("calls", "does not fit what the planner is running")
    if not untold and record.waiting is None and record.held is None:
        raise fields.error("waiting", "must say what is waited for: no report will move the planner")
