"""planner.v1.PlannerService: decode, one call of the engine, encode."""

from __future__ import annotations

from plannerd.errors import invalid
from plannerd.invocations.engine import Engine
from plannerd.services.codec.configuration import InitLimits, check_invocation_id, decode_init
from plannerd.services.codec.replies import encode_init
from plannerd.services.codec.requests import decode_end, decode_first_action, decode_next_action
from plannerd.services.codec.schema import encode_planners
from plannerd.services.context import CallContext
from plannerd.services.run import RunConversation
from plannerd_protos.planner.v1 import planner_pb2

MAX_PAGE = 100


class PlannerService:
    """Serves planners.

    Args:
        engine: runs the invocations.
        limits: what one Init, and the values of any request, may bring.
        version: of this server.
        max_request_bytes: bytes of one request, to be told to clients.
        retained_seconds: how long an untouched invocation is kept, to be told to clients.
    """

    def __init__(
        self,
        engine: Engine,
        limits: InitLimits | None = None,
        *,
        version: str,
        max_request_bytes: int,
        retained_seconds: float,
    ) -> None:
        self._engine = engine
        self._limits = limits or InitLimits()
        self._version = version
        self._max_request_bytes = max_request_bytes
        self._retained_seconds = retained_seconds
        self._planners = encode_planners(engine.planners)

    async def Init(self, request: planner_pb2.InitRequest, call: CallContext) -> planner_pb2.InitResponse:
        """Start or continue an invocation."""
        command = decode_init(request, call.traceparent, self._limits)
        reply = await self._engine.init(call.identity, command)
        return encode_init(reply, self._engine.limits, self._limits, self._max_request_bytes, self._retained_seconds)

    async def FirstAction(self, request: planner_pb2.FirstActionRequest, call: CallContext) -> bytes:
        """Give the scope and get the first action."""
        command, digest = decode_first_action(request, self._limits.values)
        return await self._engine.first_action(call.identity, command, digest)

    async def NextAction(self, request: planner_pb2.NextActionRequest, call: CallContext) -> bytes:
        """Report results and get the next action."""
        command, digest = decode_next_action(request, self._limits.values)
        return await self._engine.next_action(call.identity, command, digest)

    async def ExecutionState(self, request: planner_pb2.ExecutionStateRequest, call: CallContext) -> bytes:
        """Tell where an invocation stands."""
        return await self._engine.execution_state(call.identity, check_invocation_id(request.invocation_id))

    async def End(self, request: planner_pb2.EndRequest, call: CallContext) -> planner_pb2.EndResponse:
        """Release an invocation."""
        await self._engine.end(call.identity, decode_end(request))
        return planner_pb2.EndResponse()

    async def ListPlanners(
        self, request: planner_pb2.ListPlannersRequest, call: CallContext
    ) -> planner_pb2.ListPlannersResponse:
        """List the planners of this server."""
        planners = self._planners
        pages = {str(position): position for position in range(1, len(planners))}
        if request.page_token and request.page_token not in pages:
            raise invalid("page_token", "is none that this server gave out")
        first = pages.get(request.page_token, 0)
        if request.page_size < 0:
            raise invalid("page_size", "must not be negative")
        last = first + min(request.page_size or MAX_PAGE, MAX_PAGE)
        return planner_pb2.ListPlannersResponse(
            planners=planners[first:last],
            next_page_token=str(last) if last < len(planners) else "",
            server_version=self._version,
        )

    def Run(self, call: CallContext) -> RunConversation:
        """The same over one stream, for one invocation."""
        return RunConversation(self, call, max_reply_bytes=self._engine.limits.max_reply_bytes)
