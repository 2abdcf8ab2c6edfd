"""Content in traces: what is recorded where settings ask for it, and never otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from plannerd.decisions.questions import DecisionRequest
from plannerd.invocations.calls import Answered, CallResult
from plannerd.invocations.commands import FirstActionCommand, InitCommand, NextActionCommand
from plannerd.planners.cascade.options import CascadeOptions
from plannerd.planners.scheduler.options import SchedulerOptions
from plannerd.telemetry.names import Attribute
from plannerd.telemetry.requests import Value
from plannerd.values import PENDING, Image, Opaque, Text

MAX_CHARS: Final = 16_384
"""Characters of one attribute with content; what is beyond is cut."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which kinds of content traces may have.

    Attributes:
        scope: what requests write to the scope.
        inputs: the inputs of decisions.
        outputs: the outputs that agents report.
        goals: the goal of a scheduler, the criterion of a cascade.
        questions: the questions that models are asked, which have goals and descriptions of agents in them.
    """

    scope: bool = False
    inputs: bool = False
    outputs: bool = False
    goals: bool = False
    questions: bool = False


NOTHING: Final = Recorded()


def of_init(recorded: Recorded, command: InitCommand) -> dict[str, Value]:
    """The content of an Init."""
    options = command.configuration.planner
    if recorded.goals and isinstance(options, SchedulerOptions):
        return {Attribute.CONTENT_GOALS.value: options.goal[:MAX_CHARS]}
    if recorded.goals and isinstance(options, CascadeOptions) and options.acceptance_criterion:
        return {Attribute.CONTENT_GOALS.value: options.acceptance_criterion[:MAX_CHARS]}
    return {}


def of_step(recorded: Recorded, command: FirstActionCommand | NextActionCommand) -> dict[str, Value]:
    """The content of a request for a step."""
    found: dict[str, Value] = {}
    if recorded.scope and command.scope.set:
        found[Attribute.CONTENT_SCOPE.value] = _json(command.scope.set)
    if recorded.outputs and isinstance(command, NextActionCommand):
        outputs = dict(_outputs(command.results))
        if outputs:
            found[Attribute.CONTENT_OUTPUTS.value] = _json(outputs)
    return found


def of_decision(recorded: Recorded, request: DecisionRequest) -> dict[str, Value]:
    """The content of a request to a decision model."""
    found: dict[str, Value] = {}
    if recorded.inputs:
        found[Attribute.CONTENT_INPUTS.value] = _json({field.name: field.value for field in request.input})
    if recorded.questions:
        found[Attribute.CONTENT_QUESTIONS.value] = _json([asdict(question) for question in request.questions])
    return found


def _outputs(results: Iterable[CallResult]) -> Iterable[tuple[str, object]]:
    for result in results:
        if isinstance(result.outcome, Answered):
            yield result.call_id, result.outcome.output


def _json(value: Mapping[str, object] | list[dict[str, object]]) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)[:MAX_CHARS]


def _plain(value: object) -> object:
    """What stands for a value that JSON does not know."""
    match value:
        case Text(text):
            return text
        case Image(media_type, data):
            return f"({media_type}, {len(data)} bytes)"
        case bytes():
            return f"({len(value)} bytes)"
        case Opaque():
            return "(opaque)"
        case _ if value is PENDING:
            return "(pending)"
    return f"({type(value).__name__})"
