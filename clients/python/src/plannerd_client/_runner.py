"""The loop that runs an invocation: what is sent next, what is run, what comes out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from plannerd_client._calls import Calls, Traced
from plannerd_client._definition import Definition
from plannerd_client._effects import Invoke, Program
from plannerd_client._link import Environment, Link
from plannerd_client._recovery import ErrorHandler
from plannerd_client._reports import Report
from plannerd_client._results import RunResult, RunStatus, Step, step_of, warning_of
from plannerd_client._retries import Remedy, RetryPolicy, remedy
from plannerd_client._scope import Changes, Entry, Scope
from plannerd_client._snapshot import Snapshot
from plannerd_client._values import decode
from plannerd_client.errors import (
    AgentFailed,
    GaveUp,
    PendingValue,
    PlannerdError,
    ProtocolError,
    RunTimedOut,
    UnknownAction,
)
from plannerd_protos.planner.v1 import planner_pb2, step_pb2

_MESSAGE_LIMIT: Final = 2000
_ENDINGS: Final = frozenset({"done", "give_up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run goes about it; see `RunOptions`. `values` are the first entries of the scope, or changes of it."""

    invocation_id: str
    values: Mapping[str, Any] = field(default_factory=dict)
    resume: Snapshot | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    take_over: bool = False
    on_error: ErrorHandler | None = None
    on_step: Callable[[Step], Any] | None = None
    on_snapshot: Callable[[Snapshot], Any] | None = None
    record: Callable[[str], Any] | None = None
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    rpc_timeout: float | None = None
    timeout: float | None = None
    cancel_siblings: bool = False


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A request that was sent or is about to be: what it changes on the server, and what it reports."""

    request: planner_pb2.NextActionRequest
    changes: Changes
    reports: tuple[Report, ...]


class Runner:
    """One run of an invocation, as a program of effects.

    Args:
        definition: what the run is.
        settings: how it goes about it.
        environment: clocks and chance.
    """

    def __init__(self, definition: Definition, settings: Settings, environment: Environment) -> None:
        self._definition = definition
        self._settings = settings
        resume = settings.resume
        self._scope = Scope(os.urandom(16) if resume is None else resume.salt)
        self._calls = Calls(definition.agents, self._scope, settings.invocation_id, environment, settings.on_error)
        self._deadline = None if settings.timeout is None else environment.clock() + settings.timeout
        self._link = Link(
            definition,
            settings.invocation_id,
            self._scope,
            environment,
            policy=settings.policy,
            rpc_timeout=settings.rpc_timeout,
            deadline=self._deadline,
            record=settings.record,
        )
        self._steps: list[Step] = []
        self._unanswered: _Unanswered | None = None
        self._ending: step_pb2.Step | None = None

    @property
    def invocation_id(self) -> str:
        """The invocation."""
        return self._settings.invocation_id

    @property
    def planner(self) -> str:
        """The kind of planner."""
        return self._definition.request.WhichOneof("planner") or ""

    @property
    def resumed(self) -> bytes | None:
        """The data of the execution state that the run goes on from; None where it starts anew."""
        resume = self._settings.resume
        return None if resume is None else step_pb2.ExecutionState.FromString(resume.state).data

    def trace_agents(self, traced: Traced) -> None:
        """Have every call wrapped by `traced`."""
        self._calls.traced = traced

    def run(self) -> Program[RunResult]:
        """Run until the planner is done, or somebody has to answer.

        Raises:
            PlannerdError: of any kind; see `errors`.
        """
        try:
            step = yield from self._open()
            return (yield from self._loop(step))
        except AgentFailed as error:
            # The state before the failure can be continued by taking over, as long as the invocation is not ended.
            state = self._link.state
            if self._ending is None:
                yield from self._report_failure(error)
            yield from self._settle(abandon=self._settings.cancel_siblings)
            error.snapshot = self._snapshot(state)
            raise
        except GaveUp as error:
            yield from self._settle()
            yield from self._link.end(planner_pb2.END_OUTCOME_FAILED, str(error))
            raise
        except Exception as error:
            yield from self._settle(abandon=self._settings.cancel_siblings or isinstance(error, RunTimedOut))
            if isinstance(error, PlannerdError):
                error.snapshot = self._snapshot(self._link.state)
            if self._link.state is None and self._link.position.branch:
                yield from self._link.end(planner_pb2.END_OUTCOME_ABANDONED, str(error))
            raise

    # --- the beginning

    def _open(self) -> Program[Step]:
        resume = self._settings.resume
        if resume is not None:
            return (yield from self._resume(resume))
        self._calls.check_answers(self._settings.answers)
        self._write_values()
        yield from self._link.open()
        changes = self._scope.changes()
        step = yield from self._link.first(changes)
        self._scope.acknowledge(changes)
        return (yield from self._took(step))

    def _resume(self, resume: Snapshot) -> Program[Step]:
        self._restore(resume)
        self._calls.check_answers(self._settings.answers)
        if resume.ending:
            self._ending = step_pb2.Step.FromString(resume.ending)
            return step_of(self._ending)
        if self._unanswered is not None and not self._settings.take_over:
            again = yield from self._deliver_again(self._unanswered)
            if again is not None and again.action in _ENDINGS:
                return again
        yield from self._link.open(take_over=self._settings.take_over)
        step = yield from self._took((yield from self._link.attach()))
        if self._unanswered is not None:
            step = yield from self._deliver(self._unanswered)
        self._calls.forget_taken()
        self._write_values()
        yield from self._calls.answer(self._settings.answers)
        return step

    def _restore(self, resume: Snapshot) -> None:
        for key, entry in resume.entries.items():
            self._scope.put(key, entry)
        self._scope.acknowledge({**resume.entries, **resume.unknown})
        self._link.state = step_pb2.ExecutionState.FromString(resume.state)
        self._link.position = self._link.state.position
        calls = self._calls
        calls.outputs.update(resume.outputs)
        calls.ready.extend(resume.unreported)
        calls.suspensions.update({one.call_id: one for one in resume.suspensions})
        calls.answered.extend(resume.answered)
        calls.remember([*resume.request_reports, *resume.unreported])
        if resume.request:
            request = planner_pb2.NextActionRequest.FromString(resume.request)
            self._unanswered = _Unanswered(request, resume.request_changes, resume.request_reports)

    def _write_values(self) -> None:
        for key, value in self._settings.values.items():
            self._scope.put(key, Entry(value))

    # --- the loop

    def _loop(self, step: Step) -> Program[RunResult]:
        asked_again = False
        while True:
            action = step.message.action
            match action.WhichOneof("kind"):
                case "done":
                    return (yield from self._done(action.done))
                case "give_up":
                    self._give_up(step)
                case None:
                    raise UnknownAction("the planner decided on an action that this version of plannerd-client lacks")
            if not (yield from self._gather(_awaited(action))):
                return self._suspended()
            if not self._calls.ready:
                if asked_again:
                    raise ProtocolError("the planner waits for outputs that were reported")
                asked_again = True
            else:
                asked_again = False
            step = yield from self._report()

    def _gather(self, awaited: set[str]) -> Program[bool]:
        """Run agents until there is something to send; False when nothing will come without somebody's answer."""
        calls = self._calls
        while True:
            yield from calls.start()
            if calls.failure is not None:
                raise calls.failure
            busy = calls.busy()
            if calls.ready and not awaited & busy:
                return True
            if not busy:
                if awaited and all(calls.finished(call_id) for call_id in awaited):
                    return True
                if calls.blocked():
                    return False
                raise ProtocolError("the planner left nothing to run and nothing to wait for")
            yield from calls.collect(self._link.remaining())

    def _report(self) -> Program[Step]:
        """Report what is ready, with the changes of the scope, and get the next action."""
        reports = tuple(self._calls.ready)
        written: Changes = {report.key: report.entry for report in reports if report.key}
        changes = {key: entry for key, entry in self._scope.changes().items() if key not in written}
        request = self._link.next_request([self._calls.result(report) for report in reports], changes)
        self._unanswered = _Unanswered(request, {**changes, **written}, reports)
        self._calls.ready.clear()
        yield from self._persist()
        return (yield from self._deliver(self._unanswered))

    def _deliver(self, unanswered: _Unanswered) -> Program[Step]:
        """Send a request until it is answered."""
        try:
            step = yield from self._link.next(self._link.rebased(unanswered.request))
        except PlannerdError as error:
            if error.reason:  # the server said no: nothing happened, and whoever resumes makes a new request of it
                self._take_back(unanswered)
            raise
        return (yield from self._answered(unanswered, step))

    def _deliver_again(self, unanswered: _Unanswered) -> Program[Step | None]:
        """Send the request of a former process as it was; None if the server has to be told where to go on first."""
        try:
            step = yield from self._link.next(unanswered.request, restoring=False)
        except PlannerdError as error:
            if remedy(error) is Remedy.RESTORE:
                return None
            if error.reason:
                self._take_back(unanswered)
            raise
        return (yield from self._answered(unanswered, step))

    def _answered(self, unanswered: _Unanswered, step: Step) -> Program[Step]:
        self._scope.acknowledge(unanswered.changes)
        self._unanswered = None
        return (yield from self._took(step))

    def _take_back(self, unanswered: _Unanswered) -> None:
        self._calls.ready[:0] = unanswered.reports
        self._unanswered = None

    def _took(self, step: Step) -> Program[Step]:
        """Take in a step: first the writes, then the calls."""
        writes: Changes = dict.fromkeys(step.message.writes.removed)
        for key, value in step.message.writes.set.items():
            writes[key] = Entry(decode(value, f"writes: {key}"))
        for key, entry in writes.items():
            self._scope.put(key, entry)
        self._scope.acknowledge(writes)
        self._calls.adopt(step.message)
        self._steps.append(step)
        if step.action in _ENDINGS:
            self._ending = step.message
        if self._settings.on_step is not None:
            yield Invoke(self._settings.on_step, (step,))
        yield from self._persist()
        return step

    def _persist(self) -> Program[None]:
        if self._settings.on_snapshot is not None and (snapshot := self._snapshot(self._link.state)) is not None:
            yield Invoke(self._settings.on_snapshot, (snapshot,))

    # --- the end

    def _done(self, done: step_pb2.Done) -> Program[RunResult]:
        yield from self._settle()
        key = self._definition.planner_agent.output_key
        if done.HasField("result"):
            result = self._result(done.result)
            if key:
                self._scope.put(key, Entry(result))
        else:
            for failure in self._calls.late_failures:
                if (entry := self._scope.entry(key)) is not None and entry.pending == failure.call_id:
                    raise failure  # what should have been the result
            result = self._held(key)
        yield from self._link.end(planner_pb2.END_OUTCOME_COMPLETED)
        return RunResult(
            status=RunStatus.COMPLETED,
            invocation_id=self._settings.invocation_id,
            result=result,
            scope=self._scope.readable(),
            steps=tuple(self._steps),
            warnings=tuple(warning_of(warning) for warning in self._link.init.warnings),
            late_failures=tuple(self._calls.late_failures),
        )

    def _result(self, result: step_pb2.Result) -> Any:
        match result.WhichOneof("kind"):
            case "value":
                return decode(result.value, "result")
            case "output_of":
                return self._output_of(result.output_of)
            case "outputs":
                return {output.name: self._named_output(output) for output in result.outputs.outputs}
            case "scope_key":
                return self._held(result.scope_key)
            case _:
                raise ProtocolError("the result is of a kind that this version of plannerd-client lacks")

    def _named_output(self, output: step_pb2.NamedOutput) -> Any:
        match output.WhichOneof("source"):
            case "call_id":
                return self._output_of(output.call_id)
            case "scope_key":
                return self._held(output.scope_key)
            case _:
                return None

    def _held(self, key: str) -> Any:
        """What the scope holds under `key`."""
        entry = self._scope.entry(key) if key else None
        if entry is not None and entry.pending:
            raise PendingValue(key)  # a former process was to bring it
        return None if entry is None else entry.value

    def _output_of(self, call_id: str) -> Any:
        output = self._calls.outputs.get(call_id)
        if output is None:
            raise ProtocolError(f"the result names the call {call_id!r}, which never ran here")
        return output.entry.value

    def _give_up(self, step: Step) -> NoReturn:
        give_up = step.message.action.give_up
        known = give_up.reason in step_pb2.GiveUpReason.values()
        reason = step_pb2.GiveUpReason.Name(give_up.reason) if known else "OTHER"
        raise GaveUp(
            give_up.message, reason=reason.removeprefix("GIVE_UP_REASON_"), explanation=step.message.explanation
        )

    def _settle(self, *, abandon: bool = False) -> Program[None]:
        yield from self._calls.settle(abandon=abandon, deadline=self._deadline)

    def _report_failure(self, error: AgentFailed) -> Program[None]:
        """Tell the server. The run has failed whatever it says."""
        cause = error.__cause__ or error
        result = planner_pb2.AgentResult(call_id=error.call_id)
        result.failed.type = type(cause).__name__
        result.failed.message = str(cause)[:_MESSAGE_LIMIT]
        request = self._link.next_request([result], {})
        try:
            yield from self._link.next(request)
        except PlannerdError as unreported:
            error.add_note(f"plannerd could not be told: {unreported}")

    def _suspended(self) -> RunResult:
        return RunResult(
            status=RunStatus.SUSPENDED,
            invocation_id=self._settings.invocation_id,
            result=None,
            scope=self._scope.readable(),
            steps=tuple(self._steps),
            warnings=tuple(warning_of(warning) for warning in self._link.init.warnings),
            suspensions=tuple(self._calls.suspensions.values()),
            snapshot=self._snapshot(self._link.state),
        )

    def _snapshot(self, state: step_pb2.ExecutionState | None) -> Snapshot | None:
        """What the run can be continued from, with this execution state; None before the first step."""
        if state is None:
            return None
        current, known = self._scope.current(), self._scope.known()
        keys = dict.fromkeys([*current, *known])
        unanswered = self._unanswered
        return Snapshot(
            invocation_id=self._settings.invocation_id,
            planner_agent=self._definition.planner_agent,
            state=state.SerializeToString(),
            salt=self._scope.salt,
            entries=current,
            unknown={key: known.get(key) for key in keys if known.get(key) is not current.get(key)},
            outputs=dict(self._calls.outputs),
            unreported=tuple(self._calls.ready),
            request=unanswered.request.SerializeToString() if unanswered else b"",
            request_changes=unanswered.changes if unanswered else {},
            request_reports=unanswered.reports if unanswered else (),
            suspensions=tuple(self._calls.suspensions.values()),
            answered=tuple(self._calls.answered),
            ending=self._ending.SerializeToString() if self._ending else b"",
        )


def _awaited(action: step_pb2.Action) -> set[str]:
    """The calls that the planner waits for. The field's name is a keyword of the language."""
    return set(getattr(action, "await").call_ids)
