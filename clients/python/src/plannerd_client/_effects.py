"""What the logic of a run asks of the world.

The logic is a generator that yields these effects and is sent their outcomes. A driver performs them: one with
threads, one with asyncio. The logic itself does no input or output and reads no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from plannerd_client._agents import AnyAgent
from plannerd_client._context import AgentContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; its response comes back, or a `PlannerdError` is thrown.

    Args:
        method: the name of the RPC, as in the contract.
        request: its message.
        timeout: seconds that it may take.
    """

    method: str
    request: Message
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds; None comes back."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Launch:
    """Start an agent in the background; None comes back at once, its `Outcome` by `Collect`.

    Args:
        token: identifies this attempt.
        agent: what to run.
        function: the bound call, without arguments.
        context: what the agent was given.
    """

    token: int
    agent: AnyAgent
    function: Callable[[], Any]
    context: AgentContext


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended: with a value, or with what it raised."""

    token: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """Wait until an agent has ended, at most for some seconds (None: for ever); a list of outcomes comes back."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop waiting for an attempt, and stop it where that can be done; None comes back."""

    token: int


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call a function of the user, perhaps a coroutine function; its value comes back, or what it raised is thrown."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Effect: TypeAlias = Send | Pause | Launch | Collect | Abandon | Invoke
Program: TypeAlias = Generator[Effect, Any, T]
"""Logic that needs the world: yields effects, is sent their outcomes, returns a T."""
