"""Asks a server's health service once, for the command line."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd.transport.connecting import Connection


class HealthError(Exception):
    """There is no answer. Its text is for the operator."""


def status_of(connection: Connection, service: str = "") -> str:
    """What the server says of itself, or of a part of it: `SERVING`, `NOT_SERVING`.

    Raises:
        HealthError: it can't be reached, does not answer in time, or has no such part.
        OSError: a file of the connection can't be read.
    """
    with connection.channel() as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            reply = check(health_pb2.HealthCheckRequest(service=service), timeout=connection.timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise HealthError(f"{connection.target} has no part '{service}'") from None
            raise HealthError(f"{connection.target}: {error.code().name}: {error.details()}") from None
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)
    return name
