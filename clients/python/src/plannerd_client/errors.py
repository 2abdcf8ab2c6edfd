"""Everything that this package raises: `PlannerdError` and one subclass for each thing worth catching by itself.

An error that came from the server has a `reason`, the name of a `planner.v1.ErrorReason` without its prefix, and
is an instance of the class for that reason. A reason that this version does not know gives a bare
`PlannerdError`. Errors of the runner (`GaveUp`, `AgentFailed`, ...) are `PlannerdError`s as well.
"""
# ruff: noqa: N818 -- the classes are named after what happened, as the reasons are

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    import grpc

    from plannerd_client._snapshot import Snapshot
    from plannerd_protos.planner.v1 import step_pb2


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One bad field of a request: its path (`agents[2].name`) and what is wrong with it."""

    field: str
    description: str


class PlannerdError(Exception):
    """The base of all errors of this package.

    Args:
        message: what is wrong and what to do.
        reason: the reason, if it differs from the one of the class.
        code: the gRPC status code; None for errors that never were one.
        metadata: machine-readable facts: ids, limits, positions.
        violations: the bad fields, where the request itself is wrong.
        retry_after: seconds after which the same request may succeed; None where waiting does not help.

    Attributes:
        snapshot: what a run that ended with this error can be continued from, by `run(..., resume=snapshot)`.
            None where there is nothing to continue.
    """

    reason: str = ""

    by_reason: ClassVar[dict[str, type[PlannerdError]]] = {}
    """The class of each reason."""

    def __init_subclass__(cls, reason: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if reason:
            cls.reason = reason
            cls.by_reason[reason] = cls

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        code: grpc.StatusCode | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if reason is not None:
            self.reason = reason
        self.code = code
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after
        self.snapshot: Snapshot | None = None

    def __str__(self) -> str:
        name = self.reason or (self.code.name if self.code else "")
        return f"{name}: {self.message}" if name else self.message


# --- what the client sent is wrong


class InvalidRequest(PlannerdError, reason="INVALID_REQUEST"):
    """A field is missing, malformed or contradicts another."""


class InvalidConfiguration(PlannerdError, reason="INVALID_CONFIGURATION"):
    """A planner or an agent is described in a way that can't work."""


class InvalidValue(PlannerdError, reason="INVALID_VALUE"):
    """A value breaks a rule of the wire. What this package encodes does not; see `UnsupportedValue`."""


class InvalidCondition(PlannerdError, reason="INVALID_CONDITION"):
    """A condition can't be compiled or is refused."""


class InvalidExecutionState(PlannerdError, reason="INVALID_EXECUTION_STATE"):
    """An execution state is malformed, truncated, extended or not consistent."""


class UnknownCall(PlannerdError, reason="UNKNOWN_CALL"):
    """A result is for a call that the invocation never issued."""


class MissingBelief(PlannerdError, reason="MISSING_BELIEF"):
    """A belief that the planner needs has no function here, or was not sent."""


class UnsupportedInput(PlannerdError, reason="UNSUPPORTED_INPUT"):
    """A value in a decision's input is of a type that no decision model takes."""


# --- what it names does not exist, or is taken


class InvocationNotFound(PlannerdError, reason="INVOCATION_NOT_FOUND"):
    """No such invocation here, or it belongs to somebody else."""


class PlannerNotFound(PlannerdError, reason="PLANNER_NOT_FOUND"):
    """No planner of that name."""


class DecisionModelNotFound(PlannerdError, reason="DECISION_MODEL_NOT_FOUND"):
    """No decision model of that name."""


class InvocationAlreadyExists(PlannerdError, reason="INVOCATION_ALREADY_EXISTS"):
    """The id is in use by another invocation."""


# --- the request does not fit what the invocation is doing


class OutOfOrder(PlannerdError, reason="OUT_OF_ORDER"):
    """A request came before the one that must precede it."""


class CallAlreadyReported(PlannerdError, reason="CALL_ALREADY_REPORTED"):
    """A result of this call was reported before; the first one stays."""


class InvocationFinished(PlannerdError, reason="INVOCATION_FINISHED"):
    """The invocation is done, gave up or failed."""


class InvocationEnded(PlannerdError, reason="INVOCATION_ENDED"):
    """The invocation was ended."""


class StateOfOtherPlanner(PlannerdError, reason="STATE_OF_OTHER_PLANNER"):
    """The execution state is another kind of planner's."""


class StateNewer(PlannerdError, reason="STATE_NEWER"):
    """The execution state has a newer format than this server knows; another replica may know it."""


class LiveAgentMissing(PlannerdError, reason="LIVE_AGENT_MISSING"):
    """A live call of the resumed state is of an agent that is no longer declared."""


class ConditionFailed(PlannerdError, reason="CONDITION_FAILED"):
    """A condition could not be evaluated. Where a belief of this client raised, `__cause__` is what it raised."""


class ValueRequired(PlannerdError, reason="VALUE_REQUIRED"):
    """The planner must read a value that was sent as a tag or withheld."""


class EmptyDecisionInput(PlannerdError, reason="EMPTY_DECISION_INPUT"):
    """There is nothing to decide on: the decision's input is empty."""


# --- somebody else, or another replica, is further


class StaleRevision(PlannerdError, reason="STALE_REVISION"):
    """The base of the request is older than the invocation: somebody else made a step."""


class ReplicaBehind(PlannerdError, reason="REPLICA_BEHIND"):
    """This replica is behind the client; it dropped its copy."""


class StateOutdated(PlannerdError, reason="STATE_OUTDATED"):
    """The invocation is further than the snapshot: somebody else goes on with it, or went on. See `take_over`."""


class OwnerChanged(PlannerdError, reason="OWNER_CHANGED"):
    """Somebody took the invocation over, or it was forked. This client must stop."""


# --- bounds


class LimitExceeded(PlannerdError, reason="LIMIT_EXCEEDED"):
    """A limit of the server; message and metadata name it."""


class TooManyInvocations(PlannerdError, reason="TOO_MANY_INVOCATIONS"):
    """The caller has too many live invocations."""


class ReplyTooLarge(PlannerdError, reason="REPLY_TOO_LARGE"):
    """The reply would exceed `max_reply_bytes`; the step did not happen."""


class DecisionQueueFull(PlannerdError, reason="DECISION_QUEUE_FULL"):
    """Too many requests wait for the decision model."""


# --- the decision model


class DecisionModelLimit(PlannerdError, reason="DECISION_MODEL_LIMIT"):
    """The decision exceeds a limit of the model; message and metadata name it."""


class DecisionRefused(PlannerdError, reason="DECISION_REFUSED"):
    """The model declined to answer a question whose answer is needed."""


class DecisionModelUnexpected(PlannerdError, reason="DECISION_MODEL_UNEXPECTED"):
    """Another model answered than `DecisionOptions.expected_model`, and `strict` is set."""


class DecisionModelUnavailable(PlannerdError, reason="DECISION_MODEL_UNAVAILABLE"):
    """The decision model can't be reached, takes too long or throttles, after the server's own retries."""


class DecisionInvalidAnswer(PlannerdError, reason="DECISION_INVALID_ANSWER"):
    """The decision model answered something that is no valid answer."""


class DecisionModelCredentials(PlannerdError, reason="DECISION_MODEL_CREDENTIALS"):
    """The decision model rejects the server's credentials."""


class DecisionModelRejected(PlannerdError, reason="DECISION_MODEL_REJECTED"):
    """The decision model's host rejects the server's request as such; its operator must mend that."""


# --- the server and the way to it


class StoreUnavailable(PlannerdError, reason="STORE_UNAVAILABLE"):
    """The server's shared store can't be reached."""


class StoreFull(PlannerdError, reason="STORE_FULL"):
    """The server's shared store has no room left."""


class Draining(PlannerdError, reason="DRAINING"):
    """The server is shutting down; another replica answers."""


class Unauthenticated(PlannerdError, reason="UNAUTHENTICATED"):
    """No valid identity."""


class PermissionDenied(PlannerdError, reason="PERMISSION_DENIED"):
    """Only operators of the server may do this."""


class NotImplementedByServer(PlannerdError, reason="NOT_IMPLEMENTED"):
    """This version of the server can't do it yet."""


class SwitchedOff(PlannerdError, reason="SWITCHED_OFF"):
    """The server's operator switched it off."""


class DeadlineExceeded(PlannerdError, reason="DEADLINE_EXCEEDED"):
    """The request took longer than its time limit; nothing happened, or the answer got lost."""


class RequestCancelled(PlannerdError, reason="CANCELLED"):
    """The request was cancelled on its way."""


class ServerBug(PlannerdError, reason="INTERNAL"):
    """A bug of the server. `metadata["correlation_id"]` finds the cause in its log."""


class ServerUnreachable(PlannerdError):
    """The connection failed or broke."""


# --- what this package itself finds wrong


class ProtocolError(PlannerdError):
    """The server sent something that makes no sense to this client: it is older than the server, or no plannerd."""


class UnknownAction(ProtocolError):
    """The server decided on an action that this version of the client does not know. Nothing was run."""


class UnsupportedValue(PlannerdError, TypeError):
    """A value can't travel.

    Args:
        path: where it is, from the scope key or the agent downwards: `ticket.lines[2].price`.
        problem: why it can't travel, and what can.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


class PendingValue(PlannerdError):
    """A scope key was read whose value has not arrived yet."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the value of {key!r} has not arrived yet")
        self.key = key


class InvalidSnapshot(PlannerdError, ValueError):
    """Bytes are no snapshot, are damaged, or come from a newer version of this package."""


class UnknownAnswer(PlannerdError):
    """An answer is for a response id that nobody waits for. Nothing was sent."""

    def __init__(self, response_id: str, message: str = "") -> None:
        super().__init__(message or f"nobody waits for an answer to {response_id!r}")
        self.response_id = response_id


class AlreadyAnswered(UnknownAnswer):
    """An answer is for a response id that was answered before; the first answer stays. Nothing was sent."""

    def __init__(self, response_id: str) -> None:
        super().__init__(response_id, f"{response_id!r} was answered before; the first answer stays")


# --- how a run ends without a result


class GaveUp(PlannerdError):
    """The planner ended the invocation without a result that counts.

    Attributes:
        reason: why, in a word: NO_CANDIDATE, BELOW_THRESHOLD, MAX_INVOCATIONS, NO_ACTIVE_AGENT,
            INTENTION_EXHAUSTED or OTHER.
        explanation: what the planner found in its last step.
    """

    def __init__(self, message: str, *, reason: str, explanation: step_pb2.Explanation) -> None:
        super().__init__(message, reason=reason)
        self.explanation = explanation


class AgentFailed(PlannerdError):
    """An agent failed and nothing recovered it. `__cause__` is what it raised.

    Attributes:
        agent: the id of the agent.
        call_id: the call.
    """

    def __init__(self, agent: str, call_id: str, message: str) -> None:
        super().__init__(message)
        self.agent = agent
        self.call_id = call_id


class MissingArgument(AgentFailed):
    """A mandatory argument of an agent that is not optional is not in the scope. The agent was not called.

    Attributes:
        argument: the scope key that is missing.
    """

    def __init__(self, agent: str, call_id: str, argument: str) -> None:
        super().__init__(agent, call_id, f"agent {agent!r} needs {argument!r}, which is not in the scope")
        self.argument = argument


class CallTimedOut(PlannerdError, TimeoutError):
    """An agent, or the human behind it, did not answer within the `timeout` of the agent."""


class RunTimedOut(PlannerdError, TimeoutError):
    """A run did not end within its `timeout`. It can be continued from `snapshot`."""


WITHOUT_REASON: Final[Mapping[str, type[PlannerdError]]] = {
    "UNAVAILABLE": ServerUnreachable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": RequestCancelled,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
}
"""The class for errors that no plannerd gave a reason, by gRPC code: broken connections, local deadlines, proxies."""
