"""The settings of a decision model of the provider `langchain`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from plannerd.settings.base import Count, Seconds, Section


class LangChainSettings(Section):
    """A decision model of a LangChain package."""

    provider: Literal["langchain"] = Field(
        description="`langchain`: a decision model of a LangChain package; needs `plannerd[langchain]`."
    )
    factory: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        description="The model as `package.module:name`: a `BaseDecisionModel`, a class, or a function that makes one. "
        "It is imported when the server starts.",
    )
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, description="Keyword arguments for the class or function. No secrets: models read theirs."
    )
    tracing: bool = Field(
        False,
        description="Let LangSmith record requests with their content, where its environment variables ask for that.",
    )
    images: bool = Field(False, description="The model takes images. Off, an input with one is refused.")
    max_questions: Count | None = Field(None, description="Questions of one request. null: any number.")
    max_options: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Options of a choice question. null: any number."
    )
    max_levels: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Levels of a scale question. null: any number."
    )
    attempt_timeout_seconds: Seconds = Field(
        10.0, gt=0, description="How long one attempt may take, within `timeout_seconds` for all of them."
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        0, description="Attempts after the first. Most LangChain models retry by themselves; don't do both."
    )
    retry_wait_seconds: Seconds = Field(
        0.25, description="The wait before the first retry; each further one is twice as long, up to 5 s."
    )
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = Field(
        16, description="Requests to it at the same time; also threads, if the model is not asynchronous."
    )
    max_queue: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256, description="Further requests that may wait; one more is refused with DECISION_QUEUE_FULL."
    )
