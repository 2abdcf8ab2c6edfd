"""Why the last steps of each invocation did what they did, for operators, within bounds.

What is remembered costs a step next to nothing: the reasons were made for the reply, and are only kept. Questions,
answers and inputs are let go at once, unless operators may see content.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import DecisionRequest
from plannerd.invocations.commands import StepEvent, StepReply
from plannerd.invocations.explanation import DecisionRecord, ExplainLevel, Explanation
from plannerd.invocations.stores import Key
from plannerd.planners.moves import NoOp

_NO_ACTION: Final = NoOp()  # a planner's own result is content
# About what is taken in memory by an explanation with its place, and by an agent, condition, decision, question in it.
_BASE_BYTES: Final = 900
_AGENT_BYTES: Final = 150
_CONDITION_BYTES: Final = 150
_DECISION_BYTES: Final = 400
_QUESTION_BYTES: Final = 600
_SHARED_BYTES: Final = 64 * 1024  # as stores reckon: larger definitions count for each invocation


@dataclass(frozen=True, slots=True)
class Note:
    """A step as it is remembered: its reply without state, calls and content, when it was made, and its size."""

    reply: StepReply
    made: float
    size: int


class History:
    """Remembers the last steps of each invocation.

    Args:
        each: how many of one invocation.
        max_bytes: about how many bytes of all of them; beyond it those of the invocations are forgotten that made no
            step for longest.
        content: also remember questions, answers and inputs, as far as clients asked for them.
        wall_clock: seconds since the epoch.
    """

    def __init__(
        self, each: int, max_bytes: int, *, content: bool = False, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._each = each
        self._max_bytes = max_bytes
        self._content = content
        self._wall_clock = wall_clock
        self._notes: OrderedDict[Key, deque[Note]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered."""
        return self._bytes

    def note(self, event: StepEvent) -> None:
        """Remember a step."""
        if not self._each:
            return
        key = (event.identity, event.invocation_id)
        note = self._made(event.reply)
        notes = self._notes.get(key)
        if notes is None:
            notes = self._notes[key] = deque()
        else:
            self._notes.move_to_end(key)
        notes.append(note)
        self._bytes += note.size
        if len(notes) > self._each:
            self._bytes -= notes.popleft().size
        while self._bytes > self._max_bytes:
            _, gone = self._notes.popitem(last=False)
            self._bytes -= sum(note.size for note in gone)

    def of(self, key: Key) -> tuple[Note, ...]:
        """What is remembered of an invocation, the latest last."""
        return tuple(self._notes.get(key, ()))

    def _made(self, reply: StepReply) -> Note:
        explanation = reply.explanation
        full = self._content and reply.level is ExplainLevel.FULL
        include_input = self._content and reply.include_input
        decisions = tuple(_slim(record, full, include_input) for record in explanation.decisions)
        conditions = explanation.conditions if full else ()
        size = (
            _BASE_BYTES
            + len(explanation.summary)
            + _AGENT_BYTES * len(explanation.agents)
            + _CONDITION_BYTES * len(conditions)
            + sum(_size(record, full) for record in decisions)
            + sum(len(warning.message) + _AGENT_BYTES for warning in reply.warnings)
        )
        if reply.definition.size > _SHARED_BYTES:
            size += reply.definition.size
        # Built anew: dataclasses.replace takes several times as long.
        kept = StepReply(
            definition=reply.definition,
            position=reply.position,
            action=_NO_ACTION,
            calls=(),
            state=None,
            explanation=Explanation(
                outcome=explanation.outcome,
                summary=explanation.summary,
                agents=explanation.agents,
                goal=explanation.goal,
                conditions=conditions,
                decisions=decisions,
                seconds=explanation.seconds,
            ),
            warnings=reply.warnings,
            traceparent="",
            level=ExplainLevel.FULL if full else ExplainLevel.SUMMARY,
            include_input=include_input,
            shortened=reply.shortened,
        )
        return Note(kept, self._wall_clock(), size)


def _slim(record: DecisionRecord, full: bool, include_input: bool) -> DecisionRecord:
    if full and include_input:
        return record
    request, response = record.request, record.response
    return DecisionRecord(
        model=record.model,
        provider=record.provider,
        request=DecisionRequest(request.input if include_input else (), request.questions if full else ()),
        response=response
        if full
        else DecisionResponse(
            answers={},
            model=response.model,
            usage=response.usage,
            retries=response.retries,
            truncation=response.truncation,
        ),
        input_digest=record.input_digest,
        seconds=record.seconds,
        part=record.part,
        parts=record.parts,
    )


def _size(record: DecisionRecord, full: bool) -> int:
    size = _DECISION_BYTES + sum(len(repr(field.value)) for field in record.request.input)
    if full:
        size += sum(_QUESTION_BYTES + len(question.text) for question in record.request.questions)
    return size
