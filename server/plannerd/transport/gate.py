"""The gate that every call passes: whether it may start, what its failure becomes, and its line in the log.

Three things about grpc.aio shape it. An abort raises AbortError, an ordinary Exception that must reach grpc. A
call that its client cancelled, or whose deadline passed, is cancelled as a task; but so is a handler in which
anything else raised CancelledError, and grpc then sends nothing and leaves its client waiting. Unary calls do
their work in a task of their own, so that a cancellation of grpc's task can only come from grpc. Sending a status
tells the others apart: on a call that is over it fails at once. It is not done without need, as each such failure
leaves some hundred bytes behind in grpc for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from plannerd.decisions.hops import HEADER as HOPS_HEADER
from plannerd.errors import PlannerdError, Reason
from plannerd.security.identity import NOBODY
from plannerd.services.context import CallContext
from plannerd.services.failures import Failure, failure_of
from plannerd.services.run import Answer
from plannerd.telemetry.calls import Calls
from plannerd.telemetry.logging import CallLog
from plannerd.telemetry.requests import Ids, RequestTrace
from plannerd.transport.admission import OPEN, Admission, Entrant
from plannerd.transport.status import status_of

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
T = TypeVar("T")


class Passage:
    """One call on its way through the gate.

    Args:
        method: its full name.
        context: grpc's side of it.

    Attributes:
        entrant: who calls, once they were let in.
        trace: what becomes of it in telemetry; None where it is off.
        invocation_id: the invocation that the request names, or the first of a stream, once it is known.
        answered: how many requests of a stream were answered.
        idle: it is a stream and waits for its client, so that its end is nobody's failure.
        interrupt: stops the wait for a stream's next request; set by who waits.
    """

    __slots__ = (
        "_metadata",
        "_outer",
        "answered",
        "context",
        "entrant",
        "idle",
        "interrupt",
        "invocation_id",
        "method",
        "started",
        "task",
        "trace",
    )

    def __init__(self, method: str, context: Context) -> None:
        self.method = method
        self.context = context
        self.started = time.perf_counter()
        self.task = cast("asyncio.Task[object]", asyncio.current_task())
        self.entrant: Entrant | None = None
        self.invocation_id = ""
        self.answered = 0
        self.idle = False
        self.interrupt: Callable[[], None] | None = None
        self._outer: asyncio.Task[object] | None = None
        self.trace: RequestTrace | None = None
        self._metadata: dict[str, str] | None = None

    async def work(self, doing: Coroutine[Any, Any, T]) -> T:
        """Await what a service does, in a task of its own: who cancels grpc's is then grpc alone."""
        task = asyncio.ensure_future(doing)
        self._outer, self.task = self.task, cast("asyncio.Task[object]", task)
        return await task

    @property
    def left(self) -> bool:
        """Whether the client is known to have left: it cancelled the call, or its deadline passed."""
        return self._outer is not None and self._outer.cancelling() > 0

    def facts(self) -> CallContext:
        """What the service is told."""
        caller = NOBODY if self.entrant is None else self.entrant.caller
        return CallContext(
            identity=caller.identity,
            operator=caller.operator,
            time_remaining=self.time_remaining,
            traceparent=self.metadata("traceparent"),
            hops=self.metadata(HOPS_HEADER),
        )

    def metadata(self, key: str) -> str:
        """What its client sent under this key, as text; the last of several, empty where there is none."""
        if self._metadata is None:
            sent = self.context.invocation_metadata() or ()
            self._metadata = {name: value for name, value in sent if isinstance(value, str)}
        return self._metadata.get(key, "")

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, 0 when it has passed; None without one."""
        return self.context.time_remaining()


class Gate:
    """Lets calls in, or refuses them while the server drains, and turns every error into a status.

    Args:
        log: gets one line for each call.
        calls: gets one measurement and perhaps a span; None: nobody wants them.
        admission: who may call.
    """

    def __init__(self, log: CallLog, calls: Calls | None = None, admission: Admission = OPEN) -> None:
        self._log = log
        self._calls = calls
        self._admission = admission
        self._inside: set[Passage] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False
        self._cutting = False

    @property
    def draining(self) -> bool:
        """Whether new calls are refused."""
        return self._draining

    @property
    def inside(self) -> int:
        """How many calls are under way."""
        return len(self._inside)

    def enter(self, method: str, context: Context) -> Passage:
        """A call begins: the task that runs this is its own until `leave`."""
        passage = Passage(method, context)
        if self._calls is not None:
            passage.trace = self._calls.begin(passage.metadata("traceparent"), passage.metadata("tracestate"))
        self._inside.add(passage)
        self._empty.clear()
        return passage

    def leave(self, passage: Passage) -> None:
        """The call is answered."""
        self._inside.discard(passage)
        if passage.entrant is not None:
            self._admission.leave(passage.entrant)
        if not self._inside:
            self._empty.set()

    def admit(self, passage: Passage) -> None:
        """Let a call in, or not.

        Raises:
            PlannerdError: DRAINING, UNAUTHENTICATED, or LIMIT_EXCEEDED if who calls has too many calls under way.
        """
        self.check_open()
        passage.entrant = self._admission.enter(passage.context)

    def refusal(self, passage: Passage) -> PlannerdError | None:
        """Why the next request of a stream is refused: who opened it is not who they were, by now."""
        entrant = passage.entrant
        return None if entrant is None else self._admission.refusal(entrant)

    def check_open(self) -> None:
        """Let a request in, or not.

        Raises:
            PlannerdError: DRAINING, once the server shuts down.
        """
        if self._draining:
            raise draining()

    def succeeded(self, passage: Passage) -> None:
        """Tell of a call that went well."""
        self._tell(passage.trace, passage.method, "OK", passage.started, passage.invocation_id)

    def ended(self, passage: Passage, code: str = "OK") -> None:
        """Tell of a stream that ended while nothing was in work."""
        duration = time.perf_counter() - passage.started
        if self._calls is not None:
            self._calls.end(
                passage.trace,
                passage.method,
                code,
                duration,
                invocation_id=passage.invocation_id,
                requests=passage.answered,
            )
        self._log.stream(passage.method, code, duration, passage.answered, invocation_id=passage.invocation_id)

    def request(self, passage: Passage, traceparent: str) -> RequestTrace | None:
        """A request of a stream begins, in the task that serves it.

        Args:
            passage: the stream.
            traceparent: the trace context that the request has of its own.
        """
        if self._calls is None:
            return None
        if traceparent:
            return self._calls.begin(traceparent)
        return self._calls.begin(passage.metadata("traceparent"), passage.metadata("tracestate"))

    def answered(self, passage: Passage, answer: Answer, started: float, trace: RequestTrace | None) -> None:
        """Tell of one request of a stream, as if it were a call of its own."""
        passage.answered += 1
        passage.invocation_id = passage.invocation_id or answer.invocation_id
        if trace is not None and passage.trace is not None and passage.trace.context is None and trace.invocation:
            passage.trace.join(trace.invocation)
        method = f"{passage.method.rpartition('/')[0]}/{answer.method}"
        failure = answer.failure
        if failure is None:
            self._tell(trace, method, "OK", started, answer.invocation_id, stream=True)
            return
        self._tell(
            trace,
            method,
            failure.code.name,
            started,
            answer.invocation_id,
            reason=failure.reason.value,
            correlation_id=failure.correlation_id,
            stream=True,
        )
        if failure.correlation_id and answer.error is not None:
            self._log.unexpected(method, failure.correlation_id, answer.error)

    async def fail(self, passage: Passage, error: BaseException) -> NoReturn:
        """Answer the call with the status of `error` and log it; raises what grpc expects to see then."""
        context = passage.context
        if isinstance(error, grpc.aio.AbortError) and context.done():
            # The call was answered already, which is for grpc to see.
            self._failed(passage, context.code().name, "", "")
            raise error
        failure = draining_failure() if self._is_cut(error) else failure_of(error, passage.time_remaining())
        if passage.left:
            self._finished(passage, error, failure, answered=False)
            raise asyncio.CancelledError from None
        status = status_of(failure)
        answered = True
        try:
            await context.abort(status.code, status.text, status.metadata)
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:
            answered = False
            if isinstance(error, asyncio.CancelledError):
                raise error from None
            raise
        finally:
            self._finished(passage, error, failure, answered)

    def drain(self) -> None:
        """Refuse new calls, and requests of streams that wait for one, from now on."""
        self._draining = True
        for passage in tuple(self._inside):
            if passage.interrupt is not None:
                passage.interrupt()

    def cut(self) -> int:
        """Cancel what is under way; its clients get DRAINING. Returns how many calls that were."""
        self._draining = self._cutting = True
        for passage in tuple(self._inside):
            passage.task.cancel()
        return len(self._inside)

    async def empty(self) -> None:
        """Wait until no call is under way."""
        await self._empty.wait()

    def _is_cut(self, error: BaseException) -> bool:
        return self._cutting and isinstance(error, asyncio.CancelledError)

    def _finished(self, passage: Passage, error: BaseException, failure: Failure, answered: bool) -> None:
        """Log a failed call, and the cause of an internal error."""
        gone = isinstance(error, asyncio.CancelledError | grpc.aio.BaseError) and not answered
        if gone and failure.reason is not Reason.DEADLINE_EXCEEDED:
            # Its client went away, and nothing went wrong here.
            failure = Failure(Reason.CANCELLED, "")
        if passage.idle and not failure.correlation_id:
            self.ended(passage, failure.code.name)
            return
        self._failed(passage, failure.code.name, failure.reason.value, failure.correlation_id)
        if failure.correlation_id:
            self._log.unexpected(passage.method, failure.correlation_id, error)

    def _failed(self, passage: Passage, code: str, reason: str, correlation_id: str) -> None:
        self._tell(
            passage.trace,
            passage.method,
            code,
            passage.started,
            passage.invocation_id,
            reason=reason,
            correlation_id=correlation_id,
        )

    def _tell(
        self,
        trace: RequestTrace | None,
        method: str,
        code: str,
        started: float,
        invocation_id: str,
        *,
        reason: str = "",
        correlation_id: str = "",
        stream: bool = False,
    ) -> None:
        """A request is answered: its line in the log, and what telemetry wants."""
        duration = time.perf_counter() - started
        ids: Ids | None = None
        if self._calls is not None:
            self._calls.end(trace, method, code, duration, reason=reason, invocation_id=invocation_id, stream=stream)
            ids = None if trace is None else trace.ids
        self._log.call(
            method,
            code,
            duration,
            reason=reason,
            invocation_id=invocation_id,
            correlation_id=correlation_id,
            stream=stream,
            ids=ids,
        )


def draining() -> PlannerdError:
    """The error of a request that comes too late."""
    return PlannerdError(Reason.DRAINING, "the server is shutting down; send the request to another replica")


def draining_failure() -> Failure:
    """What the client of a call is told that was cut."""
    return failure_of(draining(), None)
