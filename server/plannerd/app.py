"""The composition root: the one place where the parts of a server are chosen and put together."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from plannerd.decisions.fixed import FixedModel
from plannerd.decisions.model import DecisionModel, ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.remote import Entry, Keepalive, RemoteModel, RemoteOptions, RemoteTls
from plannerd.decisions.retries import RetryRules
from plannerd.decisions.script import load_script
from plannerd.decisions.sparrow import SparrowModel
from plannerd.decisions.systemone import ApiKey, HostOptions, SystemOneModel
from plannerd.invocations.commands import StepEvent
from plannerd.invocations.content import Recorded
from plannerd.invocations.definitions import Definitions
from plannerd.invocations.engine import Engine, EngineLimits
from plannerd.invocations.history import History
from plannerd.invocations.observed import Observed
from plannerd.invocations.observer import UNOBSERVED, Observer
from plannerd.invocations.operations import Operations
from plannerd.invocations.scope import ScopeLimits
from plannerd.invocations.state_format import FORMATS
from plannerd.invocations.stores import MemoryBounds, MemoryStore, Store
from plannerd.invocations.stores.entries import Entries
from plannerd.planners.plugin import ENTRY_POINTS, PlannerPlugin
from plannerd.planners.registry import Registry
from plannerd.protection import protection_of
from plannerd.security.files import FileError
from plannerd.services.codec.configuration import InitLimits, read_configuration
from plannerd.services.codec.replies import encode_step
from plannerd.services.decision_service import DecideLimits, DecisionModelService
from plannerd.services.operator_service import OperatorService
from plannerd.services.planner_service import PlannerService
from plannerd.settings import FixedSettings, ModelSettings, Settings, SparrowSettings
from plannerd.settings.grpc import GrpcSettings, MetadataSettings
from plannerd.settings.langchain import LangChainSettings
from plannerd.settings.store import StoreSettings
from plannerd.settings.systemone import SystemOneSettings
from plannerd.telemetry.calls import Calls
from plannerd.telemetry.logging import get_logger, printable
from plannerd.telemetry.metrics import Meter
from plannerd.telemetry.plan import Plan, TelemetryError, planned
from plannerd.transport.catalogue import catalogue
from plannerd.transport.handlers import Service
from plannerd.transport.listening import resolve
from plannerd.transport.protection import UNPROTECTED, Protection
from plannerd.transport.readiness import MODELS, STORE, Dependency
from plannerd.transport.server import CLOSE_SECONDS, Server, run
from plannerd.wire.values import ValueLimits

if TYPE_CHECKING:
    from plannerd.invocations.stores.connection import RedisTarget
    from plannerd.telemetry.export.start import Telemetry


_TELLING: Final = re.compile("auth|cookie|key|pass|secret|token")


class StartError(Exception):
    """The server can't start now, though its settings are right. Its text is for the operator."""


class BuildError(Exception):
    """A part can't be made as the settings say. Its text is for the operator, with the path of the setting."""


@dataclass(frozen=True, slots=True)
class App:
    """A server that is ready to start.

    Attributes:
        settings: what it was built from.
        models: the decision models; closed when the server has stopped.
        store: where invocations are kept; closed like the models.
        services: what it serves.
        meter: what is measured.
        plan: what the environment wants to be exported; None: nothing.
        protection: TLS and who may call.
    """

    settings: Settings
    models: DecisionModels
    store: Store
    services: Sequence[Service]
    meter: Meter = field(default_factory=Meter)
    plan: Plan | None = None
    protection: Protection = UNPROTECTED

    async def serve(self, announce: Callable[[tuple[str, ...]], None]) -> None:
        """Serve until a signal stops it; see `plannerd.transport.server.run`.

        Raises:
            StartError: the store does not answer.
            BuildError: telemetry can't be exported as the environment says.
        """
        telemetry = self._telemetry()
        calls = Calls(self.meter, telemetry.spans) if telemetry is not None else None
        flush = self.settings.telemetry.flush_seconds
        try:
            problem = await self.store.check()
            if problem is not None:
                raise StartError(f"store.url: {self.settings.store.url} can't be used: {problem}")
            await self._check_operators()
            await run(self.server(calls), announce, 2 * flush if telemetry is not None else 0.0)
        finally:
            await self.close()
            if telemetry is not None:
                await telemetry.close(flush)

    def _telemetry(self) -> Telemetry | None:
        if self.plan is None:
            return None
        # Loaded only where it is used: OpenTelemetry is large.
        from plannerd.telemetry.export.start import start  # noqa: PLC0415

        try:
            return start(self.plan, self.meter, version("plannerd"))
        except TelemetryError as error:
            raise BuildError(str(error)) from error

    async def _check_operators(self) -> None:
        host = self.settings.server.host
        if _everybody_operates(self.settings) and not all(found.is_loopback for found in await resolve(host)):
            raise StartError(
                f"operations.enabled: '{host}' can be reached from other machines, and everybody who connects would be "
                "an operator. Listen on 127.0.0.1, or name the operators in auth.operators"
            )

    def server(self, calls: Calls | None = None) -> Server:
        """The server, not started yet; `calls` hears of every call."""
        return Server(
            self.settings.server, self.services, calls, self.protection, self._dependencies(), self.settings.health
        )

    async def close(self) -> None:
        """Release what the parts hold; what does not let go in time is left to the end of the process."""
        closing = [asyncio.ensure_future(part.close()) for part in (self.models, self.store)]
        done, late = await asyncio.wait(closing, timeout=CLOSE_SECONDS)
        for task in late:
            task.cancel()
        for task in done:
            task.result()

    def _dependencies(self) -> list[Dependency]:
        """What health looks at."""
        health, found = self.settings.health, []
        if self.store.durable:
            found.append(Dependency(STORE, self.store.check, health.store_away_seconds))
        for name in self.models.names:
            patience = 0.0 if name in health.required_models else None
            found.append(Dependency(f"{MODELS}{name}", partial(self._model_problem, name), patience))
        return found

    async def _model_problem(self, name: str) -> str | None:
        return self.models.down(name, self.settings.health.model_down_seconds)


def build(settings: Settings) -> App:
    """Put a server together.

    Raises:
        BuildError: the settings name something that can't be used.
    """
    server, limits, decisions = settings.server, settings.limits, settings.decisions
    if settings.operations.enabled and settings.auth.used and not settings.auth.operators:
        raise BuildError("operations.enabled: nobody is an operator, name them in auth.operators")
    for name in settings.health.required_models:
        if name not in decisions.models:
            raise BuildError(f"health.required_models: '{name}' is none of the models: {', '.join(decisions.models)}")
    models = DecisionModels(
        {name: build_model(name, chosen) for name, chosen in decisions.models.items()},
        decisions.default,
    )
    state_format = _state_format(settings)
    meter, plan = Meter(), _plan()
    definitions = Definitions(planners(), keep_source=settings.store.url is not None)
    store = _store(settings, definitions, meter)
    observer: Observer = Observed(meter, _recorded(settings)) if plan is not None else UNOBSERVED
    meter.open.follow(lambda: [((name,), count) for name, count in models.open.items()])
    engine_limits = EngineLimits(
        max_reply_bytes=server.max_reply_bytes,
        scope=ScopeLimits(limits.max_scope_bytes, limits.max_scope_keys),
        decision_timeout=decisions.timeout_seconds,
        parts_at_once=decisions.parts_at_once,
        max_questions=limits.max_questions,
    )
    value_limits = ValueLimits(limits.max_nesting, limits.max_values)
    operations = settings.operations
    history = History(
        operations.explanations if _has_operators(settings) else 0,
        operations.max_explanations_bytes,
        content=operations.content,
    )

    def observe(event: StepEvent) -> None:
        _log_warnings(event)
        history.note(event)

    engine = Engine(
        models,
        store,
        encode_step,
        engine_limits,
        definitions=definitions,
        observe=observe,
        state_format=state_format,
        observer=observer,
        keep_messages=operations.content,
    )
    planner_service = PlannerService(
        engine,
        InitLimits(
            limits.max_agents, limits.max_parts, limits.max_cel_characters, limits.max_state_bytes, value_limits
        ),
        version=version("plannerd"),
        max_request_bytes=server.max_request_bytes,
        retained_seconds=limits.idle_seconds,
    )
    decision_service = DecisionModelService(
        models,
        decisions.timeout_seconds,
        limits=DecideLimits(limits.max_scope_keys, limits.max_questions, limits.max_parts, value_limits),
        observer=observer,
    )
    operator_service = OperatorService(
        Operations(engine, store, history) if _has_operators(settings) else None,
        everybody=_everybody_operates(settings),
        content=operations.content,
    )
    try:
        protection = protection_of(settings)
    except FileError as problem:
        raise BuildError(str(problem)) from problem
    services = catalogue(planner_service, decision_service, operator_service)
    return App(settings, models, store, services, meter, plan, protection)


def _has_operators(settings: Settings) -> bool:
    """Whether there is a service for operators."""
    enabled = settings.operations.enabled
    return bool(settings.auth.operators) if enabled is None else enabled


def _everybody_operates(settings: Settings) -> bool:
    """Whether every caller is an operator: the service is on, and nobody can be told apart."""
    return _has_operators(settings) and not settings.auth.used


def _state_format(settings: Settings) -> int | None:
    """The format of execution states to write.

    Raises:
        BuildError: there is no such format.
    """
    version = settings.invocations.state_format_version
    if version is not None and version not in FORMATS:
        known = ", ".join(str(number) for number in sorted(FORMATS))
        raise BuildError(
            f"invocations.state_format_version: there is no format {version} of execution states; known: {known}"
        )
    return version


def _plan() -> Plan | None:
    try:
        return planned(os.environ)
    except TelemetryError as error:
        raise BuildError(str(error)) from error


def _recorded(settings: Settings) -> Recorded:
    record = settings.telemetry.record
    return Recorded(record.scope, record.inputs, record.outputs, record.goals, record.questions)


def _store(settings: Settings, definitions: Definitions, meter: Meter) -> Store:
    limits, chosen = settings.limits, settings.store
    bounds = MemoryBounds(
        max_invocations=limits.max_invocations,
        max_bytes=limits.max_invocations_bytes,
        idle_seconds=limits.idle_seconds,
        tombstone_seconds=limits.tombstone_seconds,
        max_per_identity=limits.max_invocations_per_identity,
    )
    if chosen.url is None:
        memory = MemoryStore(bounds, time.monotonic)
        _follow(meter, memory)
        return memory
    # Loaded only where it is used: the client of Redis is large.
    from plannerd.invocations.stores.connection import RedisConnection  # noqa: PLC0415
    from plannerd.invocations.stores.observed import ObservedConnection  # noqa: PLC0415
    from plannerd.invocations.stores.redis import RedisStore  # noqa: PLC0415

    remembered = Entries(bounds, time.monotonic)
    _follow(meter, remembered)
    return RedisStore(
        ObservedConnection(RedisConnection(_redis_target(chosen)), meter),
        remembered,
        lambda source: definitions.define(read_configuration(source)),
        prefix=chosen.prefix,
        idle_seconds=limits.idle_seconds,
        tombstone_seconds=limits.tombstone_seconds,
        claim_seconds=chosen.claim_seconds,
        state_format=settings.invocations.state_format_version,
        max_per_identity=limits.max_invocations_per_identity,
    )


def _follow(meter: Meter, kept: MemoryStore | Entries) -> None:
    meter.live.follow(lambda: [((), len(kept))])
    meter.evicted.follow(lambda: [((), kept.evicted)])


def _redis_target(chosen: StoreSettings) -> RedisTarget:
    """Where the store is.

    Raises:
        BuildError: a file can't be read.
    """
    from plannerd.invocations.stores.connection import RedisTarget  # noqa: PLC0415

    url = urlsplit(chosen.url or "")
    try:
        password = chosen.password.get_secret_value() if chosen.password is not None else ""
        if chosen.password_file is not None:
            password = chosen.password_file.read_text("utf-8").strip()
        return RedisTarget(
            host=url.hostname or "",
            port=url.port or 6379,
            database=int(url.path.strip("/") or 0),
            cluster=chosen.cluster,
            username=chosen.username or "",
            password=password,
            tls=url.scheme in ("rediss", "valkeys"),
            ca=_certificates(chosen.ca_file),
            cert=_bytes(chosen.cert_file),
            key=_bytes(chosen.key_file),
            timeout=chosen.timeout_seconds,
        )
    except (OSError, ValueError) as error:
        raise BuildError(f"store: {error}") from error


def _certificates(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        raise ValueError(f"{file} holds no certificates in PEM") from None
    return file.read_bytes()


def _bytes(file: Path | None) -> bytes | None:
    return file.read_bytes() if file is not None else None


def planners() -> Registry:
    """The planners of the contract, and those that installed packages bring."""
    try:
        return Registry(_plugin(entry) for entry in entry_points(group=ENTRY_POINTS))
    except ValueError as error:
        raise BuildError(f"planner plug-ins: {error}") from error


def _plugin(entry: EntryPoint) -> PlannerPlugin[Any]:
    try:
        plugin = entry.load()
    except Exception as error:  # whatever a foreign package does when it is imported
        raise BuildError(f"planner plug-in '{entry.name}' ({entry.value}): {error}") from error
    if not isinstance(plugin, PlannerPlugin):
        raise BuildError(f"planner plug-in '{entry.name}' ({entry.value}) is no PlannerPlugin")
    return plugin


def _log_warnings(event: StepEvent) -> None:
    """Log what a step warns of, without its messages: they name things of the client, and plug-ins write their own."""
    for warning in event.reply.warnings:
        get_logger().warning(
            "step_warning",
            code=warning.code.name,
            agent_id=printable(warning.agent_id),
            invocation_id=printable(event.invocation_id),
        )


def build_model(name: str, chosen: ModelSettings) -> DecisionModel:
    """A decision model of that name.

    Raises:
        BuildError: the settings name something that can't be used.
    """
    try:
        match chosen:
            case SparrowSettings():
                return SparrowModel(chosen.model, queue=chosen.queue, options=chosen.max_options)
            case FixedSettings():
                return FixedModel(load_script(chosen.file), remember=0)
            case SystemOneSettings():
                return _systemone(name, chosen)
            case GrpcSettings():
                return _remote(name, chosen)
            case LangChainSettings():
                return _langchain(name, chosen)
    except (OSError, ValueError, RuntimeError) as error:
        raise BuildError(f"decisions.models.{name}: {error}") from error


def _systemone(name: str, chosen: SystemOneSettings) -> SystemOneModel:
    key = ApiKey(variable=chosen.api_key_env, file=chosen.api_key_file)
    if chosen.base_url.lower().startswith("http:") and key.current() is not None:
        get_logger().warning("key_unencrypted", model=name, detail="the key of this model is sent without TLS")
    return SystemOneModel(
        name,
        HostOptions(
            base_url=chosen.base_url,
            model=chosen.model,
            key=key,
            ca_file=chosen.ca_file,
            connections=chosen.max_concurrent,
            idle_seconds=chosen.idle_connection_seconds,
            max_response_bytes=chosen.max_reply_bytes,
        ),
        limits=ModelLimits(
            questions=chosen.max_questions, options=chosen.max_options, levels=chosen.max_levels, images=chosen.images
        ),
        form=chosen.input_format,
        max_input_bytes=chosen.max_input_bytes,
        retries=RetryRules(
            retries=chosen.retries,
            attempt_seconds=chosen.attempt_timeout_seconds,
            first_wait=chosen.retry_wait_seconds,
        ),
        concurrent=chosen.max_concurrent,
        queue=chosen.max_queue,
    )


def _remote(name: str, chosen: GrpcSettings) -> RemoteModel:
    tls = chosen.tls
    options = RemoteOptions(
        target=chosen.target,
        model=chosen.model,
        tls=RemoteTls(tls.ca, tls.cert, tls.key, tls.server_name) if tls.enabled else None,
        metadata=tuple(_entry(key, value) for key, value in chosen.metadata.items()),
        limits=ModelLimits(chosen.max_questions, chosen.max_options, chosen.max_levels, chosen.images),
        max_request_bytes=chosen.max_request_bytes,
        max_reply_bytes=chosen.max_reply_bytes,
        retries=RetryRules(chosen.retries, chosen.attempt_timeout_seconds, chosen.retry_wait_seconds),
        concurrent=chosen.max_concurrent,
        queue=chosen.max_queue,
        keepalive=Keepalive(chosen.keepalive_seconds, chosen.keepalive_timeout_seconds),
    )
    return RemoteModel(name, options)


def _langchain(name: str, chosen: LangChainSettings) -> DecisionModel:
    try:
        # An optional part, and large.
        from plannerd.decisions.langchain import LangChainModel, LangChainOptions, load_model  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"the provider langchain needs the extra plannerd[langchain]: {error}") from error
    options = LangChainOptions(
        limits=ModelLimits(chosen.max_questions, chosen.max_options, chosen.max_levels, chosen.images),
        retries=RetryRules(chosen.retries, chosen.attempt_timeout_seconds, chosen.retry_wait_seconds),
        concurrent=chosen.max_concurrent,
        queue=chosen.max_queue,
        tracing=chosen.tracing,
    )
    return LangChainModel(name, load_model(chosen.factory, chosen.arguments), options)


def _entry(key: str, value: MetadataSettings) -> Entry:
    if value.env is None:
        # A plain value is no secret, such as the name of a tenant, unless its key says so.
        secret = value.value is None or _TELLING.search(key) is not None
        return Entry(key, value.value or "", value.file, value.prefix, secret)
    found = os.environ.get(value.env)
    if not found:
        raise ValueError(f"metadata '{key}': the environment variable {value.env} is not set")
    return Entry(key, found, prefix=value.prefix)
