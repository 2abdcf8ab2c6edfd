"""What a run does with its stream, and when unary calls take its place, without a connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from plannerd_client._stream import Choice, Close, Ended, Exchange, Received, Silent, Streaming, Unary
from plannerd_client.errors import (
    DeadlineExceeded,
    DecisionModelUnavailable,
    Draining,
    InvalidRequest,
    LimitExceeded,
    NotImplementedByServer,
    PlannerdError,
    ProtocolError,
    ServerUnreachable,
    Unauthenticated,
)
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2
from tests.client.world import done, failure, start, step, suspend, unreachable

USED, FRESH = False, True
ENDED_OK = None


class Line:
    """Performs what the logic asks for, from a script. `log` says what that was."""

    def __init__(self, *script: Any, wanted: bool = True) -> None:
        self.script = list(script)
        self.log: list[str] = []
        self.sent: list[planner_pb2.RunRequest] = []
        self.now = 0.0
        self.choice = Choice(wanted, lambda: self.now)
        self.streaming = Streaming(self.choice, lambda: "00-1-2-01")

    def send(self, method: str = "NextAction", timeout: float | None = 10.0) -> Message:
        fields = {"Init": planner_pb2.InitRequest, "End": planner_pb2.EndRequest}
        request = fields.get(method, planner_pb2.NextActionRequest)(invocation_id="i")
        program = self.streaming.send(method, request, timeout)
        outcome: Any = None
        error: PlannerdError | None = None
        while True:
            try:
                effect = program.send(outcome) if error is None else program.throw(error)
            except StopIteration as stop:
                answer: Message = stop.value
                return answer
            outcome, error = None, None
            match effect:
                case Exchange(message, _):
                    self.log.append("stream")
                    self.sent.append(message)
                    outcome = self.script.pop(0)
                case Unary():
                    self.log.append("unary")
                    outcome = self.script.pop(0)
                    if isinstance(outcome, PlannerdError):
                        error = outcome
                case Close():
                    self.log.append("close")


def answer(kind: str = "next_action", action: Any = None) -> Received:
    if kind == "end":
        return Received(planner_pb2.RunResponse(end=planner_pb2.EndResponse()))
    reply = planner_pb2.NextActionResponse(step=step(1, action or start("w")))
    return Received(planner_pb2.RunResponse(next_action=reply))


def in_band(reason: str, code: int, **fields: Any) -> Received:
    number = errors_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")
    return Received(planner_pb2.RunResponse(error=planner_pb2.RunError(code=code, reason=number, **fields)))


def broken(fresh: bool = FRESH, **options: Any) -> Ended:
    return Ended(unreachable(), fresh, **options)


def test_a_request_travels_with_id_time_and_trace() -> None:
    """Ids differ, the server gets a little less time than the client waits, and the trace context is the request's."""
    line = Line(answer(), answer(), answer())
    for timeout in (10.0, 1.0, None):
        line.send(timeout=timeout)
    assert [message.id for message in line.sent] == [1, 2, 3]
    assert [message.timeout.ToMilliseconds() for message in line.sent] == [9000, 900, 0]
    assert not line.sent[2].HasField("timeout")
    assert {message.traceparent for message in line.sent} == {"00-1-2-01"}
    assert line.sent[0].next_action == planner_pb2.NextActionRequest(invocation_id="i")


def test_the_answer_is_what_is_inside() -> None:
    """The message of the unary method comes back; one of another method is an error of the protocol."""
    line = Line(answer(), answer())
    assert isinstance(line.send(), planner_pb2.NextActionResponse)
    with pytest.raises(ProtocolError):
        line.send("Init")


def test_errors_in_band_are_those_of_unary_calls() -> None:
    """The same class with the same facts, and the stream is kept."""
    violation = planner_pb2.FieldViolation(field="base", description="is required")
    line = Line(
        in_band("INVALID_REQUEST", 3, message="base: is required", field_violations=[violation]),
        in_band("DECISION_MODEL_UNAVAILABLE", 14, metadata={"model": "m"}, retry_after={"seconds": 2}),
        Received(planner_pb2.RunResponse(error={"code": 9, "reason": 9999, "message": "of the future"})),  # type: ignore[arg-type]
    )
    with pytest.raises(InvalidRequest, match="base: is required") as invalid:
        line.send()
    assert [(one.field, one.description) for one in invalid.value.violations] == [("base", "is required")]
    assert invalid.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(DecisionModelUnavailable) as unavailable:
        line.send()
    assert (unavailable.value.retry_after, unavailable.value.metadata) == (2.0, {"model": "m"})
    with pytest.raises(PlannerdError, match="of the future") as unknown:
        line.send()
    assert (unknown.value.code, unknown.value.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "9999")
    assert line.log == ["stream"] * 3


def refused(fresh: bool) -> Received:
    return replace(in_band("UNAUTHENTICATED", 16, metadata={"problem": "expired"}), fresh=fresh)


def test_a_stream_whose_token_ran_out_is_replaced() -> None:
    """Another stream is opened, which brings the current token; if that is refused as well, that is the end of it."""
    line = Line(refused(fresh=False), answer())
    assert isinstance(line.send(), planner_pb2.NextActionResponse)
    assert line.log == ["stream", "close", "stream"]
    for script in ([refused(fresh=True)], [refused(fresh=False), refused(fresh=True)]):
        line = Line(*script)
        with pytest.raises(Unauthenticated):
            line.send()
        assert line.log.count("stream") == len(script)


@pytest.mark.parametrize(("method", "received"), [("End", answer("end")), ("NextAction", answer(action=suspend("w")))])
def test_a_stream_is_let_go_of_where_the_server_ends_it(method: str, received: Received) -> None:
    """After End, and after an action that says to suspend."""
    line = Line(received)
    line.send(method)
    assert line.log == ["stream", "close"]


def test_a_stream_that_goes_on_is_kept() -> None:
    """After done too: End comes next."""
    line = Line(answer(action=done()))
    line.send()
    assert line.log == ["stream"]


@pytest.mark.parametrize("error", [ENDED_OK, failure("DRAINING", grpc.StatusCode.UNAVAILABLE)])
def test_the_end_of_a_stream_between_requests_is_no_failure(error: PlannerdError | None) -> None:
    """A stream that had answers and ended before it looked at a request is followed by another, at once."""
    line = Line(answer(), Ended(error, USED), answer())
    line.send()
    line.send()
    assert line.log == ["stream"] * 3
    line = Line(Ended(unreachable(), USED, early=True), answer())
    line.send()
    assert line.log == ["stream"] * 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ENDED_OK, ServerUnreachable),
        (failure("DRAINING", grpc.StatusCode.UNAVAILABLE), Draining),
        (unreachable(), ServerUnreachable),
        (failure("INVALID_REQUEST"), InvalidRequest),
        (failure("LIMIT_EXCEEDED", metadata={"limit": "max_request_bytes"}), LimitExceeded),
    ],
)
def test_the_end_of_a_fresh_stream_is_one(error: PlannerdError | None, raised: type[PlannerdError]) -> None:
    """Nothing says that another one would do better, so the budget of the request decides."""
    line = Line(Ended(error, FRESH))
    with pytest.raises(raised):
        line.send()
    assert line.log == ["stream"]


def test_a_connection_that_breaks_under_a_request_is_a_failure() -> None:
    """What became of the request is not known; the next one goes over another stream."""
    line = Line(answer(), broken(USED), answer())
    line.send()
    with pytest.raises(ServerUnreachable):
        line.send()
    line.send()
    assert line.log == ["stream"] * 3


def test_a_hidden_status_is_looked_for() -> None:
    """An INTERNAL of a request that was never sent is tried again, a few times."""
    hidden = Ended(PlannerdError("core", code=grpc.StatusCode.INTERNAL), FRESH, early=True)
    line = Line(hidden, hidden, answer())
    line.send()
    assert line.log == ["stream"] * 3
    line = Line(*[hidden] * 9)
    with pytest.raises(PlannerdError, match="INTERNAL"):
        line.send()
    assert line.log == ["stream"] * 4


@pytest.mark.parametrize(
    "error",
    [
        failure("NOT_IMPLEMENTED", grpc.StatusCode.UNIMPLEMENTED),
        failure("SWITCHED_OFF", grpc.StatusCode.UNIMPLEMENTED),
        PlannerdError("what is Run?", code=grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_a_server_without_streams_is_asked_once(error: PlannerdError) -> None:
    """The request goes by a unary call at once, and so do all that follow."""
    line = Line(Ended(error, FRESH), "one", "two")
    assert [line.send(), line.send()] == ["one", "two"]
    line.now = 1e9
    line.script = ["three"]
    line.send()
    assert line.log == ["stream", "unary", "unary", "unary"]


def test_unimplemented_in_band_says_nothing_about_streams() -> None:
    """An option that the server lacks is an error of its request alone."""
    line = Line(in_band("NOT_IMPLEMENTED", 12), answer())
    with pytest.raises(NotImplementedByServer):
        line.send()
    line.send()
    assert line.log == ["stream"] * 2


def test_too_many_streams_mean_a_unary_call_for_now() -> None:
    """The next request tries a stream again."""
    crowded = failure("LIMIT_EXCEEDED", grpc.StatusCode.RESOURCE_EXHAUSTED, metadata={"limit": "max_streams"})
    line = Line(Ended(crowded, FRESH), "one", answer())
    assert line.send() == "one"
    line.send()
    assert line.log == ["stream", "unary", "stream"]


def fail(line: Line, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(PlannerdError):
            line.send()


def test_streams_that_break_where_unary_calls_work_give_way_to_them() -> None:
    """Two breaks, a unary call that works, another break: unary calls for a minute, then a stream is tried again."""
    line = Line(broken(), broken(), "one", broken(), *["more"] * 5)
    fail(line, 2)
    line.send()
    fail(line)
    for _ in range(5):
        line.send()
    assert line.log == [*["stream"] * 2, "unary", "stream", *["unary"] * 5]
    line.now = 61.0
    line.script = [broken(), "again"]
    fail(line)
    line.send()
    assert line.log[-2:] == ["stream", "unary"]
    line.now = 122.0
    line.script = [answer(), broken(), answer()]
    line.send()
    fail(line)
    line.send()
    assert line.log[-3:] == ["stream"] * 3


def test_a_server_that_is_down_does_not_cost_the_streams() -> None:
    """While unary calls fail as well, both are tried, and streams are back as soon as one is answered."""
    line = Line(broken(), broken(), unreachable(), broken(), unreachable(), answer(), answer())
    fail(line, 5)
    line.send()
    line.send()
    assert line.log == ["stream", "stream", "unary", "stream", "unary", "stream", "stream"]
    # One unary call that happens to be the first to get through is no reason to give streams up.
    line = Line(broken(), broken(), "one", answer())
    fail(line, 2)
    line.send()
    line.send()
    assert line.log == ["stream", "stream", "unary", "stream"]


def test_streams_that_say_nothing_are_not_waited_for_twice() -> None:
    """A request without an answer in time goes by a unary call; if that works, so do the next ones."""
    line = Line(Silent(FRESH), "one", "two")
    with pytest.raises(DeadlineExceeded) as caught:
        line.send()
    assert (caught.value.reason, caught.value.code) == ("", grpc.StatusCode.DEADLINE_EXCEEDED)
    line.send()
    line.send()
    assert line.log == ["stream", "unary", "unary"]


def test_silence_in_the_middle_is_a_failure_of_the_request() -> None:
    """The stream worked before, so the next request goes over another one."""
    line = Line(answer(), Silent(USED), answer())
    line.send()
    fail(line)
    line.send()
    assert line.log == ["stream"] * 3


def test_streams_are_a_choice() -> None:
    """A client that wants none never opens one."""
    line = Line("one", wanted=False)
    line.send()
    assert line.log == ["unary"]
