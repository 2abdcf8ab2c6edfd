"""The settings of a decision model of the provider `grpc`."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from plannerd.settings.base import MIB, Bytes, Count, File, Seconds, Section


class GrpcTlsSettings(Section):
    """How a `DecisionModelService` is known, and how it knows this server."""

    enabled: bool = Field(False, description="Use TLS. Without `ca`, the certificates that gRPC brings are trusted.")
    ca: File | None = Field(None, description="Certificates (PEM) of those who may vouch for the service.")
    cert: File | None = Field(None, description="The certificate (PEM) that this server shows; needs `key`.")
    key: File | None = Field(None, description="The key (PEM) of `cert`.")
    server_name: str | None = Field(
        None, min_length=1, description="The name in the service's certificate. null: the one in the target."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> GrpcTlsSettings:
        if not self.enabled and (self.ca or self.cert or self.key or self.server_name):
            raise ValueError("has no effect unless enabled is true")
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together")
        return self


class MetadataSettings(Section):
    """A value that is sent beside each request: exactly one of `value`, `env` and `file`."""

    value: str | None = Field(None, min_length=1, description="The value itself; not for secrets.")
    env: str | None = Field(None, min_length=1, description="The environment variable that has it, without the prefix.")
    file: File | None = Field(
        None, description="The file that has it, without the prefix; read again whenever it changes."
    )
    prefix: str = Field("", description="What stands before the value, for instance `Bearer `.")

    @model_validator(mode="after")
    def _one_source(self) -> MetadataSettings:
        if [self.value, self.env, self.file].count(None) != 2:
            raise ValueError("needs exactly one of value, env and file")
        return self


class GrpcSettings(Section):
    """A `DecisionModelService` of the operator's own."""

    provider: Literal["grpc"] = Field(description="`grpc`: a `DecisionModelService` of your own, in any language.")
    target: str = Field(description="Where it is: `HOST:PORT`, `dns:///HOST:PORT` or `unix:PATH`.")
    model: str = Field("", description="The name of the model to ask it for. Empty: its default.")
    allow_insecure: bool = Field(
        False,
        description="Connect to another machine without TLS. Whoever is in between can then read inputs and metadata.",
    )
    tls: GrpcTlsSettings = GrpcTlsSettings()
    metadata: dict[str, MetadataSettings] = Field(
        default_factory=dict, description="What is sent beside each request, by key in lower case, such as a token."
    )
    max_questions: Count | None = Field(None, description="Questions of one request. null: any number.")
    max_options: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Options of a choice question. null: any number."
    )
    max_levels: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Levels of a scale question. null: any number."
    )
    images: bool = Field(True, description="Whether it takes images.")
    max_request_bytes: Bytes = Field(4 * MIB, description="The largest request; one that is larger is not sent.")
    max_reply_bytes: Bytes = Field(4 * MIB, description="The largest reply; one that is larger is no valid answer.")
    attempt_timeout_seconds: Seconds = Field(
        10.0, gt=0, description="How long one attempt may take. All of them fit into decisions.timeout_seconds."
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="Attempts after the first, where the service is unavailable, too slow or says when to come back."
    )
    retry_wait_seconds: Seconds = Field(
        0.25,
        description="The wait before the first retry; each further one is twice as long, up to 5 s. It comes on top of "
        "what the service asks for (RetryInfo).",
    )
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = Field(16, description="Requests to it at the same time.")
    max_queue: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        256, description="Further requests that may wait; one more is refused with DECISION_QUEUE_FULL."
    )
    keepalive_seconds: Seconds = Field(
        300.0,
        gt=0,
        description="How long the connection may be silent during a call before a ping. Many servers "
        "disconnect those who ping more often than every 300 s.",
    )
    keepalive_timeout_seconds: Seconds = Field(
        10.0,
        gt=0,
        description="How long a ping, or data that was sent, may stay unacknowledged before the connection "
        "is given up.",
    )

    @model_validator(mode="after")
    def _safe(self) -> GrpcSettings:
        if not _local(self.target) and not self.tls.enabled and not self.allow_insecure:
            raise ValueError(
                "target is not on this machine: set tls.enabled, or allow_insecure to send inputs and metadata "
                "without encryption"
            )
        return self


_TARGET: Final = re.compile(
    r"(?:dns:///)?(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\s/@:\[\]]+)):(?P<port>\d{1,5})", re.ASCII
)


def _local(target: str) -> bool:
    """Whether a target is on this machine.

    Raises:
        ValueError: it is none.
    """
    if target.startswith("unix:") and len(target) > len("unix:"):
        return True
    found = _TARGET.fullmatch(target)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError("target must be HOST:PORT, [IPV6]:PORT, dns:///HOST:PORT or unix:PATH")
    try:
        return ip_address(found["v6"] or found["name"]).is_loopback
    except ValueError:
        return found["name"] == "localhost"
