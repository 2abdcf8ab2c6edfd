"""How much clients may bring, and how much is kept of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from plannerd.settings.base import MIB, Bytes, Count, Seconds, Section
from plannerd.values import MAX_NESTING


class LimitsSettings(Section):
    """How much one invocation, and all of them together, may take."""

    max_calls_per_identity: Count = Field(
        5000,
        description="Calls that one identity may have under way, streams among them, of all its connections together. "
        "Beyond it they are refused with LIMIT_EXCEEDED. Counts only where clients have identities (auth).",
    )
    max_agents: Annotated[int, Field(ge=1, le=10_000)] = Field(200, description="Agents of one invocation.")
    max_questions: Count = Field(
        201,
        description="Questions of a Decide, and those about agents that a planner may need to ask at once.",
    )
    max_parts: Count = Field(
        10_000,
        description="Arguments, desires, agents of desires, levels and excluded keys of one invocation together; also "
        "options and levels of a Decide.",
    )
    max_cel_characters: Count = Field(
        16_384,
        description="Characters of all CEL conditions of one invocation together. Compiling them, which takes up to "
        "some 10 microseconds a character, holds up other calls.",
    )
    max_scope_bytes: Bytes = Field(8 * MIB, description="Bytes of all scope values that are kept for one invocation.")
    max_scope_keys: Count = Field(
        1000, description="Scope keys that are kept for one invocation; also fields of an input of Decide."
    )
    max_nesting: Annotated[int, Field(ge=1, le=MAX_NESTING)] = Field(
        MAX_NESTING, description="How deep lists and maps may stand inside each other in one value."
    )
    max_values: Count = Field(
        100_000,
        description="Values in one request, counting each item of lists and maps, and results. Reading them, which "
        "takes about a microsecond each, holds up other calls.",
    )
    max_state_bytes: Annotated[int, Field(ge=1024, le=MIB)] = Field(
        256 * 1024,
        description="Bytes of an execution state to resume from. Checking one of this size takes some 100 ms.",
    )
    max_invocations: Count = Field(
        100_000,
        description="Invocations that are kept. Beyond it those that were untouched longest are dropped; their clients "
        "go on from their execution states.",
    )
    max_invocations_bytes: Annotated[int, Field(ge=MIB)] = Field(
        1024 * MIB, description="About how many bytes all kept invocations may take, in the same way."
    )
    max_invocations_per_identity: Count | None = Field(
        None,
        description="Invocations of one caller that are kept, until it ends them or they expire. One more is refused "
        "with TOO_MANY_INVOCATIONS. null: as many as there may be of all. Without authentication all callers are one.",
    )
    idle_seconds: Seconds = Field(3600.0, gt=0, description="How long an invocation is kept that nobody touches.")
    tombstone_seconds: Seconds = Field(
        300.0, description="How long it is remembered that an invocation was ended, so that late requests are told so."
    )
