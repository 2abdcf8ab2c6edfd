"""The conversation with the server about one invocation: positions, retries, and going on on another replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from google.protobuf.message import Message

from plannerd_client._definition import Definition
from plannerd_client._effects import Invoke, Pause, Program, Send
from plannerd_client._recording import HEADER, RECORDED, recorded
from plannerd_client._results import Step, step_of
from plannerd_client._retries import Budget, Remedy, RetryPolicy, remedy
from plannerd_client._scope import Changes, Scope, ScopeView, update, whole
from plannerd_client.errors import ConditionFailed, MissingBelief, PlannerdError, RunTimedOut
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2

_log: Final = logging.getLogger("plannerd_client")
# Why Init is refused where the invocation is further than the client's state.
_AHEAD: Final = frozenset({"STATE_OUTDATED", "INVOCATION_ALREADY_EXISTS"})
_AHEAD_LIMIT: Final = 8
_END_POLICY: Final = RetryPolicy(attempts=3, total=5.0)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Environment:
    """What a run takes from its surroundings.

    Args:
        clock: seconds from any start, never going back.
        wall_clock: seconds since the epoch.
        chance: numbers from 0 to 1.
    """

    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    chance: Callable[[], float]


class _Reply(Protocol):
    @property
    def step(self) -> step_pb2.Step: ...


class Link:
    """One invocation as seen over the wire.

    Args:
        definition: what the run is.
        invocation_id: the invocation.
        scope: the scope of the run.
        environment: clocks and chance.
        policy: how often a request is sent again.
        rpc_timeout: seconds that one attempt of a request may take; None for no limit.
        deadline: when the run must be over, by the clock; None for no limit.
        record: is called with each line of a recording of the run.

    Attributes:
        position: where the invocation is.
        state: its execution state after the last step that was answered; None before the first.
        init: what the server said when the invocation was set up.
    """

    def __init__(
        self,
        definition: Definition,
        invocation_id: str,
        scope: Scope,
        environment: Environment,
        *,
        policy: RetryPolicy,
        rpc_timeout: float | None,
        deadline: float | None,
        record: Callable[[str], Any] | None = None,
    ) -> None:
        self.invocation_id = invocation_id
        self.position = step_pb2.Position()
        self.state: step_pb2.ExecutionState | None = None
        self.init = planner_pb2.InitResponse()
        self._definition = definition
        self._scope = scope
        self._view = ScopeView(scope)
        self._environment = environment
        self._policy = policy
        self._rpc_timeout = rpc_timeout
        self._deadline = deadline
        self._record = record
        self._recording = False
        self._belief_error: Exception | None = None
        self._restores = 0
        self._take_over = False

    # --- requests

    def open(self, *, take_over: bool = False) -> Program[None]:
        """Set the invocation up, from `state` where there is one."""
        self._take_over = take_over
        self._opened((yield from self._exchange("Init", self._init_request(), self._budget())))

    def first(self, changes: Changes) -> Program[Step]:
        """Give the scope, which has `changes` beyond what the server knows, and get the first action."""
        entries = {**self._scope.known(), **changes}
        present = {key: entry for key, entry in entries.items() if entry is not None}
        request = planner_pb2.FirstActionRequest(
            invocation_id=self.invocation_id,
            base=self.position,
            scope=whole(present, self.init.reads, self._scope.salt),
            beliefs=self._beliefs(),
        )
        return (yield from self._step("FirstAction", request))

    def attach(self) -> Program[Step]:
        """Give the scope as the server knew it, and get the current action."""
        return (yield from self._step("FirstAction", self._attach_request()))

    def next_request(
        self, results: Iterable[planner_pb2.AgentResult], changes: Changes
    ) -> planner_pb2.NextActionRequest:
        """The request that reports `results` and `changes` of other keys."""
        return planner_pb2.NextActionRequest(
            invocation_id=self.invocation_id,
            base=self.position,
            scope=update(changes, self.init.reads, self._scope.salt),
            beliefs=self._beliefs(),
            results=results,
        )

    def next(self, request: planner_pb2.NextActionRequest, *, restoring: bool = True) -> Program[Step]:
        """Send what `next_request` made, and get the next action; with `restoring`, wherever that is."""
        return (yield from self._step("NextAction", request, restoring=restoring))

    def rebased(self, request: M) -> M:
        """`request`, for the position that the server is at now. The same bytes where that did not change."""
        copy = type(request)()
        copy.CopyFrom(request)
        cast("Any", copy).base.CopyFrom(self.position)
        return copy

    def end(self, outcome: planner_pb2.EndOutcome.ValueType, message: str = "") -> Program[None]:
        """Release the invocation, as well as that works: the run is over in any case."""
        request = planner_pb2.EndRequest(
            invocation_id=self.invocation_id, base=self.position, outcome=outcome, message=message[:1000]
        )
        budget = Budget(_END_POLICY, self._environment.clock, self._environment.chance)
        try:
            yield from self._exchange("End", request, budget)
        except PlannerdError as error:
            _log.warning("invocation %s could not be ended: %s", self.invocation_id, error)

    # --- how they are sent

    def _step(self, method: str, request: Message, *, restoring: bool = True) -> Program[Step]:
        started, self._restores = self._environment.clock(), 0
        budget = self._budget()
        try:
            reply = cast("_Reply", (yield from self._exchange(method, request, budget, restoring=restoring)))
        except ConditionFailed as error:
            raise error from self._belief_error
        self._advance(reply.step)
        step = step_of(
            reply.step,
            seconds=self._environment.clock() - started,
            retries=budget.failures,
            restores=self._restores,
        )
        for warning in step.warnings:
            _log.warning("invocation %s: %s", self.invocation_id, warning.message)
        return step

    def _exchange(self, method: str, request: Message, budget: Budget, *, restoring: bool = False) -> Program[Message]:
        """Send a request until it is answered, it is clear that it won't be, or the budget is used up.

        With `restoring`, an invocation that the server lost is continued from its last state first.
        """
        attach: Message | None = None
        lost, ahead = False, 0
        while True:
            try:
                if lost:
                    self._opened((yield from self._send("Init", self._init_request())))
                    attach, request = self._attach_request(), self.rebased(request)
                    lost, self._restores = False, self._restores + 1
                if attach is not None and self.state is not None and method != "FirstAction":
                    self._advance(cast("_Reply", (yield from self._send("FirstAction", attach))).step)
                    request = self.rebased(request)
                attach = None
                return (yield from self._send(method, request))
            except PlannerdError as error:
                what = remedy(error)
                if lost and error.reason in _AHEAD and ahead < _AHEAD_LIMIT:
                    # Another replica than the one that asked for this: perhaps it is ahead by this very request.
                    attach, lost, ahead, what = None, False, ahead + 1, Remedy.RESEND
                if what is Remedy.STOP or (what is Remedy.RESTORE and not restoring):
                    raise
                wait = budget.wait_before_next(error.retry_after)
                if wait is None:
                    raise
                _log.info("invocation %s: %s failed, trying again: %s", self.invocation_id, method, error)
                lost = lost or what is Remedy.RESTORE
                if what is Remedy.RESEND or budget.failures > 1:
                    yield from self._pause(wait)

    def _send(self, method: str, request: Message) -> Program[Message]:
        timeout, remaining = self._rpc_timeout, self.remaining()
        if remaining is not None:
            timeout = remaining if timeout is None else min(timeout, remaining)
        reply = cast("Message", (yield Send(method, request, timeout)))
        if self._record is not None and method in RECORDED:
            if not self._recording:
                self._recording = True
                yield Invoke(self._record, (HEADER,))
            yield Invoke(self._record, (recorded(method, request, reply),))
        return reply

    def _pause(self, seconds: float) -> Program[None]:
        remaining = self.remaining()
        yield Pause(seconds if remaining is None else min(seconds, remaining))
        self.remaining()

    def remaining(self) -> float | None:
        """Seconds that the run has left, None for no limit.

        Raises:
            RunTimedOut: none are left.
        """
        if self._deadline is None:
            return None
        left = self._deadline - self._environment.clock()
        if left <= 0:
            raise RunTimedOut("the run did not end within its time limit")
        return left

    # --- what they consist of

    def _budget(self) -> Budget:
        return Budget(self._policy, self._environment.clock, self._environment.chance)

    def _init_request(self) -> planner_pb2.InitRequest:
        request = planner_pb2.InitRequest()
        request.CopyFrom(self._definition.request)
        request.invocation_id = self.invocation_id
        if self.state is not None:
            request.state.CopyFrom(self.state)
            request.take_over = self._take_over
        return request

    def _opened(self, response: Message) -> None:
        self.init = cast("planner_pb2.InitResponse", response)
        self.position = self.init.position

    def _attach_request(self) -> planner_pb2.FirstActionRequest:
        return planner_pb2.FirstActionRequest(
            invocation_id=self.invocation_id,
            base=self.position,
            scope=whole(self._scope.known(), self.init.reads, self._scope.salt),
            beliefs=self._beliefs(),
        )

    def _advance(self, step: step_pb2.Step) -> None:
        self.position = step.position
        self._take_over = False  # it is done: the state has the new epoch
        if step.HasField("state"):
            self.state = step.state

    def _beliefs(self) -> Mapping[str, agent_pb2.Belief.ValueType]:
        """Evaluate the beliefs that the planner needs, now."""
        self._belief_error = None
        return {name: self._belief(name) for name in self.init.beliefs}

    def _belief(self, name: str) -> agent_pb2.Belief.ValueType:
        function = self._definition.beliefs.get(name)
        if function is None:
            raise MissingBelief(f"the planner needs the belief {name!r}: pass a function for it in `beliefs`")
        try:
            holds = function(self._view)
            if not isinstance(holds, bool):
                raise TypeError(f"belief {name!r} returned {holds!r}, which is neither True nor False")
        except Exception as error:  # noqa: BLE001 -- whatever a belief raises, it is not known to hold
            _log.warning("belief %s could not be evaluated", name, exc_info=True)
            self._belief_error = error
            return agent_pb2.BELIEF_FAILED
        return agent_pb2.BELIEF_TRUE if holds else agent_pb2.BELIEF_FALSE
