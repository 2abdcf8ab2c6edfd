"""The domain errors: what can go wrong with a request, and the reason that says so.

Every error that a client may see is a `PlannerdError` with one `Reason`. The reasons are the names of
`planner.v1.ErrorReason` without their prefix; `transport` maps each one to a gRPC code. Messages are
written for the client: they name the field, what is wrong with its value and what to do. Anything else
that is raised becomes INTERNAL with a fixed text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a request failed. Documented one by one at `planner.v1.ErrorReason`."""

    # What the client sent is wrong.
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_CONFIGURATION = "INVALID_CONFIGURATION"
    INVALID_VALUE = "INVALID_VALUE"
    INVALID_CONDITION = "INVALID_CONDITION"
    INVALID_EXECUTION_STATE = "INVALID_EXECUTION_STATE"
    UNKNOWN_CALL = "UNKNOWN_CALL"
    MISSING_BELIEF = "MISSING_BELIEF"
    UNSUPPORTED_INPUT = "UNSUPPORTED_INPUT"
    # What it names does not exist, or is taken.
    INVOCATION_NOT_FOUND = "INVOCATION_NOT_FOUND"
    PLANNER_NOT_FOUND = "PLANNER_NOT_FOUND"
    DECISION_MODEL_NOT_FOUND = "DECISION_MODEL_NOT_FOUND"
    INVOCATION_ALREADY_EXISTS = "INVOCATION_ALREADY_EXISTS"
    # The request does not fit the state of the invocation.
    OUT_OF_ORDER = "OUT_OF_ORDER"
    CALL_ALREADY_REPORTED = "CALL_ALREADY_REPORTED"
    INVOCATION_FINISHED = "INVOCATION_FINISHED"
    INVOCATION_ENDED = "INVOCATION_ENDED"
    STATE_OF_OTHER_PLANNER = "STATE_OF_OTHER_PLANNER"
    STATE_NEWER = "STATE_NEWER"
    LIVE_AGENT_MISSING = "LIVE_AGENT_MISSING"
    CONDITION_FAILED = "CONDITION_FAILED"
    VALUE_REQUIRED = "VALUE_REQUIRED"
    EMPTY_DECISION_INPUT = "EMPTY_DECISION_INPUT"
    # Somebody else, or another replica, is further.
    STALE_REVISION = "STALE_REVISION"
    REPLICA_BEHIND = "REPLICA_BEHIND"
    STATE_OUTDATED = "STATE_OUTDATED"
    OWNER_CHANGED = "OWNER_CHANGED"
    # Bounds of this server.
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    TOO_MANY_INVOCATIONS = "TOO_MANY_INVOCATIONS"
    REPLY_TOO_LARGE = "REPLY_TOO_LARGE"
    DECISION_QUEUE_FULL = "DECISION_QUEUE_FULL"
    # The decision model.
    DECISION_MODEL_LIMIT = "DECISION_MODEL_LIMIT"
    DECISION_REFUSED = "DECISION_REFUSED"
    DECISION_MODEL_UNEXPECTED = "DECISION_MODEL_UNEXPECTED"
    DECISION_MODEL_UNAVAILABLE = "DECISION_MODEL_UNAVAILABLE"
    DECISION_INVALID_ANSWER = "DECISION_INVALID_ANSWER"
    DECISION_MODEL_CREDENTIALS = "DECISION_MODEL_CREDENTIALS"
    DECISION_MODEL_REJECTED = "DECISION_MODEL_REJECTED"
    # The server itself.
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    STORE_FULL = "STORE_FULL"
    DRAINING = "DRAINING"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    SWITCHED_OFF = "SWITCHED_OFF"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


STORE_FAILED = (Reason.STORE_UNAVAILABLE, Reason.STORE_FULL)
"""The reasons of requests that the shared store could not serve."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One bad field: `field` is its path in the request (`agents[2].name`), `problem` what to change."""

    field: str
    problem: str


class PlannerdError(Exception):
    """A request that failed for a known reason, safe to show to the client that sent it.

    Args:
        reason: why, one of `Reason`.
        message: one sentence for a human: what is wrong and what to do.
        violations: the bad fields, for the reasons that are about the request itself.
        metadata: machine-readable facts (ids, limits, positions); keys and values are strings.
        retry_after: seconds after which the same request may succeed, where waiting helps.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        violations: Sequence[Violation] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.violations = tuple(violations)
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after


def invalid(
    field: str, problem: str, *, reason: Reason = Reason.INVALID_REQUEST, metadata: Mapping[str, str] | None = None
) -> PlannerdError:
    """An error about one field of the request: `field` is its path, `problem` says what to change."""
    return PlannerdError(reason, f"{field}: {problem}", violations=[Violation(field, problem)], metadata=metadata)


def check_limit(limit: str, what: str, requested: int, allowed: int) -> None:
    """Refuse more than `allowed` of something that a setting of this server bounds.

    Args:
        limit: the name of the setting.
        what: what there is too much of, as the beginning of a sentence: `The agents`.
        requested: how much there is.
        allowed: how much there may be.

    Raises:
        PlannerdError: LIMIT_EXCEEDED, whose metadata have the three.
    """
    if requested > allowed:
        raise PlannerdError(
            Reason.LIMIT_EXCEEDED,
            f"{what} would be {requested}, more than the server's limit {limit} of {allowed}. Send less, or ask the "
            "operator to raise it.",
            metadata={"limit": limit, "allowed": str(allowed), "requested": str(requested)},
        )
