"""The settings of a server: what each one does, its default, and where its value may come from.

A value is taken from the first of these places that has it:

1. the command line (`plannerd serve --port 0`);
2. the environment: `PLANNERD_` and the path of the setting in upper case, its parts joined by two
   underscores (`PLANNERD_SERVER__PORT=0`). An empty variable counts as unset, `null` as null. Maps can be
   given whole as JSON, or entry by entry;
3. the file named by `--config`, in YAML;
4. the default.

Maps are merged entry by entry over these places, other values replaced. Nothing is guessed: unknown
settings, keys that are written twice and values of the wrong type are refused.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from plannerd.settings.base import MIB, Bytes, Count, File, Seconds, Section
from plannerd.settings.grpc import GrpcSettings
from plannerd.settings.health import HealthSettings
from plannerd.settings.langchain import LangChainSettings
from plannerd.settings.limits import LimitsSettings
from plannerd.settings.operations import OperationsSettings
from plannerd.settings.security import AuthSettings, TlsSettings
from plannerd.settings.store import StoreSettings
from plannerd.settings.systemone import SystemOneSettings
from plannerd.settings.telemetry import TelemetrySettings

ENV_PREFIX: Final = "PLANNERD_"
ModelName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


class KeepaliveSettings(Section):
    """HTTP/2 pings, by which both sides notice a connection that died."""

    interval_seconds: Seconds = Field(60.0, gt=0, description="How long a connection may be silent before a ping.")
    timeout_seconds: Seconds = Field(
        20.0, gt=0, description="How long the server waits for the answer before it drops the connection."
    )
    min_client_interval_seconds: Seconds = Field(
        5.0,
        description="Clients may ping this often, with and without calls under way; who pings more often is "
        "disconnected (too_many_pings).",
    )


class ServerSettings(Section):
    """Where the server listens and how it stops."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address or host name to listen on; a name stands for all of its addresses. 0.0.0.0 or :: "
        "is every interface.",
    )
    port: int = Field(50051, ge=0, le=65535, description="The port. 0: a free one, which is printed and logged.")
    allow_insecure: bool = Field(
        False,
        description="Listen outside loopback without TLS. Whoever can reach the port can then use the server and "
        "read its traffic; without this setting it refuses to start.",
    )
    reuse_port: bool = Field(
        False,
        description="Share the port with other processes that set this too (SO_REUSEPORT). Off, a second server on "
        "the port fails to start.",
    )
    workers: Annotated[int, Field(ge=0, le=256)] = Field(
        1,
        description="How many processes serve, each a whole server, behind the one port. 0: one for each core. Without "
        "a shared store each has a memory of its own.",
    )
    reflection: bool | None = Field(
        None,
        description="Tell clients such as grpcurl which services there are. null: only where everything that is "
        "listened on is loopback.",
    )
    max_request_bytes: Bytes = Field(
        4 * MIB,
        description="The largest request. One that is larger is refused with LIMIT_EXCEEDED, and from twice the size "
        "on before it is read.",
    )
    max_reply_bytes: Bytes = Field(
        4 * MIB, description="The largest reply. Clients may ask for less; by default they take 4 MiB."
    )
    stream_idle_seconds: Seconds = Field(
        300.0,
        gt=0,
        description="How long a stream (Run) may wait for its client's next request before the server ends it, with "
        "OK. The client opens another one when it has something to say.",
    )
    max_streams: Count = Field(
        10_000,
        description="Streams (Run) that may be open, of all connections together. Beyond it they are refused with "
        "LIMIT_EXCEEDED; clients then use the unary methods.",
    )
    max_connection_calls: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        10_000,
        description="Calls that one connection may have under way, streams among them (HTTP/2 MAX_CONCURRENT_STREAMS). "
        "A client holds back what is beyond it until others have ended.",
    )
    max_connection_age_seconds: Seconds | None = Field(
        1800.0,
        gt=0,
        description="How long a connection is used for new calls, give or take a tenth. Then its client makes a new "
        "one, which may lead to another server. null: for ever.",
    )
    max_connection_age_grace_seconds: Seconds = Field(
        300.0,
        gt=0,
        description="How long calls under way on such a connection may still take; then they are cut. Streams (Run) "
        "end before, between two requests, with OK. Keep it well above decisions.timeout_seconds.",
    )
    drain_delay_seconds: Seconds = Field(
        0.0,
        description="On shutdown, how long requests are still served after health says NOT_SERVING, so that load "
        "balancers notice.",
    )
    grace_period_seconds: Seconds = Field(
        20.0,
        description="On shutdown, how long calls under way may take to finish while new ones are refused with "
        "DRAINING. Then they are cut, with DRAINING too.",
    )
    max_connections: Count = Field(
        10_000, description="Connections that may be open. Beyond it new ones are closed before they say anything."
    )
    handshake_timeout_seconds: Seconds = Field(
        20.0,
        gt=0,
        description="How long a new connection may take until TLS and HTTP/2 are agreed on; then it is closed.",
    )
    keepalive: KeepaliveSettings = KeepaliveSettings()
    tls: TlsSettings = TlsSettings()


class InvocationsSettings(Section):
    """How invocations are written down."""

    state_format_version: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="The format of the execution states that are written. null: the newest. While replicas are "
        "upgraded one by one, the one that the old ones know; formats that can be read are not limited by it.",
    )


class SparrowSettings(Section):
    """A small model that is part of the server: no network, no key."""

    provider: Literal["sparrow"] = Field("sparrow", description="`sparrow`: a small model inside the server.")
    model: str | None = Field(
        None, min_length=1, description="The sparrow model, by its name in the package. null: the package's default."
    )
    queue: Annotated[int, Field(ge=1, le=100_000)] = Field(
        256, description="Requests that may wait for the model; one more is refused with DECISION_QUEUE_FULL."
    )
    max_options: Annotated[int, Field(ge=2, le=100_000)] = Field(
        1000, description="Options of one choice question; more are refused with DECISION_MODEL_LIMIT."
    )


class FixedSettings(Section):
    """Answers from a file, for tests and replays. No model at all, and explanations say so."""

    provider: Literal["fixed"] = Field(description="`fixed`: answers from a file, for tests and replays.")
    file: File = Field(description="The YAML file with the answers; a relative path starts at the working directory.")


ModelSettings: TypeAlias = Annotated[
    SparrowSettings | FixedSettings | GrpcSettings | LangChainSettings | SystemOneSettings,
    Field(discriminator="provider"),
]


def _embedded_model() -> dict[ModelName, ModelSettings]:
    return {"sparrow": SparrowSettings()}


class DecisionsSettings(Section):
    """The decision models. Clients pick one by name, never by address."""

    models: dict[ModelName, ModelSettings] = Field(
        default_factory=_embedded_model,
        description="The models by name: lower case letters, digits, `.`, `_`, `-`. Giving any replaces the default.",
    )
    default: str | None = Field(
        None,
        description="The model for clients that name none. null: the only one; with several, clients must name theirs.",
    )
    timeout_seconds: Seconds = Field(
        30.0, gt=0, description="How long one request to a model may take where the client sets nothing."
    )
    parts_at_once: int = Field(
        4,
        ge=1,
        le=64,
        description="How many requests of one decision are made side by side, where clients have it split.",
    )

    @model_validator(mode="after")
    def _default_exists(self) -> DecisionsSettings:
        if self.default is not None and self.default not in self.models:
            raise ValueError(f"default is '{self.default}', which is none of the models: {', '.join(self.models)}")
        return self


class LogSettings(Section):
    """The log, which goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least important lines that are written. `warning` leaves out calls that went well."
    )
    format: Literal["json", "console"] = Field("json", description="One JSON object a line, or text for people.")
    error_messages: bool = Field(
        False,
        description="Also write the messages of unexpected exceptions, which may quote what a client sent. Types and "
        "places are always written.",
    )


class Settings(BaseSettings):
    """All settings. `Settings()` has the defaults and what the environment says; see `load` for files."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        env_parse_none_str="null",
        extra="forbid",
        frozen=True,
        strict=True,
    )

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitsSettings = LimitsSettings()
    invocations: InvocationsSettings = InvocationsSettings()
    health: HealthSettings = HealthSettings()
    store: StoreSettings = StoreSettings()
    decisions: DecisionsSettings = DecisionsSettings()
    operations: OperationsSettings = OperationsSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @model_validator(mode="after")
    def _certificates_are_asked_for(self) -> Settings:
        if self.auth.client_certificate is not None and self.server.tls.client_ca_file is None:
            raise ValueError("auth.client_certificate needs server.tls.client_ca_file")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is passed, then the environment; no .env files, no folders of secrets."""
        return init_settings, env_settings


class SettingsError(Exception):
    """The settings can't be used. Its text is for the operator: one problem a line, with the path of the setting."""


def load(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings from all places.

    Args:
        config: a YAML file; None: there is none.
        overrides: values from the command line, nested like the file.

    Raises:
        SettingsError: something is wrong with any of them.
    """
    overrides = overrides or {}
    _refuse_unknown_variables()
    written = _read(config) if config is not None else {}
    try:
        environment = EnvSettingsSource(Settings)()
    except SourceError as error:
        raise SettingsError(f"environment: {error}: it must be JSON") from None
    try:
        return Settings(**_merged(_merged(written, environment), overrides))
    except ValidationError as error:
        problems = [_problem(found["loc"], found["msg"], config, overrides) for found in error.errors()]
        raise SettingsError("\n".join(problems)) from None


def variable(path: tuple[str, ...]) -> str:
    """The environment variable of the setting at `path`."""
    return ENV_PREFIX + "__".join(path).upper()


def reference() -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Every setting as (path, default, what it does), in order."""
    yield from _describe(Settings, ())
    for kind in get_args(get_args(ModelSettings)[0]):
        yield from _describe(kind, ("decisions", "models", "NAME"))


def schema() -> dict[str, Any]:
    """A JSON schema of the settings file."""
    described = Settings.model_json_schema()
    models = described["$defs"]["DecisionsSettings"]["properties"]["models"]
    models["additionalProperties"] = False  # names that the pattern does not allow
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **described,
        "title": "Settings of plannerd",
        "description": "The file of `plannerd serve --config FILE`. Values may also come from the environment.",
    }


def reference_table() -> str:
    """The same as a table in Markdown."""
    rows = [
        f"| `{'.'.join(path)}` | `{default}` | {description.replace('|', '&#124;')} |"
        for path, default, description in reference()
    ]
    return "\n".join(["| setting | default | what it does |", "| --- | --- | --- |", *rows])


def _describe(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for name, field in model.model_fields.items():
        here = (*path, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _describe(field.annotation, here)
        else:
            default = "required" if field.is_required() else _written(field.get_default(call_default_factory=True))
            yield here, default, field.description or ""
            if get_origin(field.annotation) is dict:
                _, entry = get_args(field.annotation)
                if isinstance(entry, type) and issubclass(entry, BaseModel):
                    yield from _describe(entry, (*here, "KEY"))


def _written(value: object) -> str:
    """`value` as one would write it into the file, on one line."""
    if isinstance(value, dict):
        value = {key: item.model_dump(exclude_defaults=False) for key, item in value.items()}
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("\n...\n").strip()


class _Loader(yaml.SafeLoader):
    """YAML without surprises: a key that is written twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is written twice", key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def _read(config: Path) -> dict[str, Any]:
    try:
        content = yaml.load(config.read_text("utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise SettingsError(f"{config}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{config}: this is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{config}: this is not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingsError(f"{config}: the top of the file must be a map of sections: {', '.join(_sections())}")
    return content


def _sections() -> tuple[str, ...]:
    return tuple(Settings.model_fields)


def _refuse_unknown_variables() -> None:
    """Refuse variables of sections that don't exist.

    Names without two underscores are let be: Kubernetes puts PLANNERD_PORT and the like into every pod
    that can see a service called plannerd.
    """
    for name in sorted(os.environ):
        section, nested, _ = name.upper().removeprefix(ENV_PREFIX).partition("__")
        if name.upper().startswith(ENV_PREFIX) and nested and section.lower() not in _sections():
            raise SettingsError(f"{name}: there is no section '{section.lower()}', only {', '.join(_sections())}")


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`, maps entry by entry."""
    result = dict(low)
    for key, value in high.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _problem(location: tuple[int | str, ...], message: str, config: Path | None, overrides: Mapping[str, Any]) -> str:
    """One line about one bad setting: its path, what is wrong, and where the value came from."""
    path = tuple(str(part) for part in location)
    if path[:2] == ("decisions", "models") and len(path) > 3:
        path = path[:3] + path[4:]  # pydantic names the kind of model as if it were part of the path
    if message == "Extra inputs are not permitted":
        message = "there is no such setting"
    message = message.removeprefix("Value error, ")
    if not path:
        return message  # it is about several sections and names them
    return f"{'.'.join(path)}: {message} ({_origin(path, config, overrides)})"


def _origin(path: tuple[str, ...], config: Path | None, overrides: Mapping[str, Any]) -> str:
    given: Any = overrides
    for part in path:
        given = given.get(part) if isinstance(given, Mapping) else None
    if given is not None:
        return "on the command line"
    names = {name.upper() for name in os.environ}
    for length in range(len(path), 0, -1):
        if variable(path[:length]) in names:
            return f"in the environment, {variable(path[:length])}"
    within = variable(path) + "__"
    inner = next((name for name in sorted(names) if name.startswith(within)), None)
    if inner is not None:
        return f"in the environment, {inner}"
    return f"in {config}" if config is not None else "by default"
