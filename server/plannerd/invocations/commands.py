"""What clients ask of the engine, and what it answers, without protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plannerd.conditions import Beliefs
from plannerd.invocations.calls import CallResult, LiveCall
from plannerd.invocations.explanation import ExplainLevel, Explanation
from plannerd.invocations.position import Position
from plannerd.invocations.record import Definition, EndOutcome, InvocationOptions, StepAction
from plannerd.invocations.scope import ScopeChange
from plannerd.invocations.state_format import ExecutionState
from plannerd.planners.moves import Warn
from plannerd.planners.planner import Need, PlannerMap
from plannerd.planners.registry import PlannerOptions
from plannerd.planners.system import Agent, PlannerAgent, Topology


@dataclass(frozen=True, slots=True)
class Configuration:
    """A planner and its agents, as a client describes them.

    Attributes:
        planner: the planner's options.
        planner_agent: the agent whose method the caller invoked.
        agents: the subagents, in order.
        source: the bytes that this was read from; equal bytes, equal configuration.
        key: a digest of them, which only finds a compiled definition quickly.
        size: about how many bytes the compiled definition will take.
    """

    planner: PlannerOptions
    planner_agent: PlannerAgent
    agents: tuple[Agent, ...]
    source: bytes = field(repr=False)
    key: bytes
    size: int


@dataclass(frozen=True, slots=True)
class InitCommand:
    """Start an invocation, or continue one from `state` or from a bare `planner_map`."""

    invocation_id: str
    configuration: Configuration
    options: InvocationOptions = field(default_factory=InvocationOptions)
    state: ExecutionState | None = None
    planner_map: PlannerMap | None = None
    take_over: bool = False
    validate_only: bool = False
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class FirstActionCommand:
    """Give the scope and ask for the first action."""

    invocation_id: str
    base: Position
    scope: ScopeChange
    beliefs: Beliefs


@dataclass(frozen=True, slots=True)
class NextActionCommand:
    """Report results and ask for the next action."""

    invocation_id: str
    base: Position
    scope: ScopeChange
    beliefs: Beliefs
    results: tuple[CallResult, ...]


@dataclass(frozen=True, slots=True)
class EndCommand:
    """Release an invocation.

    Attributes:
        invocation_id: which.
        base: the position that the client knows; None: whatever it is.
        outcome: how it went.
        message: why, for operators.
        operator: the identity of the operator who ends it; None: its client does.
    """

    invocation_id: str
    base: Position | None
    outcome: EndOutcome = EndOutcome.UNSPECIFIED
    message: str = ""
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class InitReply:
    """What a client must know to make steps; no position where nothing was started."""

    position: Position | None
    topology: Topology
    warnings: tuple[Warn, ...]
    reads: Mapping[str, Need]
    beliefs: tuple[str, ...]
    durable: bool
    model: str


@dataclass(frozen=True, slots=True)
class StepReply:
    """What a step decided, to be encoded.

    `level` and `shortened` say how much of the explanation to include. With `stored`, an encoded reply from before,
    that is what is encoded, and only the state is taken from here.
    """

    definition: Definition
    position: Position
    action: StepAction
    calls: tuple[LiveCall, ...]
    state: ExecutionState | None
    explanation: Explanation
    warnings: tuple[Warn, ...]
    traceparent: str
    level: ExplainLevel
    include_input: bool = False
    shortened: bool = False
    stored: bytes = b""


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A committed step, for logs and traces."""

    identity: str
    invocation_id: str
    reply: StepReply = field(repr=False)
