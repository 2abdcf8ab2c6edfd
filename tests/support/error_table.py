"""Every reason why a request fails, and a way to bring it about at a real server: the error table as data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plannerd.invocations.stores import MemoryBounds
from plannerd.services.codec.configuration import InitLimits
from tests.support import hosts
from tests.support.provocations import (
    Broken,
    Walk,
    ahead,
    at,
    at_host,
    at_redis,
    at_strict,
    bad_condition,
    bad_state,
    busy,
    decide,
    ended,
    failed_belief,
    finished,
    full_store,
    gated,
    newer_state,
    no_agents,
    no_belief,
    no_id,
    no_invocation,
    no_live_agent,
    no_model,
    no_planner,
    not_finite,
    nothing_to_decide_on,
    one_more,
    opaque_where_read,
    other_model,
    other_owner,
    other_planner,
    out_of_time,
    outdated,
    raw_bytes,
    reported_twice,
    same_id,
    scripted,
    stale,
    stopping,
    too_early,
    too_long_a_reply,
    too_many_agents,
    two_questions,
    unknown_call,
    unknown_token,
    without_store,
)
from tests.support.ways import Way

Provoke: TypeAlias = Callable[[Walk], Awaitable[Any]]


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        reason: why a request fails.
        code: the gRPC code that it fails with.
        how: what the client did, in a few words.
        provoke: does it.
        metadata: the keys of its metadata.
        text: a regular expression for all of its text.
        fields: the paths of the bad fields, for reasons about the request itself.
        retry: whether it says when to try again.
        unseen: the ways by which a client sees another error, without a reason, from its own side.
        server: makes the server; by default one with a model that finds everything useful.
    """

    reason: str
    code: str
    how: str
    provoke: Provoke
    text: str
    metadata: frozenset[str] = frozenset()
    fields: tuple[str, ...] = ()
    retry: bool = False
    unseen: tuple[str, ...] = ()
    server: Callable[[Way], Any] = field(default=at)


INVALID, FAILED, ABORTED = "INVALID_ARGUMENT", "FAILED_PRECONDITION", "ABORTED"
NOT_FOUND, EXHAUSTED, UNAVAILABLE, INTERNAL = "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL"

_ID = frozenset({"invocation_id"})
_POSITION = frozenset({"epoch", "revision", "branch"})
_LIMIT = frozenset({"limit", "allowed", "requested"})
_MODEL = frozenset({"model"})


def _keys(*names: str) -> frozenset[str]:
    return frozenset(names)


TABLE: tuple[Entry, ...] = (
    # What the client sent is wrong.
    Entry(
        "INVALID_REQUEST",
        INVALID,
        "Init without an id",
        no_id,
        r"invocation_id: must have 1 to 128 characters, but has 0",
        fields=("invocation_id",),
    ),
    Entry(
        "INVALID_CONFIGURATION",
        INVALID,
        "a scheduler without agents",
        no_agents,
        r"agents: must name at least one subagent",
        fields=("agents",),
    ),
    Entry(
        "INVALID_VALUE",
        INVALID,
        "a scope value that is NaN",
        not_finite,
        r"scope\.set\[ticket\]: must be finite: .+",
        fields=("scope.set[ticket]",),
    ),
    Entry(
        "INVALID_CONDITION",
        INVALID,
        "CEL that does not end",
        bad_condition,
        r"agents\[0\]\.activation\.cel: at 1:16: .+",
        _keys("place"),
        fields=("agents[0].activation.cel",),
    ),
    Entry(
        "INVALID_EXECUTION_STATE",
        INVALID,
        "a state that was cut",
        bad_state,
        r"state\.data: is no JSON; it must be sent back exactly as it came",
        fields=("state.data",),
    ),
    Entry(
        "UNKNOWN_CALL",
        INVALID,
        "a result of a call that nobody issued",
        unknown_call,
        r"results\[0\]\.call_id: 'nobody' is no call of this invocation",
        _keys("call_id"),
        fields=("results[0].call_id",),
    ),
    Entry(
        "MISSING_BELIEF",
        INVALID,
        "no belief where one is needed",
        no_belief,
        r"beliefs: it rains must be sent with every step; .+",
        _keys("beliefs"),
        fields=("beliefs[it rains]",),
    ),
    Entry(
        "UNSUPPORTED_INPUT",
        INVALID,
        "bytes as an argument of the planner agent",
        raw_bytes,
        r"'ticket' in the input of the decision is of type bytes; supported: .+",
        _keys("key"),
        fields=("ticket",),
    ),
    # What it names does not exist, or is taken.
    Entry(
        "INVOCATION_NOT_FOUND", NOT_FOUND, "an id that nobody uses", no_invocation, r"There is no .+ Start it .+", _ID
    ),
    Entry(
        "PLANNER_NOT_FOUND",
        NOT_FOUND,
        "a plug-in that is not there",
        no_planner,
        r"There is no planner 'nobody\.planner'; ListPlanners names those that exist\.",
        _keys("planner"),
    ),
    Entry(
        "DECISION_MODEL_NOT_FOUND",
        NOT_FOUND,
        "a model that is not there",
        no_model,
        r"there is no decision model 'oracle'; configured: 'test'",
        _keys("model", "configured"),
    ),
    Entry(
        "INVOCATION_ALREADY_EXISTS",
        "ALREADY_EXISTS",
        "another Init with the same id",
        same_id,
        r"The invocation id 'i1' is in use by another Init\. Choose .+",
        _POSITION,
    ),
    # The request does not fit the state of the invocation.
    Entry(
        "OUT_OF_ORDER",
        FAILED,
        "NextAction before FirstAction",
        too_early,
        r".+: call FirstAction .+",
    ),
    Entry(
        "CALL_ALREADY_REPORTED",
        FAILED,
        "a second result of a call",
        reported_twice,
        r"These calls were reported before, .+ Send the step again without them\.",
        _keys("call_ids"),
    ),
    Entry("INVOCATION_FINISHED", FAILED, "NextAction after done", finished, r"This invocation is finished; .+", _ID),
    Entry("INVOCATION_ENDED", FAILED, "NextAction after End", ended, r"The invocation 'i1' was ended\. Start .+", _ID),
    Entry(
        "STATE_OF_OTHER_PLANNER",
        FAILED,
        "a scheduler's state for a router",
        other_planner,
        r"The state is of the planner 'scheduler', but this Init asks for 'router'\.",
        _keys("planner"),
    ),
    Entry(
        "STATE_NEWER",
        FAILED,
        "a state of format 999",
        newer_state,
        r"The state has format version 999; this server knows up to \d+\. Send it to a newer replica\.",
        _keys("format_version", "newest_known"),
    ),
    Entry(
        "LIVE_AGENT_MISSING",
        FAILED,
        "a state whose live agent is not declared",
        no_live_agent,
        r"The state to resume is running the agent 'write', which is not declared\. Declare it again\.",
        _keys("agent"),
    ),
    Entry(
        "CONDITION_FAILED",
        FAILED,
        "a belief that failed",
        failed_belief,
        r"The belief 'it rains', a condition of 'write\$0', could not be evaluated by the client\. .+",
        _keys("condition", "subject"),
    ),
    Entry(
        "VALUE_REQUIRED",
        FAILED,
        "an output withheld that the planner reads",
        opaque_where_read,
        r"results\[0\]\.output: the planner needs the value of 'draft', .+",
        _keys("call_id", "key"),
    ),
    Entry(
        "EMPTY_DECISION_INPUT",
        FAILED,
        "all arguments left out of the input",
        nothing_to_decide_on,
        r".+ nothing to decide on.*",
    ),
    # Somebody else, or another replica, is further.
    Entry("STALE_REVISION", ABORTED, "a base two steps back", stale, r"The base is revision 0, .+ at 2: .+", _POSITION),
    Entry("REPLICA_BEHIND", ABORTED, "a base that is ahead", ahead, r"This replica has an older copy .+", _POSITION),
    Entry("STATE_OUTDATED", ABORTED, "Init with an older state", outdated, r"The state is of .+", _POSITION),
    Entry("OWNER_CHANGED", ABORTED, "a step after a take-over", other_owner, r"Somebody took .+ Stop\.", _POSITION),
    # Bounds of the server.
    Entry(
        "LIMIT_EXCEEDED",
        EXHAUSTED,
        "more agents than allowed",
        too_many_agents,
        r"The agents would be 6, more than the server's limit max_agents of 5\. .+",
        _LIMIT,
        server=lambda way: at(way, init_limits=InitLimits(max_agents=5)),
    ),
    Entry(
        "TOO_MANY_INVOCATIONS",
        EXHAUSTED,
        "one invocation more than a caller may have",
        one_more,
        r"You have as many invocations as this server keeps for one caller .+",
        _keys("limit"),
        retry=True,
        server=lambda way: at(way, bounds=MemoryBounds(max_per_identity=1)),
    ),
    Entry(
        "REPLY_TOO_LARGE",
        EXHAUSTED,
        "a reply larger than asked for",
        too_long_a_reply,
        r"The reply would have \d+ bytes, more than the limit of 100\. The step did not happen; .+",
        _LIMIT,
    ),
    Entry(
        "DECISION_QUEUE_FULL",
        EXHAUSTED,
        "more decisions at once than may wait",
        busy,
        r"decision model 'far' is busy: .+; try again later",
        _MODEL | {"concurrent", "queue"},
        retry=True,
        server=lambda way: at_host(way, hosts.hang, max_concurrent=1, max_queue=1),
    ),
    # The decision model.
    Entry(
        "DECISION_MODEL_LIMIT",
        FAILED,
        "more questions than the model takes",
        two_questions,
        r"The decision model 'far' takes at most 1 questions in one request, .+",
        _LIMIT | _MODEL,
        server=lambda way: at_host(way, hosts.answer(), max_questions=1),
    ),
    Entry(
        "DECISION_REFUSED",
        FAILED,
        "a model that refuses to answer",
        decide,
        r"The decision model declined to say whether the goal is reached\. The step did not happen\.",
        _keys("question"),
        server=scripted(write={"refuse": "no"}, goal={"refuse": "no"}),
    ),
    Entry(
        "DECISION_MODEL_UNEXPECTED",
        FAILED,
        "another model than expected, strictly",
        other_model,
        r"The thresholds were tuned on the model 'oracle-2', but 'fixed' answered; .+",
        _keys("expected", "resolved"),
    ),
    Entry(
        "DECISION_MODEL_UNAVAILABLE",
        UNAVAILABLE,
        "a model's host that answers 503",
        decide,
        r"decision model 'far' answered 503 \(3 attempts\)",
        _MODEL | {"attempts", "retries_spent"},
        server=lambda way: at_host(way, hosts.status(503)),
    ),
    Entry(
        "DECISION_MODEL_REJECTED",
        INTERNAL,
        "a model's host that answers 400",
        decide,
        r"decision model 'far' rejects the request \(400\); its operator must check .+",
        _MODEL | {"http_status"},
        server=lambda way: at_host(way, hosts.status(400)),
    ),
    Entry(
        "DECISION_INVALID_ANSWER",
        INTERNAL,
        "a model's host that answers nonsense",
        decide,
        r"the response of decision model 'far' is no System One response",
        _MODEL,
        server=lambda way: at_host(way, hosts.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")),
    ),
    Entry(
        "DECISION_MODEL_CREDENTIALS",
        INTERNAL,
        "a model's host that answers 401",
        decide,
        r"decision model 'far' rejects the credentials of this server \(401\); its operator must mend that",
        _MODEL | {"http_status"},
        server=lambda way: at_host(way, hosts.status(401)),
    ),
    # The server itself.
    Entry(
        "STORE_UNAVAILABLE",
        UNAVAILABLE,
        "a shared store that is stopped",
        without_store,
        r"The store of this server did not answer within .+ Send the request again later: it happens once\.",
        retry=True,
        server=at_redis,
    ),
    Entry(
        "STORE_FULL",
        EXHAUSTED,
        "a shared store without room",
        full_store,
        r"The store of this server has no room left, so nothing was changed\. Send the request again later\.",
        retry=True,
        server=lambda way: at_redis(way, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction"),
    ),
    Entry(
        "DRAINING",
        UNAVAILABLE,
        "a server that shuts down",
        stopping,
        r"the server is shutting down; send the request to another replica",
        server=gated,
    ),
    Entry(
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
        "no token where one is needed",
        unknown_token,
        r"this server needs a bearer token: .+",
        _keys("problem"),
        server=at_strict,
    ),
    Entry(
        "DEADLINE_EXCEEDED",
        "DEADLINE_EXCEEDED",
        "a decision that takes too long",
        out_of_time,
        r"the deadline of the call passed before the request was done",
        unseen=("unary",),
        server=gated,
    ),
    Entry(
        "INTERNAL",
        INTERNAL,
        "a bug in the server",
        decide,
        r"internal error; the operator finds its cause in the server's log by the correlation id",
        _keys("correlation_id"),
        server=lambda way: at(way, Broken()),
    ),
)

UNPROVOKED: dict[str, str] = {
    "NOT_IMPLEMENTED": "there is nothing in the contract that this server can't do",
}
"""Reasons that no server of this version gives, and why. Whoever uses one moves it to the table."""

OF_OPERATORS: dict[str, str] = {
    "PERMISSION_DENIED": "test_operators_have_names",
    "SWITCHED_OFF": "test_it_is_off_by_default",
}
"""Reasons that only the service for operators gives, and the tests in test_invocations_command.py that meet them."""

OF_CLIENTS: dict[str, str] = {
    "CANCELLED": "a client that cancels sees its own status; the server logs the reason",
}
"""Reasons that a client can't see."""
