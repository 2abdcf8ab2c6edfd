"""The Python client of plannerd: register functions as agents and run them in the order it decides.

`Client` and `AsyncClient` run invocations; `agent` and `human` make agents of functions; `Scheduler`, `Router`,
`Cascade`, `Bdi` and `Plugin` say how to plan. Errors are in `plannerd_client.errors`.
"""

from plannerd_client._agents import Agent, agent, human
from plannerd_client._async_client import AsyncClient
from plannerd_client._channel import Tls
from plannerd_client._client import Client
from plannerd_client._conditions import Condition, belief, cel, present
from plannerd_client._context import AgentContext, Suspend
from plannerd_client._definition import DecisionOptions, ParentCall
from plannerd_client._options import RunOptions
from plannerd_client._planners import Bdi, Cascade, Desire, Planner, Plugin, Router, Scheduler
from plannerd_client._recovery import Recover, Retry
from plannerd_client._results import RunResult, RunStatus, Step, StepWarning, Suspension
from plannerd_client._retries import RetryPolicy
from plannerd_client._signatures import Key
from plannerd_client._snapshot import Snapshot
from plannerd_client._values import Image, Text
from plannerd_client.errors import (
    AgentFailed,
    AlreadyAnswered,
    GaveUp,
    MissingArgument,
    PlannerdError,
    UnknownAction,
    UnknownAnswer,
    UnsupportedValue,
)

__all__ = [
    "Agent",
    "AgentContext",
    "AgentFailed",
    "AlreadyAnswered",
    "AsyncClient",
    "Bdi",
    "Cascade",
    "Client",
    "Condition",
    "DecisionOptions",
    "Desire",
    "GaveUp",
    "Image",
    "Key",
    "MissingArgument",
    "ParentCall",
    "Planner",
    "PlannerdError",
    "Plugin",
    "Recover",
    "Retry",
    "RetryPolicy",
    "Router",
    "RunOptions",
    "RunResult",
    "RunStatus",
    "Scheduler",
    "Snapshot",
    "Step",
    "StepWarning",
    "Suspend",
    "Suspension",
    "Text",
    "Tls",
    "UnknownAction",
    "UnknownAnswer",
    "UnsupportedValue",
    "agent",
    "belief",
    "cel",
    "human",
    "present",
]
