"""What traces say of steps and decisions. Every number of an explanation is there; no content is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plannerd.decisions.answers import Answer, ChoiceAnswer, Refusal, ScaleAnswer, YesNoAnswer
from plannerd.invocations.commands import StepReply
from plannerd.invocations.explanation import DecisionRecord, Explanation
from plannerd.invocations.record import (
    AwaitCalls,
    Finished,
    Record,
    StartCalls,
    StepAction,
    SuspendCalls,
)
from plannerd.planners.moves import AgentStatus, GiveUp, NoOp, Outcome
from plannerd.telemetry.names import ANSWER_EVENT, Attribute
from plannerd.telemetry.requests import Event, Value

OPERATION: Final = "decide"
"""The operation of all requests to decision models."""

_ACTIONS: Final[Mapping[type, str]] = {
    StartCalls: "start",
    AwaitCalls: "await",
    SuspendCalls: "suspend",
    Finished: "done",
    GiveUp: "give_up",
    NoOp: "no_op",
}
_STATUSES: Final = {
    AgentStatus.CANDIDATE: Attribute.CANDIDATES.value,
    AgentStatus.MISSING_KEY: Attribute.MISSING_KEY.value,
    AgentStatus.INACTIVE: Attribute.INACTIVE.value,
    AgentStatus.UNCHANGED: Attribute.UNCHANGED.value,
    AgentStatus.UNAVAILABLE: Attribute.UNAVAILABLE.value,
}
# Planners whose sentences are known to have no content. Those of plug-ins may say anything.
_OWN: Final = frozenset({"scheduler", "router", "cascade", "bdi"})
# Of a failure the sentence names the type that the client gave, which may be any text.
_AGENT_FAILED: Final = "An agent failed and its client gave up."


def step_attributes(record: Record, reply: StepReply) -> dict[str, Value]:
    """What is said of a step.

    Args:
        record: the invocation before it.
        reply: what it came to.
    """
    explanation, position = reply.explanation, reply.position
    found: dict[str, Value] = {
        Attribute.INVOCATION_ID.value: record.invocation_id,
        Attribute.PLANNER.value: record.definition.kind,
        Attribute.EPOCH.value: position.epoch,
        Attribute.REVISION.value: position.revision,
        Attribute.BRANCH.value: position.branch,
        Attribute.OUTCOME.value: explanation.outcome.value,
        Attribute.ACTION.value: _ACTIONS[type(reply.action)],
        Attribute.SECONDS.value: explanation.seconds,
    }
    if explanation.outcome is Outcome.FAILED:
        found[Attribute.REASON.value] = _AGENT_FAILED
    elif record.definition.kind in _OWN:
        found[Attribute.REASON.value] = explanation.summary
    _add_action(found, record, reply, reply.action)
    _add_explanation(found, record, explanation)
    if reply.warnings:
        found[Attribute.WARNINGS.value] = [warning.code.value for warning in reply.warnings]
    return found


def _add_action(found: dict[str, Value], record: Record, reply: StepReply, action: StepAction) -> None:
    if isinstance(action, StartCalls):
        agents = {call.id: call.agent for call in reply.calls}
        ids = record.definition.planner.system.agents
        found[Attribute.CALLS.value] = list(action.call_ids)
        found[Attribute.CALLED.value] = [ids[agents[call_id]].id for call_id in action.call_ids]
    elif isinstance(action, GiveUp):
        found[Attribute.GIVE_UP.value] = action.reason.name.lower()


def _add_explanation(found: dict[str, Value], record: Record, explanation: Explanation) -> None:
    agents = record.definition.planner.system.agents
    lists: dict[str, list[str]] = {}
    scores: list[float] = []
    thresholds: list[float] = []
    for assessment in explanation.agents:
        agent = agents[assessment.agent].id
        lists.setdefault(_STATUSES[assessment.status], []).append(agent)
        if assessment.score is not None:
            lists.setdefault(Attribute.SCORED.value, []).append(agent)
            scores.append(assessment.score)
        if assessment.threshold is not None:
            lists.setdefault(Attribute.THRESHOLDED.value, []).append(agent)
            thresholds.append(assessment.threshold)
    for condition in explanation.conditions:
        name = Attribute.HELD if condition.holds else Attribute.FAILED
        lists.setdefault(name.value, []).append(condition.subject)
    found.update(lists)
    if scores:
        found[Attribute.SCORES.value] = scores
    if thresholds:
        found[Attribute.THRESHOLDS.value] = thresholds
    goal = explanation.goal
    if goal is not None:
        found[Attribute.GOAL_THRESHOLD.value] = goal.threshold
        if goal.probability is not None:
            found[Attribute.GOAL_PROBABILITY.value] = goal.probability
        if goal.result_missing:
            found[Attribute.GOAL_RESULT_MISSING.value] = True
    if explanation.decisions:
        found[Attribute.DECISIONS.value] = len(explanation.decisions)


def decision_attributes(record: DecisionRecord) -> dict[str, Value]:
    """What is said of a request to a decision model that was answered."""
    response = record.response
    found: dict[str, Value] = {
        Attribute.OPERATION.value: OPERATION,
        Attribute.PROVIDER.value: record.provider,
        Attribute.MODEL.value: record.model,
        Attribute.RESOLVED_MODEL.value: response.model,
        Attribute.QUESTION_COUNT.value: len(record.request.questions),
        Attribute.RETRIES.value: response.retries,
        Attribute.DECISION_SECONDS.value: record.seconds,
    }
    for name, number in (
        (Attribute.INPUT_TOKENS, response.usage.input_tokens),
        (Attribute.OUTPUT_TOKENS, response.usage.output_tokens),
        (Attribute.PART, record.part or None),
        (Attribute.PARTS, record.parts or None),
    ):
        if number is not None:
            found[name.value] = number
    if record.input_digest:
        found[Attribute.INPUT_DIGEST.value] = record.input_digest.hex()
    if response.truncation is not None:
        found[Attribute.INPUT_CHARS.value] = response.truncation.original_chars
        found[Attribute.USED_CHARS.value] = response.truncation.used_chars
    return found


def answer_events(record: DecisionRecord) -> list[Event]:
    """An event for each answer of a model."""
    answers = record.response.answers
    return [(ANSWER_EVENT, _answer(question.name, answers[question.name])) for question in record.request.questions]


def _answer(question: str, answer: Answer) -> dict[str, Value]:
    found: dict[str, Value] = {Attribute.QUESTION.value: question}
    confidence: float | None = None
    match answer:
        case YesNoAnswer(probability, confidence):
            found[Attribute.KIND.value] = "yes_no"
            found[Attribute.PROBABILITY.value] = probability
        case ChoiceAnswer(value, probabilities, confidence):
            found[Attribute.KIND.value] = "choice"
            found[Attribute.VALUE.value] = value
            if probabilities is not None:
                found[Attribute.OPTIONS.value] = list(probabilities)
                found[Attribute.PROBABILITIES.value] = list(probabilities.values())
        case ScaleAnswer(mean, levels, confidence):
            found[Attribute.KIND.value] = "scale"
            found[Attribute.MEAN.value] = mean
            if levels is not None:
                found[Attribute.PROBABILITIES.value] = list(levels)
        case Refusal():
            found[Attribute.KIND.value] = "refusal"
    if confidence is not None:
        found[Attribute.CONFIDENCE.value] = confidence
    return found
