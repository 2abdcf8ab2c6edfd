"""What an error handler may decide about a failed agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from plannerd_client._context import AgentContext


@dataclass(frozen=True, slots=True)
class Retry:
    """Returned by an error handler: call the agent again.

    Args:
        delay: seconds to wait before that.
    """

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Recover:
    """Returned by an error handler: go on as if the agent had returned `value`."""

    value: Any


ErrorHandler: TypeAlias = Callable[[AgentContext, Exception], Any]
"""Decides about a failed agent: returns a `Retry`, a `Recover`, or None to give up. May be async in `AsyncClient`."""
