"""The client for programs with threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack, cast

import grpc
from google.protobuf.message import Message

from plannerd_client._agents import AnyAgent
from plannerd_client._channel import DEFAULT_TIMEOUT, Connection, Tls, Token, current_traceparent
from plannerd_client._options import RunOptions, prepare
from plannerd_client._planners import Planner
from plannerd_client._results import RunResult
from plannerd_client._retries import RetryPolicy
from plannerd_client._runner import Runner
from plannerd_client._status import to_error
from plannerd_client._stream import Choice, Streaming
from plannerd_client._sync_driver import drive
from plannerd_client._sync_stream import Requests, RunCall, StreamSender, Watchdog
from plannerd_client._tracing import traced_run
from plannerd_protos.planner.v1 import decision_pb2, decision_pb2_grpc, planner_pb2, planner_pb2_grpc

R = TypeVar("R")


class Client:
    """A connection to plannerd. Runs invocations, and has a method for every RPC. Safe to use from several threads.

    Args:
        target: the address, `host:port` or any gRPC target.
        tls: None connects without TLS, which is for a server on the same machine; `Tls()` trusts the system's
            certificates.
        token: a bearer token, or a function that gives the current one.
        metadata: more metadata of every request, lower-case names.
        timeout: seconds that one attempt of a request may take. None: no limit.
        retry: how often and how long `run` sends a failed request again. The methods of single RPCs never do.
        max_reply_bytes: the largest reply to accept. 0: what the server allows.
        stream: `run` sends its requests over one stream, which costs less, and by unary calls where that does not
            work. False: by unary calls always.
        options: options of the gRPC channel.
        channel: a channel of your own instead; `target`, `tls` and `options` are then ignored, and it is not closed.
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
        channel: grpc.Channel | None = None,
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
        self._choice = Choice(stream, time.monotonic)
        self._watchdog = Watchdog()
        self._own = channel is None
        self._channel = self._open() if channel is None else channel
        self._planner = planner_pb2_grpc.PlannerServiceStub(self._channel)
        self._decisions = decision_pb2_grpc.DecisionModelServiceStub(self._channel)

    def _open(self) -> grpc.Channel:
        connection = self._connection
        if not connection.target:
            raise ValueError("give a target, for instance 'localhost:50051', or a channel")
        credentials, options = connection.credentials(), connection.channel_options()
        if credentials is None:
            return grpc.insecure_channel(connection.target, options)
        return grpc.secure_channel(connection.target, credentials, options)

    def close(self) -> None:
        """Close the connection. Invocations that are under way can be resumed with another client."""
        self._watchdog.close()
        if self._own:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        planner: Planner,
        agents: Iterable[AnyAgent | Callable[..., Any]],
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Run an invocation until the planner is done, or until somebody has to answer.

        Every agent that is to run gets a thread of its own, so those that are to run at the same time do.

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
            return traced.done(self._drive(runner, traced.traceparent))

    def _drive(self, runner: Runner, traceparent: str) -> RunResult:
        def unary(method: str, request: Message, timeout: float | None) -> Message:
            return cast("Message", self._call(getattr(self._planner, method), request, timeout, traceparent))

        def open_stream(requests: Requests) -> RunCall:
            metadata = self._connection.request_metadata(traceparent)
            return cast("RunCall", self._planner.Run(requests, metadata=metadata))

        streaming = Streaming(self._choice, lambda: traceparent or current_traceparent())
        sender = StreamSender(streaming, open_stream, unary, self._watchdog)
        try:
            return drive(runner.run(), sender)
        finally:
            sender.close()

    # --- one method for each RPC

    def init(self, request: planner_pb2.InitRequest, *, timeout: float | None = None) -> planner_pb2.InitResponse:
        """Start an invocation, or continue one from an execution state."""
        return self._call(self._planner.Init, request, timeout)

    def first_action(
        self, request: planner_pb2.FirstActionRequest, *, timeout: float | None = None
    ) -> planner_pb2.FirstActionResponse:
        """Give the scope and get the first action, or attach to an invocation that is under way."""
        return self._call(self._planner.FirstAction, request, timeout)

    def next_action(
        self, request: planner_pb2.NextActionRequest, *, timeout: float | None = None
    ) -> planner_pb2.NextActionResponse:
        """Report results and get the next action."""
        return self._call(self._planner.NextAction, request, timeout)

    def execution_state(
        self, request: planner_pb2.ExecutionStateRequest, *, timeout: float | None = None
    ) -> planner_pb2.ExecutionStateResponse:
        """Ask where an invocation stands."""
        return self._call(self._planner.ExecutionState, request, timeout)

    def end(self, request: planner_pb2.EndRequest, *, timeout: float | None = None) -> planner_pb2.EndResponse:
        """Release an invocation."""
        return self._call(self._planner.End, request, timeout)

    def list_planners(
        self, request: planner_pb2.ListPlannersRequest | None = None, *, timeout: float | None = None
    ) -> planner_pb2.ListPlannersResponse:
        """List the planners of the server; one page."""
        return self._call(self._planner.ListPlanners, request or planner_pb2.ListPlannersRequest(), timeout)

    def decide(
        self, request: decision_pb2.DecideRequest, *, timeout: float | None = None
    ) -> decision_pb2.DecideResponse:
        """Ask a decision model of the server."""
        return self._call(self._decisions.Decide, request, timeout)

    def stream(
        self, requests: Iterable[planner_pb2.RunRequest], *, timeout: float | None = None
    ) -> Iterator[planner_pb2.RunResponse]:
        """Send the requests of one invocation over one stream (the RPC `Run`); yields the responses.

        Args:
            requests: the next one may be given only after the response to the last.
            timeout: seconds that the whole stream may take. None: no limit.
        """
        metadata = self._connection.request_metadata("")
        try:
            yield from self._planner.Run(iter(requests), timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise to_error(error) from None

    def _call(self, method: Callable[..., R], request: Message, timeout: float | None, traceparent: str = "") -> R:
        connection = self._connection
        limit = connection.timeout if timeout is None else timeout
        try:
            return method(request, timeout=limit, metadata=connection.request_metadata(traceparent))
        except grpc.RpcError as error:
            raise to_error(error) from None
