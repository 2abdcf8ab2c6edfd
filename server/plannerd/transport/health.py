"""Health: the standard service grpc.health.v1.Health, for the server as a whole ("") and each service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]


class Health(health.aio.HealthServicer):  # type: ignore[misc]
    """The health servicer of grpc, whose watchers do not hold up the end of the server."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def serving(self, services: Iterable[str]) -> None:
        """From now on the server and `services` are SERVING."""
        for name in (health.OVERALL_HEALTH, *services):
            await self.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def Watch(self, request: Any, context: Any) -> None:
        """Tell the client of each change, until it goes away or the server ends."""
        watching = asyncio.ensure_future(super().Watch(request, context))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({watching, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            closed.cancel()
            await asyncio.gather(watching, closed, return_exceptions=True)
        if self._closed.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server has shut down")

    def close(self) -> None:
        """End all watches."""
        self._closed.set()


SERVICE_NAME: str = health.SERVICE_NAME
"""The full name of the health service."""
