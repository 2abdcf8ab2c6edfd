"""The messages of the stream around the bytes of unary answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plannerd.errors import PlannerdError
from plannerd.services.codec.run import ENVELOPE_BYTES, decode_timeout, encode_response, suspends
from plannerd_protos.planner.v1 import planner_pb2, step_pb2

KINDS = {
    "init": planner_pb2.InitResponse(position=step_pb2.Position(branch="b"), model="m"),
    "first_action": planner_pb2.FirstActionResponse(step=step_pb2.Step(traceparent="t")),
    "next_action": planner_pb2.NextActionResponse(step=step_pb2.Step(traceparent="x" * 70_000)),
    "execution_state": planner_pb2.ExecutionStateResponse(),
    "end": planner_pb2.EndResponse(),
}

actions = st.sampled_from(
    [
        step_pb2.Action(start=step_pb2.Start(call_ids=["a.1.0"])),
        step_pb2.Action(suspend=step_pb2.Suspend(call_ids=["a.1.0"] * 50)),
        step_pb2.Action(suspend=step_pb2.Suspend()),
        step_pb2.Action(done=step_pb2.Done()),
        step_pb2.Action(no_op=step_pb2.NoOp()),
        step_pb2.Action(),
    ]
)
positions = st.builds(
    step_pb2.Position, epoch=st.integers(0, 2**40), revision=st.integers(0, 2**40), branch=st.text(max_size=200)
)
steps = st.builds(
    step_pb2.Step,
    position=st.none() | positions,
    action=st.none() | actions,
    calls=st.lists(st.builds(step_pb2.Call, id=st.text(max_size=5)), max_size=3),
    traceparent=st.text(max_size=300),
)


def test_every_kind_of_answer_is_tried() -> None:
    """What is tried here is what the contract has."""
    fields = planner_pb2.RunResponse.DESCRIPTOR.oneofs_by_name["response"].fields
    assert {field.name for field in fields} == {*KINDS, "error"}


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 127, 128]))
def test_answers_are_put_into_responses_as_protobuf_does(kind: str, request_id: int) -> None:
    """The bytes are those that protobuf makes of the decoded answer, and the envelope is within its bound."""
    answer = KINDS[kind]
    encoded = encode_response(request_id, kind, answer.SerializeToString())
    expected = planner_pb2.RunResponse(id=request_id)
    getattr(expected, kind).CopyFrom(answer)
    assert encoded == expected.SerializeToString()
    assert len(encoded) - len(answer.SerializeToString()) <= ENVELOPE_BYTES


@given(st.none() | steps)
def test_suspending_is_seen_in_the_bytes(step: step_pb2.Step | None) -> None:
    """Looking at the first bytes finds what decoding the whole answer would."""
    answer = planner_pb2.NextActionResponse(step=step)
    assert suspends(answer.SerializeToString()) == (answer.step.action.WhichOneof("kind") == "suspend")


@pytest.mark.parametrize(("seconds", "nanos", "expected"), [(0, 0, 0.0), (1, 500_000_000, 1.5), (10**9, 0, 1e9)])
def test_timeouts_are_seconds(seconds: int, nanos: int, expected: float) -> None:
    """A duration is taken as it is."""
    request = planner_pb2.RunRequest()
    request.timeout.seconds, request.timeout.nanos = seconds, nanos
    assert decode_timeout(request.timeout) == expected


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (0, -1), (10**9 + 1, 0), (2**62, 0)])
def test_timeouts_out_of_range_are_refused(seconds: int, nanos: int) -> None:
    """A negative duration, or one of more than thirty years, names its field."""
    request = planner_pb2.RunRequest()
    request.timeout.seconds, request.timeout.nanos = seconds, nanos
    with pytest.raises(PlannerdError, match="timeout"):
        decode_timeout(request.timeout)
