"""What a run returns."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plannerd_client.errors import AgentFailed
from plannerd_protos.planner.v1 import step_pb2

if TYPE_CHECKING:
    from plannerd_client._snapshot import Snapshot


class RunStatus(enum.StrEnum):
    """How a run ended. Failing and giving up are exceptions."""

    COMPLETED = "completed"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class StepWarning:
    """Something that went not quite right: a `WarningCode` without its prefix, a sentence, perhaps an agent's id."""

    code: str
    message: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run.

    Args:
        action: what the planner decided: `start`, `await`, `suspend`, `done`, `give_up` or `no_op`.
        started: the calls that it started, as pairs of call id and agent id.
        explanation: why. As detailed as `explain` says.
        warnings: what went not quite right.
        seconds: how long the request took, everything below included.
        retries: how often it was sent again.
        restores: how often the invocation was continued from its last state before that.
        message: the answer of the server, whole.
    """

    action: str
    started: tuple[tuple[str, str], ...]
    explanation: step_pb2.Explanation
    warnings: tuple[StepWarning, ...]
    seconds: float
    retries: int
    restores: int
    message: step_pb2.Step = field(repr=False)


@dataclass(frozen=True, slots=True)
class Suspension:
    """A call that waits for somebody's answer.

    Args:
        response_id: under which the answer is given: `run(..., resume=snapshot, answers={response_id: value})`.
        call_id: the call.
        agent: the id of the agent.
        request: what is asked; see `Suspend`.
        arguments: what the agent read from the scope.
        expires_at: when the answer is late, in seconds since the epoch; None without a limit.
    """

    response_id: str
    call_id: str
    agent: str
    request: Any = field(default=None, repr=False)
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Args:
        status: completed, or suspended until somebody answers.
        invocation_id: the invocation.
        result: the result; None while suspended.
        scope: the values of the scope that have arrived.
        steps: the steps that this run made, in order.
        warnings: what the server found not quite right with the configuration. Each step has its own.
        suspensions: what is waited for; empty when completed.
        snapshot: what the run is continued from; None when completed.
        late_failures: asynchronous agents that failed when the planner was done already and did not need them.
    """

    status: RunStatus
    invocation_id: str
    result: Any
    scope: dict[str, Any]
    steps: tuple[Step, ...]
    warnings: tuple[StepWarning, ...]
    suspensions: tuple[Suspension, ...] = ()
    snapshot: Snapshot | None = None
    late_failures: tuple[AgentFailed, ...] = ()


def step_of(message: step_pb2.Step, *, seconds: float = 0.0, retries: int = 0, restores: int = 0) -> Step:
    """The record of a step from the server's answer and what it took to get it."""
    agents = {call.id: call.agent_id for call in message.calls}
    return Step(
        action=message.action.WhichOneof("kind") or "unknown",
        started=tuple((call_id, agents.get(call_id, "")) for call_id in message.action.start.call_ids),
        explanation=message.explanation,
        warnings=tuple(warning_of(warning) for warning in message.warnings),
        seconds=seconds,
        retries=retries,
        restores=restores,
        message=message,
    )


def warning_of(message: step_pb2.Warning) -> StepWarning:
    """The record of a warning."""
    code = message.code
    known = code in step_pb2.WarningCode.values()
    name = step_pb2.WarningCode.Name(code).removeprefix("WARNING_CODE_") if known else f"WARNING_{code}"
    return StepWarning(name, message.message, message.agent_id)
