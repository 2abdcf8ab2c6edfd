"""Compiled configurations, each kept once however many invocations have it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from plannerd.invocations.commands import Configuration
from plannerd.invocations.record import Definition
from plannerd.planners.planner import belief_names
from plannerd.planners.registry import Registry

_BASE_BYTES: Final = 1024


class Definitions:
    """Compiles configurations, and finds those that were compiled before.

    Args:
        planners: the planners; default: those of the contract.
        max_bytes: about how many bytes are kept for the next Init; running invocations keep what they use.
        keep_source: whether a definition keeps the bytes that it was made from, to be stored with invocations.
    """

    def __init__(
        self, planners: Registry | None = None, *, max_bytes: int = 64 << 20, keep_source: bool = False
    ) -> None:
        self.planners = planners or Registry()
        self._max_bytes = max_bytes
        self._keep_source = keep_source
        self._known: OrderedDict[bytes, Definition] = OrderedDict()
        self._bytes = 0

    def define(self, configuration: Configuration) -> Definition:
        """The definition of `configuration`.

        Raises:
            PlannerdError: INVALID_CONFIGURATION or PLANNER_NOT_FOUND.
        """
        known = self._known.get(configuration.key)
        if known is not None:
            self._known.move_to_end(configuration.key)
            return known
        planner, kind, digest = self.planners.compile(
            configuration.planner, configuration.planner_agent, configuration.agents
        )
        definition = Definition(
            planner,
            kind,
            digest,
            belief_names(planner),
            configuration.size + _BASE_BYTES,
            configuration.source if self._keep_source else b"",
        )
        self._known[configuration.key] = definition
        self._bytes += definition.size
        while self._bytes > self._max_bytes:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= dropped.size
        return definition
