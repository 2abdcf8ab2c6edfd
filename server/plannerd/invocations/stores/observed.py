"""Tells telemetry of round trips to the shared store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from plannerd.invocations.observed import reason_of
from plannerd.invocations.stores.connection import Answer, Connection
from plannerd.invocations.stores.scripts import ADMIT, CHECK, CLAIM, DROP, GET, LEAVE, PUT, RELEASE, RENEW
from plannerd.telemetry.metrics import Meter
from plannerd.telemetry.names import STORE_SPAN, Attribute
from plannerd.telemetry.requests import CURRENT, SpanKind

_OPERATIONS: Final[Mapping[str, str]] = {
    GET: "get",
    PUT: "put",
    DROP: "drop",
    CLAIM: "claim",
    RENEW: "renew",
    RELEASE: "release",
    ADMIT: "admit",
    LEAVE: "leave",
    CHECK: "check",
}
_SYSTEM: Final = "redis"


class ObservedConnection:
    """A connection whose requests are measured, and traced with the request that they are made for.

    Args:
        inner: makes them.
        meter: takes measurements.
    """

    def __init__(self, inner: Connection, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """What `script` answers."""
        started = time.perf_counter()
        try:
            answer = await self._inner.run(script, keys, arguments)
        except BaseException as error:
            self._ended(script, started, reason_of(error))
            raise
        self._ended(script, started, "")
        return answer

    @property
    def problem(self) -> str:
        """What went wrong last."""
        return self._inner.problem

    async def scan(self, pattern: str, cursor: str, count: int) -> tuple[list[bytes], str]:
        """Some of the keys of that pattern; for operators, and no part of any invocation's trace."""
        return await self._inner.scan(pattern, cursor, count)

    async def read(self, keys: Sequence[bytes], fields: Sequence[bytes]) -> list[dict[bytes, bytes | None]]:
        """These fields of these hashes; likewise."""
        return await self._inner.read(keys, fields)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._inner.close()

    def _ended(self, script: str, started: float, reason: str) -> None:
        operation, seconds = _OPERATIONS[script], time.perf_counter() - started
        self._meter.store.record((operation, reason, _SYSTEM), seconds)
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            attributes = {Attribute.DB_SYSTEM.value: _SYSTEM, Attribute.DB_OPERATION.value: operation}
            if reason:
                attributes[Attribute.ERROR_TYPE.value] = reason
            trace.add(f"{STORE_SPAN} {operation}", SpanKind.CLIENT, seconds, attributes, error=bool(reason))
