"""One step of an invocation, worked out on the side.

A transition takes a record and a request and ends in a new record, or raises; the old record is never
touched, so that a step that fails, is cancelled or runs out of time leaves the invocation as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from plannerd.conditions import Beliefs
from plannerd.decisions.questions import DecisionRequest
from plannerd.errors import PlannerdError, Reason, invalid
from plannerd.invocations.calls import (
    Answered,
    CallResult,
    CallStatus,
    Failed,
    LiveCall,
    Skipped,
    Suspended,
    WillAnswer,
    Withheld,
)
from plannerd.invocations.explanation import ConditionOutcome, Explanation
from plannerd.invocations.record import (
    AwaitCalls,
    CallOutput,
    Finished,
    Held,
    NamedOutputs,
    PlannerValue,
    Record,
    ScopeOutput,
    StartCalls,
    StepAction,
    StepResult,
    SuspendCalls,
)
from plannerd.invocations.scope import PENDING_MARK, Scope, ScopeChange, ScopeLimits, changed_keys, salt
from plannerd.invocations.view import InvocationView
from plannerd.planners.moves import (
    Await,
    Done,
    GiveUp,
    GiveUpReason,
    Move,
    NoOp,
    Outcome,
    OutputOf,
    OutputsOf,
    Result,
    ResultValue,
    Start,
    Warn,
)
from plannerd.planners.planner import Answers, Need, Report, Reported, Thinking
from plannerd.values import PENDING, Opaque, ScopeValue

Ask: TypeAlias = Callable[[DecisionRequest], Awaitable[Answers]]
"""Asks the invocation's decision model."""

_ENDINGS = (Finished, GiveUp)


class Transition:
    """The step that leads from `record` to its next position.

    Args:
        record: the invocation before the step.
        beliefs: every belief that the planner declared.
        ask: asks the decision model.
        limits: how much scope may be kept.
    """

    def __init__(self, record: Record, beliefs: Beliefs, ask: Ask, limits: ScopeLimits) -> None:
        self._before = record
        self._planner = record.definition.planner
        self._agents = self._planner.system.agents
        self._salt = salt(record.invocation_id)
        self._beliefs = beliefs
        self._ask = ask
        self._limits = limits
        self._position = record.position.next()
        self._state = record.planner_state
        self._scope = record.scope
        self._known = record.known
        self._calls = {call.id: call for call in record.calls}
        self._issued = record.issued
        self._finished = dict(record.finished)
        self._waiting = record.waiting
        self._held = record.held
        self._started: list[str] = []
        self._failed = False
        self._warnings: list[Warn] = list(record.warnings)
        self._conditions: list[ConditionOutcome] = []
        self._move: Move[object] | None = None

    # ---- the kinds of step -------------------------------------------------------------------------

    async def begin(self, snapshot: ScopeChange) -> tuple[Record, Explanation, tuple[Warn, ...]]:
        """The first action of an invocation that has none yet."""
        self._write(snapshot)
        if not self._known:
            self._known = self._scope.marks
        await self._think(lambda view: self._planner.begin(self._state, view))
        return self._finish()

    def attach(self, snapshot: ScopeChange) -> tuple[Record, Explanation, tuple[Warn, ...]]:
        """A client gives the whole scope anew; nothing is decided."""
        self._scope = Scope()
        self._write(snapshot)
        arrived = {
            key: mark
            for key, mark in self._scope.marks.items()
            if self._known.get(key) == PENDING_MARK and mark != PENDING_MARK
        }
        self._known = {**self._known, **arrived}
        action = self._before.action or NoOp()
        explanation = Explanation(Outcome.ATTACHED, "A client attached; nothing was decided.")
        return replace(self._record(action), position=self._before.position), explanation, tuple(self._warnings)

    async def report(
        self, change: ScopeChange, results: Sequence[CallResult]
    ) -> tuple[Record, Explanation, tuple[Warn, ...]]:
        """Changes of the scope first, then each result in order: write its output, record it, tell the planner."""
        self._check(results)
        self._write(change)
        for result in results:
            call = self._calls[result.call_id]
            report = self._record_result(call, result)
            if self._failed:
                continue  # siblings in the same request are recorded, but nothing follows from them
            if isinstance(result.outcome, Failed):
                self._fail(call, result.outcome)
            elif report is not None:
                await self._tell(report)
        if not self._failed and self._waiting is not None and not self._still_pending():
            self._waiting = None
            await self._think(lambda view: self._planner.proceed(self._state, view))
        return self._finish()

    # ---- results -----------------------------------------------------------------------------------

    def _check(self, results: Sequence[CallResult]) -> None:
        """Refuse the whole batch if any result in it does not fit; nothing has been applied yet."""
        if not results and not self._before.idle:
            raise PlannerdError(
                Reason.OUT_OF_ORDER,
                "results must not be empty while calls are running; ask again without results only after an "
                "await or a suspend action.",
            )
        seen: set[str] = set()
        reported: list[str] = []
        for position, result in enumerate(results):
            path = f"results[{position}]"
            if result.call_id in seen:
                raise invalid(f"{path}.call_id", f"'{result.call_id}' stands twice in this request")
            seen.add(result.call_id)
            call = self._calls.get(result.call_id)
            if call is None and result.call_id not in self._issued:
                raise invalid(
                    f"{path}.call_id",
                    f"'{result.call_id}' is no call of this invocation",
                    reason=Reason.UNKNOWN_CALL,
                    metadata={"call_id": result.call_id},
                )
            if call is None or self._repeats(call, result):
                reported.append(result.call_id)
            else:
                self._check_outcome(call, result, path)
        if reported:
            raise PlannerdError(
                Reason.CALL_ALREADY_REPORTED,
                f"These calls were reported before, and what was reported first stays: {', '.join(reported)}. "
                "Send the step again without them.",
                metadata={"call_ids": ",".join(reported)},
            )

    @staticmethod
    def _repeats(call: LiveCall, result: CallResult) -> bool:
        return (isinstance(result.outcome, WillAnswer) and call.status is CallStatus.PENDING) or (
            isinstance(result.outcome, Suspended) and call.status is CallStatus.SUSPENDED
        )

    def _check_outcome(self, call: LiveCall, result: CallResult, path: str) -> None:
        agent = self._agents[call.agent]
        match result.outcome:
            case WillAnswer() | Suspended() if agent.output_key is None:
                raise invalid(
                    path,
                    f"'{agent.name}' has no output key, so its output can't come later; declare one at Init",
                )
            case WillAnswer() if not (agent.is_async or agent.human):
                raise invalid(
                    path, f"'{agent.name}' is declared neither async nor human, so its output can't be pending"
                )
            case Answered(output=output):
                need = self._planner.output_need(call.agent)
                if (need is Need.VALUE and isinstance(output, Opaque | Withheld)) or (
                    need is Need.PRESENCE and isinstance(output, Withheld)
                ):
                    raise PlannerdError(
                        Reason.VALUE_REQUIRED,
                        f"{path}.output: the planner needs the {need.name.lower()} of '{agent.output_key}', "
                        f"but it was sent as {type(output).__name__.lower()}. Call.output_need says what is needed.",
                        metadata={"key": agent.output_key or "", "call_id": call.id},
                    )
            case _:
                pass

    def _record_result(self, call: LiveCall, result: CallResult) -> Report | None:
        """Write and record one result; the report to tell the planner, if it is to hear of this one."""
        key = self._agents[call.agent].output_key
        match result.outcome:
            case Answered(output=output, size=size):
                self._end(call)
                if not isinstance(output, Withheld):
                    self._set(key, output, size)
                if call.told:
                    return None
                value = None if isinstance(output, Withheld | Opaque) else output
                return Report(call.agent, Reported.ANSWERED, value)
            case Skipped():
                self._end(call)
                if self._scope.pending(key or "") and not self._on_the_way(key or ""):
                    self._set(key, None)
                if not call.told:
                    return Report(call.agent, Reported.SKIPPED)
                self._state = self._planner.lost(self._state, call.agent)
                return None
            case WillAnswer(external=external):
                told_before = call.told
                self._calls[call.id] = replace(
                    call, status=CallStatus.PENDING, told=True, external=external, response_id=""
                )
                self._set(key, PENDING)
                return None if told_before else Report(call.agent, Reported.PENDING)
            case Suspended(response_id=response_id):
                self._calls[call.id] = replace(call, status=CallStatus.SUSPENDED, response_id=response_id)
                self._set(key, PENDING)
                return None
            case Failed():
                self._end(call)
                return None

    def _end(self, call: LiveCall) -> None:
        del self._calls[call.id]
        if self._planner.refers:
            self._finished[call.agent] = call.id

    def _fail(self, call: LiveCall, failure: Failed) -> None:
        name = self._agents[call.agent].name
        message = f"The agent '{name}' failed ({failure.type or 'no type given'}) and its client gave up."
        self._held = Held(GiveUp(GiveUpReason.AGENT_FAILED, message), Outcome.FAILED, message)
        self._waiting = None
        self._failed = True

    # ---- scope -------------------------------------------------------------------------------------

    def _write(self, change: ScopeChange) -> None:
        self._scope = self._scope.write(change, self._planner.reads_at(self._state), self._planner.watched, self._salt)
        self._scope.check(self._limits)

    def _set(self, key: str | None, value: ScopeValue, size: int = 0) -> None:
        if key is None:
            return
        arrival = self._scope.marks.get(key) == PENDING_MARK and self._known.get(key) == PENDING_MARK
        self._write(ScopeChange(removed=(key,)) if value is None else ScopeChange({key: value}, sizes={key: size}))
        if arrival and value is not PENDING:
            # The planner has heard of this output when it became pending; its arrival changes nothing.
            known = dict(self._known)
            known.pop(key)
            if key in self._scope.marks:
                known[key] = self._scope.marks[key]
            self._known = known

    def _pending(self, key: str) -> bool:
        """Whether `key` waits for an output.

        A planner that reads values is served as soon as the scope has one, whoever wrote it; for one whose
        results name calls, or that does not read the key, it is the calls that count.
        """
        if self._scope.pending(key):
            return True
        if key in self._planner.reads and not self._planner.refers:
            return False
        return self._on_the_way(key)

    def _on_the_way(self, key: str) -> bool:
        """Whether a live call that was reported as pending or suspended will write `key`."""
        return any(
            self._agents[call.agent].output_key == key
            for call in self._calls.values()
            if call.status is not CallStatus.OUTSTANDING
        )

    def _still_pending(self) -> bool:
        return any(self._pending(key) for key in self._waiting or ())

    # ---- the planner -------------------------------------------------------------------------------

    async def _tell(self, report: Report) -> None:
        await self._think(lambda view: self._planner.told(self._state, view, report))

    async def _think(self, start: Callable[[InvocationView], Thinking[object]]) -> None:
        changed = changed_keys(self._scope.marks, self._known, self._planner.watched)
        view = InvocationView(self._scope, self._beliefs, changed, self._pending)
        move = await self._drive(start(view))
        self._known = self._scope.marks
        self._conditions.extend(view.evaluated)
        self._apply(move)

    async def _drive(self, thinking: Thinking[object]) -> Move[object]:
        """Ask whatever the planner wants to know, until it has made up its mind."""
        try:
            request = next(thinking)
            while True:
                answers = await self._ask(request)
                request = thinking.send(answers)
        except StopIteration as stop:
            move: Move[object] = stop.value
            return move
        finally:
            thinking.close()

    def _apply(self, move: Move[object]) -> None:
        self._state = move.state
        self._warnings.extend(move.warnings)
        self._move = move
        match move.action:
            case Start(agents, final):
                self._waiting = self._held = None
                for agent in agents:
                    self._issued, call_id = self._issued.add(self._position.branch, self._position.revision)
                    self._calls[call_id] = LiveCall(call_id, agent, final=final)
                    self._started.append(call_id)
            case Await(keys):
                self._waiting, self._held = keys, None
            case Done(result):
                self._hold(Finished(self._resolve(result)), move)
            case GiveUp():
                self._hold(move.action, move)
            case NoOp():
                pass

    def _hold(self, action: Finished | GiveUp, move: Move[object]) -> None:
        self._waiting = None
        held = self._held.action if self._held else None
        if isinstance(held, Finished) and held.result is not None and action == Finished():
            return  # an ending with a result is not replaced by one without
        self._held = Held(action, move.outcome, move.summary)

    def _resolve(self, result: Result | None) -> StepResult | None:
        match result:
            case None:
                return None
            case ResultValue(value):
                return PlannerValue(value)
            case OutputOf(agent):
                return self._output(agent) or PlannerValue(None)
            case OutputsOf(agents):
                return NamedOutputs(tuple((name, self._output(agent)) for name, agent in agents))

    def _output(self, agent: int) -> CallOutput | ScopeOutput | None:
        """Where the client finds an agent's output: by call; by key if it answered before a bare resume."""
        call_id = self._finished.get(agent)
        if call_id is not None:
            return CallOutput(call_id)
        key = self._agents[agent].output_key
        return None if key is None else ScopeOutput(key)

    # ---- the end of the step -----------------------------------------------------------------------

    def _compose(self) -> StepAction:
        """Calls, else await, else suspend, else the ending, else nothing (docs/contract.md)."""
        if self._failed and self._held is not None:
            return self._held.action
        if self._started:
            return StartCalls(tuple(self._started))
        live = tuple(self._calls.values())
        outstanding = any(call.status is CallStatus.OUTSTANDING for call in live)
        suspended = tuple(call.id for call in live if call.status is CallStatus.SUSPENDED)
        if self._waiting is not None:
            keys = tuple(key for key in self._waiting if self._pending(key))
            writers = tuple(
                call.id
                for call in live
                if call.status is CallStatus.PENDING and self._agents[call.agent].output_key in keys
            )
            if writers or not (outstanding or suspended):
                return AwaitCalls(keys, writers)
        if outstanding:
            return NoOp()
        if suspended:
            return self._needed_first(live) or SuspendCalls(suspended)
        return self._held.action if self._held is not None else NoOp()

    def _needed_first(self, live: Sequence[LiveCall]) -> AwaitCalls | None:
        """Before a suspension, which frees everything: outputs on their way that the planner needs."""
        awaited = self._planner.awaits(self._state)
        calls = [call for call in live if call.status is CallStatus.PENDING and call.agent in awaited]
        keys = dict.fromkeys(self._agents[call.agent].output_key or "" for call in calls)
        return AwaitCalls(tuple(keys), tuple(call.id for call in calls)) if calls else None

    def _finish(self) -> tuple[Record, Explanation, tuple[Warn, ...]]:
        action = self._compose()
        return self._record(action), self._explain(action), tuple(self._warnings)

    def _record(self, action: StepAction) -> Record:
        ended = isinstance(action, _ENDINGS)
        return replace(
            self._before,
            position=self._position,
            planner_state=self._state,
            scope=self._scope,
            known=self._known,
            calls=() if ended else tuple(self._calls.values()),
            issued=self._issued,
            finished=self._finished,
            waiting=self._waiting,
            held=None if ended else self._held,
            action=action,
            attached=True,
            warnings=(),
        )

    def _explain(self, action: StepAction) -> Explanation:
        move, conditions = self._move, tuple(self._conditions)
        if isinstance(action, _ENDINGS) and self._held is not None:
            outcome, summary = self._held.outcome, self._held.summary
        elif isinstance(action, SuspendCalls):
            outcome, summary = Outcome.SUSPENDED, "Waiting for somebody to answer."
        elif isinstance(action, AwaitCalls) and (move is None or not isinstance(move.action, Await)):
            outcome, summary = Outcome.AWAITING, f"Waiting for: {', '.join(action.keys)}."
        elif isinstance(action, NoOp) or move is None:
            outcome, summary = Outcome.RECORDED, "Recorded; other calls are still running."
        else:
            outcome, summary = move.outcome, move.summary
        if move is None:
            return Explanation(outcome, summary, conditions=conditions)
        return Explanation(outcome, summary, move.agents, move.goal, conditions)
