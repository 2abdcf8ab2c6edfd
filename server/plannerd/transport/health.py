"""Health: the standard service grpc.health.v1.Health, for the server as a whole ("") and each part by its name.

The servicer that grpcio-health-checking brings tells watchers of a change under a lock, so that one client that
does not read holds up the next change, and with it the end of the server. This one waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

LIVENESS: Final = "liveness"
"""The name of the loop itself: SERVING as long as it answers, whatever else is wrong."""

OVERALL: Final[str] = health.OVERALL_HEALTH
"""The name of the server as a whole."""

SERVICE_NAME: Final[str] = health.SERVICE_NAME
"""The full name of the health service."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Tells how the server and its parts are."""

    def __init__(self) -> None:
        self._statuses: dict[str, Any] = {}
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._draining = False

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def serving(self, names: Iterable[str]) -> None:
        """From now on the server as a whole, its loop and `names` are SERVING."""
        self._change(dict.fromkeys((OVERALL, LIVENESS, *names), _SERVING))

    def mark(self, names: Iterable[str], *, up: bool) -> None:
        """From now on `names` are SERVING or NOT_SERVING; once the server drains, nothing changes any more."""
        if not self._draining:
            self._change(dict.fromkeys(names, _SERVING if up else _NOT_SERVING))

    def drain(self) -> None:
        """All but the loop is NOT_SERVING, for good."""
        self._draining = True
        self._change({name: _NOT_SERVING for name in self._statuses if name != LIVENESS})

    def close(self) -> None:
        """End all watches."""
        self._closed.set()

    async def Check(self, request: Any, context: Any) -> Any:
        """How the named part is now."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "this server has no part of that name")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> None:
        """Tell the client of each change, until it goes away or the server ends."""
        telling = asyncio.ensure_future(self._tell(request.service, context))
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({telling, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            closed.cancel()
            await asyncio.gather(telling, closed, return_exceptions=True)
        if self._closed.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the server has shut down")

    async def _tell(self, name: str, context: Any) -> None:
        told = None
        while True:
            news, status = self._news, self._statuses.get(name, _UNKNOWN)
            if status != told:
                told = status
                await context.write(health_pb2.HealthCheckResponse(status=status))
            else:
                await news.wait()

    def _change(self, statuses: dict[str, Any]) -> None:
        if any(self._statuses.get(name) != status for name, status in statuses.items()):
            self._statuses.update(statuses)
            news, self._news = self._news, asyncio.Event()
            news.set()
