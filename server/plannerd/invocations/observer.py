"""Who hears of what happens to invocations: nobody by default; telemetry, where it is switched on (`observed`)."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from plannerd.decisions.models import NamedModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.invocations.commands import FirstActionCommand, InitCommand, NextActionCommand, StepReply
from plannerd.invocations.explanation import DecisionRecord
from plannerd.invocations.record import Record

StepCommand: TypeAlias = FirstActionCommand | NextActionCommand


class DecisionObserver(Protocol):
    """Hears of requests to decision models."""

    def answered(self, record: DecisionRecord) -> None:
        """A model answered."""

    def unanswered(
        self, named: NamedModel, request: DecisionRequest, error: BaseException, seconds: float, part: int, parts: int
    ) -> None:
        """A request to a model failed, or was cancelled, after so many seconds."""


class Observer(DecisionObserver, Protocol):
    """Hears of what the engine does, within the task of the request that it does it for."""

    def begun(self, command: InitCommand, traceparent: str) -> str:
        """An Init is about to be answered.

        Args:
            command: the Init.
            traceparent: the trace that the invocation belongs to as far as is known; empty: none.

        Returns:
            The trace that it belongs to from now on.
        """

    def found(self, record: Record) -> None:
        """A request is about this invocation."""

    def stepping(self, record: Record) -> None:
        """A step on top of `record` begins."""

    def stepped(self, command: StepCommand, record: Record, reply: StepReply) -> None:
        """A step was committed, or a client attached."""

    def repeated(self, record: Record) -> None:
        """The request was answered before, and gets the same answer."""

    def failed(self, command: StepCommand, error: BaseException) -> None:
        """A request for a step failed, or was cancelled."""


class Unobserved:
    """Nobody hears of anything."""

    def begun(self, command: InitCommand, traceparent: str) -> str:
        """The trace stays what it is."""
        return traceparent

    def found(self, record: Record) -> None:
        """Nothing."""

    def stepping(self, record: Record) -> None:
        """Nothing."""

    def stepped(self, command: StepCommand, record: Record, reply: StepReply) -> None:
        """Nothing."""

    def repeated(self, record: Record) -> None:
        """Nothing."""

    def failed(self, command: StepCommand, error: BaseException) -> None:
        """Nothing."""

    def answered(self, record: DecisionRecord) -> None:
        """Nothing."""

    def unanswered(
        self, named: NamedModel, request: DecisionRequest, error: BaseException, seconds: float, part: int, parts: int
    ) -> None:
        """Nothing."""


UNOBSERVED = Unobserved()
