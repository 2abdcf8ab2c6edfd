"""What is kept of an invocation between two steps: one immutable record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from plannerd.invocations.calls import CallStatus, IssuedCalls, LiveCall
from plannerd.invocations.explanation import ExplainLevel
from plannerd.invocations.position import Position
from plannerd.invocations.scope import Scope
from plannerd.planners.moves import GiveUp, NoOp, Outcome, Warn
from plannerd.planners.planner import Planner
from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class StartCalls:
    """Run these calls."""

    call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitCalls:
    """Wait for `keys`, which these calls will write."""

    keys: tuple[str, ...]
    call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuspendCalls:
    """Nothing can be done until somebody answers one of these calls."""

    call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The result is the output of this call."""

    call_id: str


@dataclass(frozen=True, slots=True)
class ScopeOutput:
    """The result is what the scope holds under `key`; the call that wrote it is not known any more."""

    key: str


@dataclass(frozen=True, slots=True)
class NamedOutputs:
    """The result is a map from name to an output (None: null), in this order."""

    outputs: tuple[tuple[str, CallOutput | ScopeOutput | None], ...]


@dataclass(frozen=True, slots=True)
class PlannerValue:
    """The result is a value that the planner made."""

    value: Value


@dataclass(frozen=True, slots=True)
class Finished:
    """Done; `result` None: what the scope holds under the planner agent's output key."""

    result: StepResult | None = None


StepResult: TypeAlias = CallOutput | ScopeOutput | NamedOutputs | PlannerValue
StepAction: TypeAlias = StartCalls | AwaitCalls | SuspendCalls | Finished | GiveUp | NoOp
"""What a client is told to do."""


@dataclass(frozen=True, slots=True)
class Held:
    """An ending that waits until every running call has answered."""

    action: Finished | GiveUp
    outcome: Outcome
    summary: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A compiled configuration, kept once however many invocations have it.

    Attributes:
        planner: the compiled planner.
        kind: its name.
        digest: tells configurations apart by their meaning.
        beliefs: the beliefs that clients send with every step.
        size: about how many bytes it takes.
        source: the bytes that it was made from, where invocations are stored outside this process.
    """

    planner: Planner[object]
    kind: str
    digest: str
    beliefs: tuple[str, ...]
    size: int
    source: bytes = b""


@dataclass(frozen=True, slots=True)
class InvocationOptions:
    """What a client may set for an invocation beside its planner.

    Attributes:
        model: a configured decision model's name; empty where the planner asks none.
        timeout: seconds for one request to it; None: as configured.
        split: ask in several requests what is too much for one.
        expected_model: the model, as it names itself, that the thresholds were tuned on.
        strict: another one is an error.
        explain: how detailed explanations are.
        include_input: repeat each decision's input in its explanation.
        max_reply_bytes: the largest reply that the client takes; 0: the server's limit.
        omit_state: leave the execution state out of replies, where the store is durable.
    """

    model: str = ""
    timeout: float | None = None
    split: bool = False
    expected_model: str = ""
    strict: bool = False
    explain: ExplainLevel = ExplainLevel.SUMMARY
    include_input: bool = False
    max_reply_bytes: int = 0
    omit_state: bool = False

    def given(self) -> dict[str, object]:
        """The options that differ from their defaults, by name."""
        return {
            option.name: value for option in fields(self) if (value := getattr(self, option.name)) != option.default
        }


@dataclass(frozen=True, slots=True)
class Reply:
    """The encoded answer of a committed step, and the request that it answers."""

    encoded: bytes
    base: Position
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """An invocation between two steps.

    Attributes:
        invocation_id: as the client chose it.
        definition: what it plans with.
        options: what the client set beside.
        position: where it stands.
        init_digest: of the Init that made it, to answer the same one again.
        planner_state: the planner's own.
        scope: the keys that the planner reads.
        known: the marks at the planner's last move.
        calls: the live calls, in the order of their issue.
        issued: every call id so far.
        finished: the latest finished call by the position of its agent, where results may refer to it.
        waiting: the keys that the planner waits for; None if it does not.
        held: an ending that waits for running calls.
        action: the current action; None before the first.
        attached: whether a client has given the scope since the record was made from a state.
        reply: the last answer, for repeats.
        warnings: to be returned with the next step.
        model: the decision model as it last named itself.
        traceparent: the trace that the invocation belongs to.
        reconfigured: whether it was resumed with another configuration since it began.
        began: when Init made it, in seconds since the epoch.
        changed: when its last step was made, in the same way.
    """

    invocation_id: str
    definition: Definition
    options: InvocationOptions
    position: Position
    init_digest: bytes
    planner_state: object
    scope: Scope = field(default_factory=Scope)
    known: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[LiveCall, ...] = ()
    issued: IssuedCalls = field(default_factory=IssuedCalls)
    finished: Mapping[int, str] = field(default_factory=dict)
    waiting: tuple[str, ...] | None = None
    held: Held | None = None
    action: StepAction | None = None
    attached: bool = False
    reply: Reply | None = None
    warnings: tuple[Warn, ...] = ()
    model: str = ""
    traceparent: str = ""
    reconfigured: bool = False
    began: float = 0.0
    changed: float = 0.0

    @property
    def terminal(self) -> bool:
        """Whether the invocation is done, gave up or failed."""
        return isinstance(self.action, Finished | GiveUp)

    @property
    def idle(self) -> bool:
        """Whether it only waits: for outputs on their way, or for somebody."""
        return isinstance(self.action, AwaitCalls | SuspendCalls)

    def live(self, *statuses: CallStatus) -> tuple[LiveCall, ...]:
        """The live calls of these statuses."""
        return tuple(call for call in self.calls if call.status in statuses)


class EndOutcome(enum.Enum):
    """How an invocation went, as its client says."""

    UNSPECIFIED = "unspecified"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Ending:
    """How an invocation was ended, for operators.

    Attributes:
        outcome: how it went, as its client said.
        message: why: the operator's reason, or what its client said.
        by_operator: whether an operator ended it.
        operator: which one.
        planner: its planner's name.
        model: the configured name of its decision model.
        began: when it began, in seconds since the epoch.
        at: when it was ended, in the same way.
    """

    outcome: EndOutcome = EndOutcome.UNSPECIFIED
    message: str = ""
    by_operator: bool = False
    operator: str = ""
    planner: str = ""
    model: str = ""
    began: float = 0.0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of an invocation that was ended, for a while."""

    position: Position
    ending: Ending | None = None
