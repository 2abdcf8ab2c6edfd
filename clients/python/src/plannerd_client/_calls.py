"""The live calls of a run: which agents run, wait, are suspended, and what is to be reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from plannerd_client._agents import AnyAgent
from plannerd_client._context import AgentContext, Suspend
from plannerd_client._effects import Abandon, Collect, Invoke, Launch, Outcome, Program
from plannerd_client._link import Environment
from plannerd_client._live import LiveCall, Phase
from plannerd_client._recovery import ErrorHandler, Recover, Retry
from plannerd_client._reports import CallOutput, Report, needs_value, result_of
from plannerd_client._results import Suspension
from plannerd_client._scope import Entry, Scope, ScopeProxy
from plannerd_client._values import decode, is_present, plain
from plannerd_client.errors import (
    AgentFailed,
    AlreadyAnswered,
    CallTimedOut,
    MissingArgument,
    ProtocolError,
    UnknownAnswer,
    UnsupportedValue,
)
from plannerd_protos.planner.v1 import planner_pb2, step_pb2

_log: Final = logging.getLogger("plannerd_client")

Traced: TypeAlias = Callable[[Callable[[], Any], AgentContext, bool], Callable[[], Any]]
"""Puts a span around a call: of its function, its context, and whether the function is a coroutine's."""


class Calls:
    """The live calls of a run.

    Args:
        agents: the agents by id.
        scope: the scope of the run.
        invocation_id: the invocation.
        environment: clocks.
        on_error: the error handler.

    Attributes:
        ready: what is to be reported, in order.
        outputs: the outputs of finished calls, by call id.
        failure: set when an agent failed for good.
        late_failures: those that failed when the end of the run was decided already.
        suspensions: what is waited for, by call id.
        answered: the response ids that were answered.
    """

    def __init__(
        self,
        agents: Mapping[str, AnyAgent],
        scope: Scope,
        invocation_id: str,
        environment: Environment,
        on_error: ErrorHandler | None,
    ) -> None:
        self.ready: list[Report] = []
        self.outputs: dict[str, CallOutput] = {}
        self.failure: AgentFailed | None = None
        self.late_failures: list[AgentFailed] = []
        self.suspensions: dict[str, Suspension] = {}
        self.answered: list[str] = []
        self.traced: Traced | None = None
        self._agents = agents
        self._scope = scope
        self._invocation_id = invocation_id
        self._environment = environment
        self._on_error = on_error
        self._calls: dict[str, LiveCall] = {}
        self._former: dict[str, Report] = {}
        self._traceparent = ""
        self._tokens = 0
        self._settling = False

    # --- what the server says

    def remember(self, reports: Iterable[Report]) -> None:
        """Reports of a former process that the server may not have taken in yet: their calls do not run again."""
        self._former.update({report.call_id: report for report in reports})

    def adopt(self, step: step_pb2.Step) -> None:
        """Take up the live calls of `step` that are not here yet.

        Raises:
            ProtocolError: one is of an agent that was not declared.
        """
        self._traceparent = step.traceparent or self._traceparent
        for message in step.calls:
            if message.id not in self._calls:
                self._calls[message.id] = self._adopted(message)

    def _adopted(self, message: step_pb2.Call) -> LiveCall:
        agent = self._agents.get(message.agent_id)
        if agent is None:
            raise ProtocolError(f"the server calls {message.agent_id!r}, which is no agent of this run")
        call = LiveCall(message, agent)
        former = self._former.pop(message.id, None)
        call.reported = former is not None or message.status != step_pb2.CALL_STATUS_OUTSTANDING
        if former is not None and former.kind in {"output", "skipped"}:
            call.phase = Phase.FINISHED
        elif message.id in self.suspensions:
            call.phase = Phase.SUSPENDED
        elif message.status == step_pb2.CALL_STATUS_SUSPENDED or message.external:
            call.phase = Phase.SUSPENDED
            response_id = message.response_id or message.id
            self.suspensions[message.id] = Suspension(response_id, message.id, message.agent_id)
        return call

    def forget_taken(self) -> None:
        """Drop what a former process had to report about calls that are no longer live: the server has it."""
        self.ready[:] = [report for report in self.ready if report.call_id in self._calls]

    def busy(self) -> set[str]:
        """The calls that go on by themselves."""
        return {call.id for call in self._calls.values() if call.busy}

    def finished(self, call_id: str) -> bool:
        """Whether the call has an outcome, or was never known."""
        return call_id not in self._calls or self._calls[call_id].phase is Phase.FINISHED

    def blocked(self) -> bool:
        """Whether somebody's answer is what is missing."""
        return any(call.phase is Phase.SUSPENDED for call in self._calls.values())

    # --- starting

    def start(self) -> Program[None]:
        """Start every call whose arguments are there and whose time has come."""
        now = self._environment.clock()
        for call in list(self._calls.values()):
            delayed = call.phase is Phase.DELAYED and call.due is not None and call.due <= now
            if call.phase is Phase.WAITING or delayed:
                yield from self._start(call)

    def _start(self, call: LiveCall) -> Program[None]:
        values: dict[str, Any] = {}
        for parameter in call.agent.parameters:
            if parameter.key in call.message.arguments:
                override = call.message.arguments[parameter.key]
                values[parameter.key] = decode(override, f"arguments of {call.id}: {parameter.key}")
                continue
            entry = self._scope.entry(parameter.key)
            if entry is not None and entry.pending and entry.pending != call.id:
                call.phase = Phase.WAITING
                return
            if entry is not None and not entry.pending and is_present(entry.value):
                values[parameter.key] = entry.value
            elif not parameter.mandatory:
                values[parameter.key] = parameter.fallback
            elif call.agent.optional:
                self._skip(call)
                return
            else:
                missing = MissingArgument(call.message.agent_id, call.id, parameter.key)
                yield from self._failed(call, missing)
                return
        yield from self._launch(call, values)

    def _skip(self, call: LiveCall) -> None:
        entry = self._scope.entry(call.agent.output_key)
        if entry is not None and entry.pending == call.id:  # a former process had started it
            self._scope.put(call.agent.output_key, None)
        self._finish(call, Entry(None), Report(call.id, "skipped"))

    def _launch(self, call: LiveCall, values: Mapping[str, Any]) -> Program[None]:
        self._tokens += 1
        call.token, call.phase = self._tokens, Phase.RUNNING
        call.context = self._context(call)
        timeout = call.agent.timeout
        call.due = None if timeout is None else self._environment.clock() + timeout
        if call.agent.async_ and not call.reported:
            self._pend(call, "pending")
        function = call.agent.bind(values, call.context)
        if self.traced is not None:
            function = self.traced(function, call.context, call.agent.is_coroutine)
        yield Launch(call.token, call.agent, function, call.context)

    def _context(self, call: LiveCall) -> AgentContext:
        timeout = call.agent.timeout
        return AgentContext(
            invocation_id=self._invocation_id,
            call_id=call.id,
            agent=call.message.agent_id,
            attempt=call.attempt,
            scope=ScopeProxy(self._scope),
            deadline=None if timeout is None else self._environment.wall_clock() + timeout,
            traceparent=self._traceparent,
            final=call.message.final,
        )

    # --- waiting

    def collect(self, limit: float | None) -> Program[None]:
        """Wait until an agent ends or a time is over, at most `limit` seconds, and take in what happened."""
        now = self._environment.clock()
        due = [call.due - now for call in self._calls.values() if call.busy and call.due is not None]
        if limit is not None:
            due.append(limit)
        outcomes: list[Outcome] = yield Collect(max(0.0, min(due)) if due else None)
        for outcome in outcomes:
            yield from self._ended(outcome)
        now = self._environment.clock()
        for call in list(self._calls.values()):
            if call.phase is Phase.RUNNING and call.due is not None and call.due <= now:
                yield from self._abandon(call)
                yield from self._failed(call, _timed_out(call.message.agent_id, call.agent.timeout))

    def settle(self, *, abandon: bool, deadline: float | None) -> Program[None]:
        """Wait for all agents that still run; abandon them at the deadline, or at once if so asked.

        Their outputs are kept, their failures logged: the run ends for another reason. None is started again.
        """
        self._settling, self._on_error = True, None
        while busy := [call for call in self._calls.values() if call.busy]:
            left = None if deadline is None else deadline - self._environment.clock()
            over = abandon or (left is not None and left <= 0)
            for call in busy:
                if over or call.phase is Phase.DELAYED:
                    yield from self._abandon(call)
            if self.busy():
                yield from self.collect(left)

    def _abandon(self, call: LiveCall) -> Program[None]:
        if call.phase is Phase.RUNNING:
            yield Abandon(call.token)
        call.phase, call.token = Phase.FINISHED, 0

    def _ended(self, outcome: Outcome) -> Program[None]:
        call = next((one for one in self._calls.values() if one.token == outcome.token and one.busy), None)
        if call is None:  # abandoned in the meantime
            return
        suspend = outcome.error if isinstance(outcome.error, Suspend) else outcome.value
        if isinstance(suspend, Suspend):
            yield from self._suspend(call, suspend)
        elif outcome.error is not None:
            yield from self._failed(call, outcome.error)
        else:
            yield from self._complete(call, outcome.value)

    # --- outcomes

    def _complete(self, call: LiveCall, value: Any, *, recovered: bool = False) -> Program[None]:
        key = call.agent.output_key
        try:
            if needs_value(call.message.output_need):
                plain(value, f"output of {call.message.agent_id}")
        except UnsupportedValue as error:
            yield from self._failed(call, error)
            return
        entry = Entry(value)
        self._finish(call, entry, Report(call.id, "output", key, entry, recovered))

    def _finish(self, call: LiveCall, entry: Entry, report: Report) -> None:
        """Write the output key, then record the call, then have it reported."""
        if report.key:
            self._scope.put(report.key, entry)
        self.outputs[call.id] = CallOutput(call.message.agent_id, call.agent.output_key, entry)
        call.phase, call.due = Phase.FINISHED, None
        self.ready.append(report)

    def _suspend(self, call: LiveCall, suspend: Suspend) -> Program[None]:
        timeout = call.agent.timeout
        response_id = suspend.response_id or call.id
        taken = {one.response_id for one in self.suspensions.values() if one.call_id != call.id}
        try:
            plain(suspend.request, f"request of {call.message.agent_id}")
            if response_id in taken or response_id in self.answered:
                raise ValueError(f"the response id {response_id!r} is not unique in this invocation")
            if not call.agent.output_key:
                raise ValueError("an agent whose answer comes later needs an output key")
        except (UnsupportedValue, ValueError) as error:
            yield from self._failed(call, error)
            return
        self.suspensions[call.id] = Suspension(
            response_id=response_id,
            call_id=call.id,
            agent=call.message.agent_id,
            request=suspend.request,
            arguments=self._arguments(call),
            expires_at=None if timeout is None else self._environment.wall_clock() + timeout,
        )
        call.phase, call.due = Phase.SUSPENDED, None
        if not call.reported:
            self._pend(call, "suspended")

    def _pend(self, call: LiveCall, kind: Any) -> None:
        key = call.agent.output_key
        entry = Entry(pending=call.id)
        if key:
            self._scope.put(key, entry)
        call.reported = True
        self.ready.append(Report(call.id, kind, key, entry))

    def _arguments(self, call: LiveCall) -> dict[str, Any]:
        readable = self._scope.readable()
        return {one.key: readable[one.key] for one in call.agent.parameters if one.key in readable}

    def _failed(self, call: LiveCall, error: Exception) -> Program[None]:
        """Ask the error handler; without one, or when it gives up, the run fails."""
        call.phase, call.due = Phase.FINISHED, None
        decision: Any = None
        if self._on_error is not None:
            try:
                context = call.context or self._context(call)
                decision = yield Invoke(self._on_error, (context, error))
            except Exception as raised:  # noqa: BLE001 -- an agent has failed: that is what the run reports
                raised.__context__ = error
                decision, error = None, raised
        match decision:
            case Retry():
                call.attempt += 1
                call.phase, call.due = Phase.DELAYED, self._environment.clock() + decision.delay
            case Recover():
                handler, self._on_error = self._on_error, None  # a value that can't travel is not asked about again
                yield from self._complete(call, decision.value, recovered=True)
                self._on_error = handler
            case None:
                self._fail(call, error)
            case _:
                self._fail(call, TypeError(f"on_error returned {decision!r}: it must be a Retry, a Recover or None"))

    def _fail(self, call: LiveCall, error: Exception) -> None:
        failure: AgentFailed
        if isinstance(error, MissingArgument):
            failure = error
        else:
            what = f"agent {call.message.agent_id!r} failed: {type(error).__name__}: {error}"
            failure = AgentFailed(call.message.agent_id, call.id, what)
            failure.__cause__ = error
        if self.failure is None and not self._settling:
            self.failure = failure
        else:
            _log.warning("after the end of invocation %s was decided: %s", self._invocation_id, failure)
            self.late_failures.append(failure)

    # --- answers

    def check_answers(self, answers: Mapping[str, Any]) -> None:
        """Refuse answers that nobody waits for.

        Raises:
            AlreadyAnswered, UnknownAnswer: there is one.
        """
        expected = {suspension.response_id for suspension in self.suspensions.values()}
        for response_id in answers:
            if response_id in self.answered:
                raise AlreadyAnswered(response_id)
            if response_id not in expected:
                raise UnknownAnswer(response_id)

    def answer(self, answers: Mapping[str, Any]) -> Program[None]:
        """Take in the answers, and give up on those that are late.

        Raises:
            AlreadyAnswered: the server has an answer already.
            UnsupportedValue: an answer can't travel.
        """
        for call_id, suspension in list(self.suspensions.items()):
            call = self._calls.get(call_id)
            if suspension.response_id in answers:
                value = answers[suspension.response_id]
                if call is None:
                    raise AlreadyAnswered(suspension.response_id)
                if needs_value(call.message.output_need):
                    plain(value, f"answer to {suspension.response_id!r}")
                yield from self._complete(call, value)
                self.answered.append(suspension.response_id)
                del self.suspensions[call_id]
            elif call is None:
                del self.suspensions[call_id]
            elif suspension.expires_at is not None and suspension.expires_at <= self._environment.wall_clock():
                yield from self._late(call, suspension)

    def _late(self, call: LiveCall, suspension: Suspension) -> Program[None]:
        yield from self._failed(call, _timed_out(call.message.agent_id, call.agent.timeout))
        if call.phase is Phase.FINISHED:
            self.suspensions.pop(call.id)
        elif call.agent.timeout is not None:  # a retry: the same question, for as long again
            expires_at = self._environment.wall_clock() + call.agent.timeout
            self.suspensions[call.id] = replace(suspension, expires_at=expires_at)
            call.phase, call.due = Phase.SUSPENDED, None

    def result(self, report: Report) -> planner_pb2.AgentResult:
        """The message for a report."""
        suspension = self.suspensions.get(report.call_id)
        response_id = "" if suspension is None else suspension.response_id
        return result_of(report, self._calls[report.call_id].message, response_id, self._scope.salt)


def _timed_out(agent_id: str, timeout: float | None) -> CallTimedOut:
    return CallTimedOut(f"agent {agent_id!r} did not answer within its time limit of {timeout} seconds")
