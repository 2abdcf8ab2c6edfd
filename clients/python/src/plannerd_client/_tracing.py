"""Spans of runs and of agents, where the program uses OpenTelemetry; nothing at all where it does not.

A program that uses OpenTelemetry has imported `opentelemetry.trace`, if only to say where spans go. Nothing is imported
here that it has not. Spans have ids, names and the types of errors, never what agents are given or say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from plannerd_client._context import AgentContext, Suspend
from plannerd_client._results import RunResult
from plannerd_client._runner import Runner

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_RUN: Final = "plannerd.run"
_INVOCATION_ID: Final = "plannerd.invocation.id"
_PLANNER: Final = "plannerd.planner"
_STATUS: Final = "plannerd.run.status"
_RESUMED: Final = "plannerd.resumed"
_AGENT_NAME: Final = "gen_ai.agent.name"
_CALL_ID: Final = "plannerd.call.id"
_ATTEMPT: Final = "plannerd.call.attempt"
_ERROR_TYPE: Final = "error.type"


class TracedRun:
    """A run on its way.

    Attributes:
        traceparent: what to send with each request; empty: there is none.
    """

    def __init__(self, traceparent: str, span: Span | None = None) -> None:
        self.traceparent = traceparent
        self._span = span

    def done(self, result: RunResult) -> RunResult:
        """The run ended without an error."""
        if self._span is not None:
            self._span.set_attribute(_STATUS, result.status)
        return result


@contextmanager
def traced_run(runner: Runner, traceparent: str) -> Iterator[TracedRun]:
    """A run, with a span around it that is the current one, and a span around each of its agents.

    An invocation that is resumed goes on in its own trace; the span is linked with the current one then.

    Args:
        runner: the run.
        traceparent: the trace context that the run belongs to, if the caller gave one.
    """
    if "opentelemetry.trace" not in sys.modules:
        yield TracedRun(traceparent)
        return
    from opentelemetry import trace  # noqa: PLC0415 -- only where the program has it

    tracer = trace.get_tracer("plannerd_client")
    current = trace.get_current_span().get_span_context()
    traceparent = traceparent or _trace_of(runner)
    parent = _context_of(traceparent) if traceparent else None
    attributes: dict[str, str | bool] = {_INVOCATION_ID: runner.invocation_id, _PLANNER: runner.planner}
    if runner.resumed is not None:
        attributes[_RESUMED] = True
    links = [trace.Link(current)] if parent is not None and current.is_valid else []
    span = tracer.start_span(_RUN, parent, attributes=attributes, links=links)
    runner.trace_agents(lambda function, context, coroutine: _traced(tracer, function, context, coroutine))
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield TracedRun(_traceparent(span) or traceparent, span)
        except BaseException as error:
            _failed(span, error)
            span.set_attribute(_STATUS, type(error).__name__)
            raise


def _traced(tracer: Tracer, function: Callable[[], Any], context: AgentContext, coroutine: bool) -> Callable[[], Any]:
    """`function` within a span of its own."""

    @contextmanager
    def around() -> Iterator[None]:
        attributes: dict[str, str | int] = {
            _INVOCATION_ID: context.invocation_id,
            _AGENT_NAME: context.agent,
            _CALL_ID: context.call_id,
            _ATTEMPT: context.attempt,
        }
        with tracer.start_as_current_span(
            f"agent {context.agent}", attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Suspend:
                raise
            except BaseException as error:
                _failed(span, error)
                raise

    async def run_coroutine() -> Any:
        with around():
            return await function()

    def run() -> Any:
        with around():
            return function()

    return run_coroutine if coroutine else run


def _failed(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    span.set_status(StatusCode.ERROR)
    span.set_attribute(_ERROR_TYPE, type(error).__qualname__)


def _trace_of(runner: Runner) -> str:
    """The trace of the invocation that is resumed, which its execution state names; empty where there is none."""
    if runner.resumed is None:
        return ""
    try:
        found = json.loads(runner.resumed).get("traceparent", "")
    except (ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def _context_of(traceparent: str) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
