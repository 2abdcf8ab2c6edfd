"""What a request of a stream has left is known to whoever asks a decision model for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from google.protobuf.duration_pb2 import Duration

from plannerd.decisions.deadline import seconds_left
from plannerd.services.context import CallContext
from plannerd.services.run import RunConversation
from plannerd_protos.planner.v1 import planner_pb2


@pytest.mark.parametrize(
    ("whole", "own", "expected"), [(None, None, 30.0), (None, 5, 5.0), (7.0, None, 7.0), (3.0, 5, 3.0), (7.0, 5, 5.0)]
)
async def test_the_shorter_of_the_two_deadlines_counts(whole: float | None, own: int | None, expected: float) -> None:
    """A provider may take as long as the request and the stream both allow, and its own time-out."""
    seen: list[float | None] = []

    async def answered(request: object, call: CallContext) -> planner_pb2.EndResponse:
        seen.append(seconds_left(30.0))
        return planner_pb2.EndResponse()

    service = SimpleNamespace(
        Init=answered, FirstAction=answered, NextAction=answered, ExecutionState=answered, End=answered
    )
    conversation = RunConversation(service, CallContext(time_remaining=lambda: whole), max_reply_bytes=1000)
    request = planner_pb2.RunRequest(id=1, end=planner_pb2.EndRequest(invocation_id="i1"))
    if own is not None:
        request.timeout.CopyFrom(Duration(seconds=own))
    await conversation.answer(request)
    assert seen == [pytest.approx(expected, abs=1.0)]
