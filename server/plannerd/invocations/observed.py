"""Tells telemetry what happens to invocations: spans of the request at hand, and measurements."""

from __future__ import annotations

import asyncio

from plannerd.decisions.models import NamedModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.errors import STORE_FAILED, PlannerdError, Reason
from plannerd.invocations import content
from plannerd.invocations.commands import InitCommand, StepReply
from plannerd.invocations.content import NOTHING, Recorded
from plannerd.invocations.explanation import DecisionRecord
from plannerd.invocations.observer import StepCommand
from plannerd.invocations.record import Record
from plannerd.invocations.step_attributes import OPERATION, answer_events, decision_attributes, step_attributes
from plannerd.telemetry.metrics import Meter
from plannerd.telemetry.names import DECISION_SPAN, STEP_SPAN, Attribute
from plannerd.telemetry.requests import CURRENT, SpanKind, Value


class Observed:
    """See `observer.Observer`.

    Args:
        meter: takes measurements.
        recorded: which content traces may have.
    """

    def __init__(self, meter: Meter, recorded: Recorded = NOTHING) -> None:
        self._meter = meter
        self._recorded = recorded

    def begun(self, command: InitCommand, traceparent: str) -> str:
        """An Init: the invocation belongs to the trace of this request, unless it has one."""
        trace = CURRENT.get()
        if trace is None:
            return traceparent
        traceparent = trace.join(traceparent)
        if trace.sampled:
            if command.state is not None or command.planner_map is not None:
                trace.facts[Attribute.RESUMED.value] = True
            trace.facts.update(content.of_init(self._recorded, command))
        return traceparent

    def found(self, record: Record) -> None:
        """The request belongs to the trace of its invocation."""
        trace = CURRENT.get()
        if trace is None:
            return
        trace.join(record.traceparent)
        if trace.sampled:
            trace.facts[Attribute.PLANNER.value] = record.definition.kind

    def stepping(self, record: Record) -> None:
        """Decisions from here on belong to the step."""
        trace = CURRENT.get()
        if trace is not None:
            trace.begin_step()

    def stepped(self, command: StepCommand, record: Record, reply: StepReply) -> None:
        """A step, as a span and counted."""
        explanation = reply.explanation
        self._meter.steps.add((record.definition.kind, explanation.outcome.value))
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            attributes = step_attributes(record, reply) | content.of_step(self._recorded, command)
            trace.end_step(STEP_SPAN, attributes)

    def repeated(self, record: Record) -> None:
        """No step: it is said of the call's span, and counted."""
        self._meter.repeats.add((record.definition.kind,))
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            trace.facts[Attribute.REPEATED.value] = True
            trace.end_step(STEP_SPAN, {Attribute.REPEATED.value: True})

    def failed(self, command: StepCommand, error: BaseException) -> None:
        """A step that did not happen."""
        reason = reason_of(error)
        if isinstance(error, PlannerdError) and error.reason in STORE_FAILED:
            self._meter.store_errors.add((reason,))
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            attributes: dict[str, Value] = {
                Attribute.INVOCATION_ID.value: command.invocation_id,
                Attribute.ERROR_TYPE.value: reason,
                **content.of_step(self._recorded, command),
            }
            trace.end_step(STEP_SPAN, attributes, error=True)

    def answered(self, record: DecisionRecord) -> None:
        """A decision, as a span and measured."""
        model, usage = (record.model, record.provider), record.response.usage
        self._meter.decisions.record((*model, "", OPERATION), record.seconds)
        if usage.input_tokens is not None:
            self._meter.tokens.record((*model, "input", OPERATION), usage.input_tokens)
        if usage.output_tokens is not None:
            self._meter.tokens.record((*model, "output", OPERATION), usage.output_tokens)
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            trace.add(
                f"{DECISION_SPAN} {record.model}",
                SpanKind.CLIENT,
                record.seconds,
                decision_attributes(record) | content.of_decision(self._recorded, record.request),
                events=answer_events(record),
            )

    def unanswered(
        self, named: NamedModel, request: DecisionRequest, error: BaseException, seconds: float, part: int, parts: int
    ) -> None:
        """A decision that failed."""
        reason = reason_of(error)
        self._meter.decisions.record((named.name, named.model.provider, reason, OPERATION), seconds)
        if reason == Reason.DECISION_QUEUE_FULL.value:
            self._meter.shed.add((named.name,))
        trace = CURRENT.get()
        if trace is not None and trace.sampled:
            attributes: dict[str, Value] = {
                Attribute.OPERATION.value: OPERATION,
                Attribute.PROVIDER.value: named.model.provider,
                Attribute.MODEL.value: named.name,
                Attribute.QUESTION_COUNT.value: len(request.questions),
                Attribute.DECISION_SECONDS.value: seconds,
                Attribute.ERROR_TYPE.value: reason,
            }
            if parts:
                attributes |= {Attribute.PART.value: part, Attribute.PARTS.value: parts}
            trace.add(
                f"{DECISION_SPAN} {named.name}",
                SpanKind.CLIENT,
                seconds,
                attributes | content.of_decision(self._recorded, request),
                error=True,
            )


def reason_of(error: BaseException) -> str:
    """The reason of a failure as telemetry has it: one of a fixed set."""
    if isinstance(error, PlannerdError):
        return error.reason.value
    return Reason.CANCELLED.value if isinstance(error, asyncio.CancelledError) else Reason.INTERNAL.value
