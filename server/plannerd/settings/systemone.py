"""The settings of a decision model of the provider `systemone`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from plannerd.settings.base import MIB, Bytes, Count, File, Seconds, Section


class SystemOneSettings(Section):
    """A model behind `POST /v1/systemone`: TypeSafe, OpenRouter, Ollama, llama.cpp, vLLM and others."""

    provider: Literal["systemone"] = Field(
        description="`systemone`: a host that speaks System One, such as TypeSafe, OpenRouter, Ollama, llama.cpp, vLLM."
    )
    base_url: str = Field(
        min_length=1, description="The host's address without `/v1/systemone`, such as `https://api.typesafe.ai`."
    )
    model: str = Field(min_length=1, max_length=256, description="The model's name at the host.")
    api_key_env: str | None = Field(
        None,
        min_length=1,
        description="The environment variable that holds the host's key. null, and no `api_key_file`: no key is sent.",
    )
    api_key_file: Annotated[Path, Field(strict=False)] | None = Field(
        None, description="The file that holds the host's key, instead; it is read again when it changes."
    )
    ca_file: File | None = Field(
        None, description="Certificates (PEM) that sign the host's. null: those of the system."
    )
    input_format: Literal["json", "text"] = Field(
        "json", description="Send the input as a JSON object, or as plain text, which some models understand better."
    )
    images: bool = Field(False, description="The model takes images. Off, an input with one is refused.")
    max_questions: Count | None = Field(None, description="Questions that the model takes in one request. null: any.")
    max_options: Count | None = Field(255, description="Options that the model takes in one choice. null: any.")
    max_levels: Count | None = Field(10, description="Levels that the model takes in one scale. null: any.")
    max_input_bytes: Bytes = Field(
        256 * 1024,
        description="Bytes of input that are sent, as JSON, images aside. A longer one is cut, with a warning.",
    )
    max_reply_bytes: Bytes = Field(MIB, description="The largest response; one that is larger is no valid answer.")
    attempt_timeout_seconds: Seconds = Field(
        10.0, gt=0, description="How long one attempt may take, within `timeout_seconds` for all of them."
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="Further attempts after time-outs, broken connections and the statuses 408, 429 and 5xx."
    )
    retry_wait_seconds: Seconds = Field(
        0.25,
        description="The wait before the first retry; each further one is twice as long, up to 5 s. It comes on top of "
        "what the host asks for (Retry-After).",
    )
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = Field(
        16, description="Requests that are under way at once, and connections to the host."
    )
    max_queue: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256, description="Requests that may wait beyond those. One more is refused with DECISION_QUEUE_FULL."
    )
    idle_connection_seconds: Seconds = Field(30.0, description="How long a connection is kept that nobody uses.")

    @field_validator("base_url")
    @classmethod
    def _base_url_is_plain(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or not value.isprintable():
            raise ValueError("must be an address that begins with https:// or http://")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not have a name or password in it; use api_key_env or api_key_file")
        if parts.query or parts.fragment:
            raise ValueError("must end with the path, without ? and #")
        if parts.path.rstrip("/").endswith(("/v1", "/v1/systemone")):
            raise ValueError("must not end with /v1 or /v1/systemone, which is added to it")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_key(self) -> SystemOneSettings:
        if self.api_key_env is not None and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file can't both be set")
        return self
