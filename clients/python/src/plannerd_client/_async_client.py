"""The client for programs with asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from plannerd_client._agents import AnyAgent
from plannerd_client._async_driver import drive_async
from plannerd_client._async_stream import AsyncStreamSender
from plannerd_client._channel import DEFAULT_TIMEOUT, Connection, Tls, Token, current_traceparent
from plannerd_client._options import RunOptions, prepare
from plannerd_client._planners import Planner
from plannerd_client._results import RunResult
from plannerd_client._retries import RetryPolicy
from plannerd_client._runner import Runner
from plannerd_client._status import to_error
from plannerd_client._stream import Choice, Streaming
from plannerd_client._tracing import traced_run
from plannerd_protos.planner.v1 import decision_pb2, decision_pb2_grpc, planner_pb2, planner_pb2_grpc

if TYPE_CHECKING:
    from plannerd_client._async_stream import RunCall
    from plannerd_protos.planner.v1.decision_pb2_grpc import DecisionModelServiceAsyncStub
    from plannerd_protos.planner.v1.planner_pb2_grpc import PlannerServiceAsyncStub

R = TypeVar("R")


class AsyncClient:
    """A connection to plannerd for asyncio. Runs invocations, and has a method for every RPC.

    The arguments are those of `Client`. The connection is made when it is first used, and belongs to the event loop
    that runs then.
    """

    def __init__(
        self,
        target: str = "",
        *,
        tls: Tls | grpc.ChannelCredentials | None = None,
        token: Token | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        timeout: float | None = DEFAULT_TIMEOUT,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 -- it is immutable
        max_reply_bytes: int = 0,
        stream: bool = True,
        options: Sequence[tuple[str, Any]] = (),
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        self._connection = Connection(
            target=target,
            tls=tls,
            token=token,
            metadata=metadata,
            timeout=timeout,
            retry=retry,
            max_reply_bytes=max_reply_bytes,
            stream=stream,
            options=options,
        )
        if channel is None and not target:
            raise ValueError("give a target, for instance 'localhost:50051', or a channel")
        self._choice = Choice(stream, time.monotonic)
        self._own = channel is None
        self._channel = channel

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            credentials, options = self._connection.credentials(), self._connection.channel_options()
            if credentials is None:
                self._channel = grpc.aio.insecure_channel(self._connection.target, options)
            else:
                self._channel = grpc.aio.secure_channel(self._connection.target, credentials, options)
        return self._channel

    @property
    def _planner(self) -> PlannerServiceAsyncStub:
        return planner_pb2_grpc.PlannerServiceStub(self._opened())

    @property
    def _decisions(self) -> DecisionModelServiceAsyncStub:
        return decision_pb2_grpc.DecisionModelServiceStub(self._opened())

    async def close(self) -> None:
        """Close the connection. Invocations that are under way can be resumed with another client."""
        if self._own and self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
        self,
        planner: Planner,
        agents: Iterable[AnyAgent | Callable[..., Any]],
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Run an invocation until the planner is done, or until somebody has to answer.

        Coroutine functions run as tasks of this event loop, plain functions in threads of their own. Handlers and
        hooks may be coroutine functions. When the run is cancelled, its agents are.

        Args:
            planner: how to plan.
            agents: what to run: agents, or functions to make agents of, in order.
            arguments: the arguments of the planner agent, by name, in order; the decision models see them.
            options: see `RunOptions`.

        Raises:
            GaveUp: the planner ended without a result that counts.
            AgentFailed: an agent failed and nothing recovered it.
            PlannerdError: anything else; see the package `errors`.
        """
        runner = prepare(
            planner,
            agents,
            arguments,
            options,
            policy=self._connection.retry,
            rpc_timeout=self._connection.timeout,
            max_reply_bytes=self._connection.max_reply_bytes,
        )
        with traced_run(runner, options.get("traceparent", "")) as traced:
            return traced.done(await self._drive(runner, traced.traceparent))

    async def _drive(self, runner: Runner, traceparent: str) -> RunResult:
        stub = self._planner

        async def unary(method: str, request: Message, timeout: float | None) -> Message:
            return cast("Message", await self._call(getattr(stub, method), request, timeout, traceparent))

        def open_stream() -> RunCall:
            return stub.Run(metadata=self._connection.request_metadata(traceparent))

        streaming = Streaming(self._choice, lambda: traceparent or current_traceparent())
        sender = AsyncStreamSender(streaming, open_stream, unary)
        try:
            return await drive_async(runner.run(), sender)
        finally:
            sender.close()

    # --- one method for each RPC

    async def init(self, request: planner_pb2.InitRequest, *, timeout: float | None = None) -> planner_pb2.InitResponse:
        """Start an invocation, or continue one from an execution state."""
        return await self._call(self._planner.Init, request, timeout)

    async def first_action(
        self, request: planner_pb2.FirstActionRequest, *, timeout: float | None = None
    ) -> planner_pb2.FirstActionResponse:
        """Give the scope and get the first action, or attach to an invocation that is under way."""
        return await self._call(self._planner.FirstAction, request, timeout)

    async def next_action(
        self, request: planner_pb2.NextActionRequest, *, timeout: float | None = None
    ) -> planner_pb2.NextActionResponse:
        """Report results and get the next action."""
        return await self._call(self._planner.NextAction, request, timeout)

    async def execution_state(
        self, request: planner_pb2.ExecutionStateRequest, *, timeout: float | None = None
    ) -> planner_pb2.ExecutionStateResponse:
        """Ask where an invocation stands."""
        return await self._call(self._planner.ExecutionState, request, timeout)

    async def end(self, request: planner_pb2.EndRequest, *, timeout: float | None = None) -> planner_pb2.EndResponse:
        """Release an invocation."""
        return await self._call(self._planner.End, request, timeout)

    async def list_planners(
        self, request: planner_pb2.ListPlannersRequest | None = None, *, timeout: float | None = None
    ) -> planner_pb2.ListPlannersResponse:
        """List the planners of the server; one page."""
        return await self._call(self._planner.ListPlanners, request or planner_pb2.ListPlannersRequest(), timeout)

    async def decide(
        self, request: decision_pb2.DecideRequest, *, timeout: float | None = None
    ) -> decision_pb2.DecideResponse:
        """Ask a decision model of the server."""
        return await self._call(self._decisions.Decide, request, timeout)

    async def stream(
        self, requests: AsyncIterator[planner_pb2.RunRequest], *, timeout: float | None = None
    ) -> AsyncIterator[planner_pb2.RunResponse]:
        """Send the requests of one invocation over one stream (the RPC `Run`); yields the responses.

        Args:
            requests: the next one may be given only after the response to the last.
            timeout: seconds that the whole stream may take. None: no limit.
        """
        metadata = self._connection.request_metadata("")
        try:
            async for response in self._planner.Run(requests, timeout=timeout, metadata=metadata):
                yield response
        except grpc.RpcError as error:
            raise to_error(error) from None

    async def _call(
        self, method: Callable[..., Awaitable[R]], request: Message, timeout: float | None, traceparent: str = ""
    ) -> R:
        connection = self._connection
        limit = connection.timeout if timeout is None else timeout
        try:
            return await method(request, timeout=limit, metadata=connection.request_metadata(traceparent))
        except grpc.RpcError as error:
            raise to_error(error) from None
