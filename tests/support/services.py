"""Small services on the real descriptors, and real servers in this process that serve them."""

from __future__ import annotations

import importlib
import io
import json
import logging
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

import plannerd_protos.planner.v1 as contract
from plannerd.settings import ServerSettings
from plannerd.telemetry.logging import Level, configure
from plannerd.transport.handlers import Service
from plannerd.transport.protection import UNPROTECTED, Protection
from plannerd.transport.server import Server
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc

PLANNER_SERVICE: ServiceDescriptor = planner_pb2.DESCRIPTOR.services_by_name["PlannerService"]


def contract_services() -> list[ServiceDescriptor]:
    """Every service of the contract, found in the generated code."""
    names = sorted(module.name for module in pkgutil.iter_modules(contract.__path__) if module.name.endswith("_pb2"))
    files = [importlib.import_module(f"{contract.__name__}.{name}").DESCRIPTOR for name in names]
    return [service for file in files for service in file.services_by_name.values()]


def contract_methods() -> list[MethodDescriptor]:
    """Every method of the contract."""
    return [method for service in contract_services() for method in service.methods]


def service(descriptor: ServiceDescriptor = PLANNER_SERVICE, **methods: Callable[..., Any]) -> Service:
    """A service that has only `methods`; the others fail if they are called."""

    async def missing(request: object, call: object) -> bytes:
        raise NotImplementedError

    def missing_stream(call: object) -> object:
        raise NotImplementedError

    every = {
        method.name: methods.pop(method.name, missing_stream if method.client_streaming else missing)
        for method in descriptor.methods
    }
    assert not methods, f"{descriptor.name} has no {', '.join(methods)}"
    return Service(descriptor, SimpleNamespace(**every))


@dataclass(frozen=True, slots=True)
class Serving:
    """A server in this process, a channel to it, and its log, which is still there when they are gone."""

    server: Server
    channel: grpc.aio.Channel
    stream: io.StringIO

    @property
    def planner(self) -> planner_pb2_grpc.PlannerServiceAsyncStub:
        """A stub of PlannerService."""
        return planner_pb2_grpc.PlannerServiceStub(self.channel)

    def log(self) -> str:
        """The log so far."""
        return self.stream.getvalue()

    def all_events(self) -> list[dict[str, Any]]:
        """All events in the log, those of other libraries too."""
        return [json.loads(line) for line in self.log().splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of that name in the log. That of a failed call is sure to be there once the server stopped."""
        return [event for event in self.all_events() if event["event"] == name]


@asynccontextmanager
async def serving(
    *services: Service,
    error_messages: bool = False,
    log_level: Level = "info",
    protection: Protection = UNPROTECTED,
    credentials: grpc.ChannelCredentials | None = None,
    **settings: Any,
) -> AsyncIterator[Serving]:
    """Serve `services` on a free port of 127.0.0.1, with `settings` of the section `server`.

    The channel uses TLS if `credentials` are given.
    """
    with captured_log(error_messages=error_messages, level=log_level) as stream:
        async with (
            Server(ServerSettings(**({"port": 0} | settings)), services, protection=protection) as server,
            open_channel(server.targets[0], credentials) as channel,
        ):
            yield Serving(server, channel, stream)


def open_channel(target: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    """A channel with a connection of its own."""
    if credentials is None:
        return grpc.aio.insecure_channel(target, _OWN_CONNECTION)
    return grpc.aio.secure_channel(target, credentials, _OWN_CONNECTION)


@contextmanager
def captured_log(**options: Any) -> Iterator[io.StringIO]:
    """Configure logging as a server does, into a text, and undo that at the end."""
    root = logging.getLogger()
    handlers, level, raising = root.handlers, root.level, logging.raiseExceptions
    stream = io.StringIO()
    configure(stream=stream, **options)
    try:
        yield stream
    finally:
        root.handlers, logging.raiseExceptions = handlers, raising
        root.setLevel(level)
        structlog.reset_defaults()


_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
