"""The command plannerd with a service that tests can hold up: `python -m tests.support.sample_server serve`.

Init waits until the process gets SIGUSR1. ListPlanners tells, as server_version, how many wait. End never gives the
event loop back; ExecutionState leaves a thread behind that never ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time

from plannerd.app import App
from plannerd.cli import main
from plannerd.decisions.models import DecisionModels
from plannerd.invocations.stores import MemoryBounds, MemoryStore
from plannerd.services.context import CallContext
from plannerd.settings import Settings
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.services import service


class HeldService:
    """Holds each Init until it is released."""

    def __init__(self) -> None:
        self._release = asyncio.Event()
        self._waiting = 0

    async def init(self, request: planner_pb2.InitRequest, call: CallContext) -> planner_pb2.InitResponse:
        """Wait."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._release.set)
        self._waiting += 1
        try:
            await self._release.wait()
        finally:
            self._waiting -= 1
        return planner_pb2.InitResponse(model="released")

    async def end(self, request: planner_pb2.EndRequest, call: CallContext) -> planner_pb2.EndResponse:
        """Wedge the event loop."""
        while True:
            time.sleep(0.01)  # noqa: ASYNC251

    async def execution_state(
        self, request: planner_pb2.ExecutionStateRequest, call: CallContext
    ) -> planner_pb2.ExecutionStateResponse:
        """Leave a thread behind that never ends."""
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        return planner_pb2.ExecutionStateResponse()

    async def list_planners(
        self, request: planner_pb2.ListPlannersRequest, call: CallContext
    ) -> planner_pb2.ListPlannersResponse:
        """Tell how many wait."""
        return planner_pb2.ListPlannersResponse(server_version=str(self._waiting))


def build(settings: Settings) -> App:
    """The server."""
    held = HeldService()
    store = MemoryStore(MemoryBounds(), time.monotonic)
    served = service(Init=held.init, ListPlanners=held.list_planners, End=held.end, ExecutionState=held.execution_state)
    return App(settings, DecisionModels({}), store, [served])


if __name__ == "__main__":
    sys.exit(main(build=build))
