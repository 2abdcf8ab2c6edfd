"""Settings of what operators may see and do in a running server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from plannerd.settings.base import MIB, Section


class OperationsSettings(Section):
    """The service `planner.v1.OperatorService`, behind `plannerd invocations`."""

    enabled: bool | None = Field(
        None,
        description="Whether there is a service for operators. null: only where auth.operators names some. true "
        "where callers have no identity: everybody who can connect is one, which is refused beyond loopback.",
    )
    explanations: Annotated[int, Field(ge=0, le=100)] = Field(
        5, description="How many of its last explanations are remembered for each invocation. 0: none."
    )
    max_explanations_bytes: Annotated[int, Field(ge=1024)] = Field(
        64 * MIB,
        description="About how many bytes the remembered explanations of all invocations may take. Beyond it those of "
        "the invocations that made no step for longest are forgotten.",
    )
    content: bool = Field(
        False,
        description="Also remember and show operators what clients asked to see in explanations: questions, answers, "
        "conditions and inputs; and what clients say when they end an invocation.",
    )
