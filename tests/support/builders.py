"""Requests and values of the contract in few words, so that a test shows only what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf.message import Message

from plannerd.values import Opaque, ScopeValue
from plannerd.wire.values import encode_value
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2, value_pb2

Scope: TypeAlias = "Mapping[str, ScopeValue | value_pb2.Value]"
Beliefs: TypeAlias = Mapping[str, bool | None]
"""What a client found: true, false, or None where evaluating failed."""


def argument(written: str) -> agent_pb2.Argument:
    """`name` is mandatory, `name?` optional, `name=` has a default."""
    name = written.rstrip("?=")
    return agent_pb2.Argument(name=name, optional=written.endswith("?"), has_default=written.endswith("="))


def agent(
    name: str,
    *reads: str,
    writes: str = "",
    async_: bool = False,
    when_present: str = "",
    when_believed: str = "",
    unavailable: bool = False,
    **fields: Any,
) -> agent_pb2.Agent:
    """A subagent; `fields` are further fields of the message, `reads` as in `argument`."""
    made = agent_pb2.Agent(name=name, arguments=[argument(item) for item in reads], output_key=writes, **fields)
    setattr(made, "async", async_)
    if when_present:
        made.activation.present_key = when_present
    if when_believed:
        made.activation.belief = when_believed
    if unavailable:
        made.unavailable.SetInParent()
    return made


def scheduler(
    *agents: agent_pb2.Agent,
    arguments: tuple[str, ...] = ("ticket",),
    output_key: str = "",
    goal: str = "the ticket is answered",
    goal_threshold: float | None = 0.6,
    activation_threshold: float | None = 0.5,
    **config: Any,
) -> planner_pb2.InitRequest:
    """An Init of a scheduler, without an id; `config` are further fields of its configuration."""
    return planner_pb2.InitRequest(
        scheduler=planners_pb2.SchedulerConfig(
            goal=goal, goal_threshold=goal_threshold, activation_threshold=activation_threshold, **config
        ),
        planner_agent=agent_pb2.PlannerAgent(
            name="support", arguments=[argument(item) for item in arguments], output_key=output_key
        ),
        agents=agents,
    )


def router(
    *agents: agent_pb2.Agent, arguments: tuple[str, ...] = ("ticket",), threshold: float | None = 0.5, **config: Any
) -> planner_pb2.InitRequest:
    """An Init of a router: with a threshold, which is the default here, it runs several agents at a time."""
    return planner_pb2.InitRequest(
        router=planners_pb2.RouterConfig(activation_threshold=threshold, **config),
        planner_agent=agent_pb2.PlannerAgent(name="support", arguments=[argument(item) for item in arguments]),
        agents=agents,
    )


def cascade(
    *agents: agent_pb2.Agent, arguments: tuple[str, ...] = ("ticket",), threshold: float = 0.5, **config: Any
) -> planner_pb2.InitRequest:
    """An Init of a cascade."""
    return planner_pb2.InitRequest(
        cascade=planners_pb2.CascadeConfig(acceptance_threshold=threshold, **config),
        planner_agent=agent_pb2.PlannerAgent(name="support", arguments=[argument(item) for item in arguments]),
        agents=agents,
    )


def desire(name: str, *agents: str, achievable: str, satisfied: str, priority: int = 0) -> planners_pb2.Desire:
    """A desire whose conditions are two keys that must be present."""
    return planners_pb2.Desire(
        name=name,
        priority=priority,
        achievable=agent_pb2.Condition(present_key=achievable),
        satisfied=agent_pb2.Condition(present_key=satisfied),
        agent_types=agents,
    )


def bdi(
    *agents: agent_pb2.Agent, desires: tuple[planners_pb2.Desire, ...], output_key: str = "", **config: Any
) -> planner_pb2.InitRequest:
    """An Init of a BDI planner."""
    return planner_pb2.InitRequest(
        bdi=planners_pb2.BdiConfig(desires=desires, **config),
        planner_agent=agent_pb2.PlannerAgent(name="support", output_key=output_key),
        agents=agents,
    )


def wire(value: ScopeValue | value_pb2.Value) -> value_pb2.Value:
    """The wire form of a value; a message stays as it is."""
    return value if isinstance(value, value_pb2.Value) else encode_value(value)


def scope_update(values: Scope | None = None, removed: tuple[str, ...] = ()) -> value_pb2.ScopeUpdate:
    """A change of the scope, or a snapshot."""
    return value_pb2.ScopeUpdate(set={key: wire(value) for key, value in (values or {}).items()}, removed=removed)


def beliefs_of(found: Beliefs | None) -> dict[str, agent_pb2.Belief.ValueType]:
    """The wire form of beliefs."""
    forms = {True: agent_pb2.BELIEF_TRUE, False: agent_pb2.BELIEF_FALSE, None: agent_pb2.BELIEF_FAILED}
    return {name: forms[holds] for name, holds in (found or {}).items()}


def output(call_id: str, value: ScopeValue | value_pb2.Value, *, recovered: bool = False) -> planner_pb2.AgentResult:
    """The call answered."""
    made = planner_pb2.Output(value=wire(value))
    if isinstance(value, Opaque):
        made = planner_pb2.Output(opaque=value_pb2.Opaque(tag=value.tag))
    return planner_pb2.AgentResult(call_id=call_id, output=made, recovered=recovered)


def withheld(call_id: str) -> planner_pb2.AgentResult:
    """The call answered, and its output stays with the client."""
    return planner_pb2.AgentResult(call_id=call_id, output=planner_pb2.Output(withheld=planner_pb2.Withheld()))


def skipped(call_id: str) -> planner_pb2.AgentResult:
    """The client skipped the call."""
    return planner_pb2.AgentResult(call_id=call_id, skipped=planner_pb2.Skipped())


def pending(call_id: str, *, external: bool = False) -> planner_pb2.AgentResult:
    """The call will answer later."""
    return planner_pb2.AgentResult(call_id=call_id, pending=planner_pb2.PendingOutput(external=external))


def suspended(call_id: str, response_id: str = "r1") -> planner_pb2.AgentResult:
    """The call waits for somebody."""
    return planner_pb2.AgentResult(call_id=call_id, suspended=planner_pb2.Suspended(response_id=response_id))


def failed(call_id: str, kind: str = "TimeoutError", message: str = "no answer") -> planner_pb2.AgentResult:
    """The call failed and the client gave up."""
    return planner_pb2.AgentResult(call_id=call_id, failed=planner_pb2.Failure(type=kind, message=message))


def changed(message: Message, **fields: Any) -> Any:
    """A copy of a message with other values for some fields."""
    made = type(message)()
    made.CopyFrom(message)
    made.MergeFrom(type(message)(**fields))
    return made
