"""Going on in another process, from a snapshot."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from plannerd_client import (
    AlreadyAnswered,
    Recover,
    Retry,
    RunStatus,
    Snapshot,
    UnknownAnswer,
    agent,
    human,
)
from plannerd_client.errors import (
    AgentFailed,
    CallTimedOut,
    PlannerdError,
    UnsupportedValue,
)
from plannerd_protos.planner.v1 import agent_pb2, step_pb2
from tests.client.story import DONE, POLISH, READS, WRITE, calls, polish, scope_of, write
from tests.client.world import (
    Server,
    World,
    call,
    done,
    failure,
    position,
    start,
    step,
    suspend,
    wait_for,
)

APPROVE = human("approve", output_key="approved", arguments=["draft"])


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def suspended(**options: Any) -> Snapshot:
    """A run that waits for an approval of its draft."""
    server = Server(
        WRITE,
        step(2, start("h"), call("h", "approve$1")),
        step(3, suspend("h"), call("h", "approve$1", "SUSPENDED", response_id="h")),
        reads=READS,
    )
    result = World(server).run([write, options.pop("approve", APPROVE)], output_key="approved", **options)
    assert result.snapshot is not None
    calls.clear()
    return Snapshot.loads(result.snapshot.dumps())


ATTACHED = step(3, suspend("h"), call("h", "approve$1", "SUSPENDED", response_id="h"))
APPROVED = step(4, done())


def test_a_suspended_run_goes_on_with_an_answer() -> None:
    """In another process: Init(resume), attach with the scope, then the answer as the output of the call."""
    server = Server(ATTACHED, APPROVED, reads=READS)
    result = World(server).run([write, APPROVE], resume=suspended(), answers={"h": True})
    assert (result.status, result.result) == (RunStatus.COMPLETED, True)
    assert server.methods == ["Init", "FirstAction", "NextAction", "End"]
    assert server.sent("Init")[0].state.position == position(3)
    attached = server.sent("FirstAction")[0]
    assert attached.base == position(3)
    assert scope_of(attached) == {"request": "hello", "draft": "draft of hello", "approved": "<pending>"}
    (answer,) = server.sent("NextAction")[0].results
    assert (answer.call_id, answer.output.value.bool_value) == ("h", True)
    assert calls == []


def test_resuming_without_an_answer_suspends_again() -> None:
    """The ids are the same, and nothing but attaching happens."""
    snapshot = suspended()
    server = Server(ATTACHED, reads=READS)
    result = World(server).run([write, APPROVE], resume=snapshot)
    assert result.status is RunStatus.SUSPENDED
    assert result.suspensions == snapshot.suspensions
    assert server.methods == ["Init", "FirstAction"]


def test_the_planner_agent_is_that_of_the_snapshot() -> None:
    """Name, arguments and output key of the planner agent need not be given again."""
    snapshot = suspended(name="Desk")
    server = Server(ATTACHED, reads=READS)
    World(server).run([write, APPROVE], resume=snapshot)
    planner_agent = server.sent("Init")[0].planner_agent
    assert (planner_agent.name, planner_agent.output_key) == ("Desk", "approved")
    assert [argument.name for argument in planner_agent.arguments] == ["request"]


def test_what_changed_while_suspended_counts() -> None:
    """New values given on resuming go to the server with the next report."""
    server = Server(ATTACHED, APPROVED, reads=READS)
    World(server).run([write, APPROVE], {"request": "new"}, resume=suspended(), answers={"h": True})
    assert scope_of(server.sent("FirstAction")[0])["request"] == "hello"
    assert scope_of(server.sent("NextAction")[0]) == {"request": "new"}


def test_an_answer_nobody_waits_for_is_refused() -> None:
    """Nothing is sent for an unknown response id."""
    server = Server()
    with pytest.raises(UnknownAnswer, match="other"):
        World(server).run([write, APPROVE], resume=suspended(), answers={"other": 1})
    with pytest.raises(UnknownAnswer):
        World(server).run([write], answers={"h": 1})
    assert server.methods == []


def test_a_second_answer_is_refused() -> None:
    """The first value stays; the snapshot knows what was answered."""
    both = [human("one", output_key="a"), human("two", output_key="b")]
    one, two = (call("x", "one$0", "SUSPENDED", response_id="x"), call("y", "two$1", "SUSPENDED", response_id="y"))
    server = Server(
        step(1, start("x", "y"), call("x", "one$0"), call("y", "two$1")), step(2, suspend("x", "y"), one, two)
    )
    first = World(server, batch=True).run(both).snapshot
    server = Server(step(2, suspend("x", "y"), one, two), step(3, suspend("y"), two))
    second = World(server).run(both, resume=first, answers={"x": 1}).snapshot
    assert second is not None
    assert [suspension.response_id for suspension in second.suspensions] == ["y"]
    with pytest.raises(AlreadyAnswered):
        World(Server()).run(both, resume=Snapshot.loads(second.dumps()), answers={"x": 2})


def test_an_answer_that_the_server_has_already_is_refused() -> None:
    """When the call is no longer live somebody else answered it."""
    server = Server(step(4, start("p"), call("p", "polish$2")), reads=READS)
    with pytest.raises(AlreadyAnswered):
        World(server).run([write, APPROVE, polish], resume=suspended(), answers={"h": True})


def test_an_answer_that_can_t_travel_is_an_error() -> None:
    """It is refused like any other value, and the run can still be answered."""
    with pytest.raises(UnsupportedValue) as caught:
        World(Server(ATTACHED, reads=READS)).run([write, APPROVE], resume=suspended(), answers={"h": object()})
    assert caught.value.snapshot is not None
    assert [one.response_id for one in caught.value.snapshot.suspensions] == ["h"]


def test_a_late_answer_is_a_failure_of_its_agent() -> None:
    """Resumed after the time limit without an answer, the call fails, and the handler may supply one."""
    approve = human("approve", output_key="approved", timeout=60)
    snapshot = suspended(approve=approve)
    seen: list[Exception] = []

    def decline(_ctx: Any, error: Exception) -> Recover:
        seen.append(error)
        return Recover(False)

    world = World(Server(ATTACHED, APPROVED, reads=READS), now=1061.0)
    result = world.run([write, approve], resume=snapshot, on_error=decline)
    assert result.result is False
    assert isinstance(seen[0], CallTimedOut)
    with pytest.raises(AgentFailed):
        World(Server(ATTACHED, APPROVED, reads=READS), now=1061.0).run([write, approve], resume=snapshot)


def test_a_late_answer_may_be_given_more_time() -> None:
    """A retry waits as long again, under the same response id, and reports nothing."""
    approve = human("approve", output_key="approved", timeout=60)
    server = Server(ATTACHED, reads=READS)
    result = World(server, now=1061.0).run(
        [write, approve], resume=suspended(approve=approve), on_error=lambda *_: Retry()
    )
    (suspension,) = result.suspensions
    assert (suspension.response_id, suspension.expires_at) == ("h", 1121.0)
    assert server.methods == ["Init", "FirstAction"]


def crashed(server: Server, agents: list[Any], at: int) -> Snapshot:
    """The snapshot number `at` that a run persisted before its process died."""
    snapshots: list[bytes] = []

    def persist(snapshot: Snapshot) -> None:
        snapshots.append(snapshot.dumps())
        if len(snapshots) == at:
            raise SystemExit

    with pytest.raises(SystemExit):
        World(server).run(agents, on_snapshot=persist, output_key="reply")
    calls.clear()
    return Snapshot.loads(snapshots[-1])


def test_a_call_that_was_not_reported_runs_again_after_a_crash() -> None:
    """With the same id, so that an agent can make it harmless."""
    snapshot = crashed(Server(WRITE, reads=READS), [write, polish], at=1)
    World(Server(WRITE, POLISH, DONE, reads=READS)).run([write, polish], resume=snapshot)
    assert calls == ["write", "polish"]


def test_a_request_without_an_answer_is_sent_again_after_a_crash() -> None:
    """The identical request comes first; then the invocation goes on from the answer, and no agent ran twice."""
    snapshot = crashed(Server(WRITE, reads=READS), [write, polish], at=2)
    server = Server(POLISH, step(2, start("p"), call("p", "polish$1")), DONE, reads=READS)
    result = World(server).run([write, polish], resume=snapshot)
    assert server.methods == ["NextAction", "Init", "FirstAction", "NextAction", "End"]
    assert server.sent("NextAction")[0].base == position(1)
    assert scope_of(server.sent("FirstAction")[0]) == {"request": "hello", "draft": "draft of hello"}
    assert calls == ["polish"]
    assert result.result == "DRAFT OF HELLO"


def test_a_request_without_an_answer_follows_a_lost_invocation() -> None:
    """Where the server lost it too, the request follows Init and an attach with the scope as it was known."""
    snapshot = crashed(Server(WRITE, reads=READS), [write, polish], at=2)
    server = Server(failure("INVOCATION_NOT_FOUND"), WRITE, POLISH, DONE, reads=READS)
    result = World(server).run([write, polish], resume=snapshot)
    assert server.methods == ["NextAction", "Init", "FirstAction", "NextAction", "NextAction", "End"]
    assert scope_of(server.sent("FirstAction")[0]) == {"request": "hello"}
    assert calls == ["polish"]
    assert result.result == "DRAFT OF HELLO"


def test_a_crash_after_the_last_request_returns_the_stored_result() -> None:
    """If the answer to the request that is sent again is the end, nothing else is needed."""
    snapshot = crashed(Server(WRITE, POLISH, reads=READS), [write, polish], at=4)
    server = Server(DONE, reads=READS)
    result = World(server).run([write, polish], resume=snapshot)
    assert server.methods == ["NextAction", "End"]
    assert result.result == "DRAFT OF HELLO"


def test_a_crash_after_the_end_still_has_the_result() -> None:
    """The last snapshot has the end in it: nothing is decided or run again, even if the server forgot it all."""
    snapshot = crashed(Server(WRITE, POLISH, DONE, reads=READS), [write, polish], at=5)
    server = Server()
    result = World(server).run([write, polish], resume=snapshot)
    assert server.methods == ["End"]
    assert result.result == "DRAFT OF HELLO"
    assert calls == []


def test_taking_over_sets_the_invocation_up_first() -> None:
    """With take_over the former owner is fenced before anything else, and the request follows the new position."""
    snapshot = crashed(Server(WRITE, reads=READS), [write, polish], at=2)
    taken = step_pb2.Position(epoch=2, revision=1, branch="n")
    attached = step(1, start("w"), call("w", "write$0"))
    attached.position.CopyFrom(taken)
    server = Server(attached, POLISH, DONE, reads=READS)
    World(server).run([write, polish], resume=snapshot, take_over=True)
    assert server.sent("Init")[0].take_over
    assert server.sent("NextAction")[0].base == taken
    assert calls == ["polish"]


def test_an_async_agent_runs_again_after_a_crash_and_is_not_reported_twice() -> None:
    """Its work died with the process: the same call is started again and reports its output only."""
    research = agent(name="research", output_key="facts", async_=True)(lambda: "f")
    pending = call("r", "research$0", "PENDING")
    waiting = step(2, wait_for("r"), pending)
    snapshot = crashed(Server(step(1, start("r"), call("r", "research$0")), waiting), [research], at=3)
    server = Server(waiting, step(3, done()))
    world = World(server)
    result = world.run([research], resume=snapshot)
    assert world.launched == ["research"]
    assert [one.WhichOneof("outcome") for one in server.sent("NextAction")[0].results] == ["output"]
    assert result.scope["facts"] == "f"


def test_a_request_that_was_refused_is_made_anew() -> None:
    """An error of the server means that nothing happened: resumed, the report has the beliefs of then."""
    holds: list[bool] = []
    server = Server(WRITE, failure("CONDITION_FAILED", grpc.StatusCode.FAILED_PRECONDITION), beliefs=["b"])
    with pytest.raises(PlannerdError) as caught:
        World(server).run([write, polish], beliefs={"b": lambda scope: bool(holds)})
    snapshot = caught.value.snapshot
    assert snapshot is not None
    holds.append(True)
    server = Server(WRITE, POLISH, DONE, beliefs=["b"])
    World(server).run(
        [write, polish], resume=Snapshot.loads(snapshot.dumps()), beliefs={"b": lambda scope: bool(holds)}
    )
    assert server.methods == ["Init", "FirstAction", "NextAction", "NextAction", "End"]
    assert server.sent("NextAction")[0].beliefs["b"] == agent_pb2.BELIEF_TRUE
    assert calls == ["write", "polish"]


def test_siblings_that_ended_after_a_failure_are_reported_on_resuming() -> None:
    """The snapshot of a failed run has what its siblings returned: taken over, only the failed agent runs again."""
    healed: list[bool] = []

    @agent
    def fragile() -> str:
        if not healed:
            raise ValueError
        return "healed"

    both = step(1, start("f", "w"), call("f", "fragile$0"), call("w", "write$1"))
    with pytest.raises(AgentFailed) as caught:
        World(Server(both, step(2, done()), reads=READS)).run([fragile, write])
    healed.append(True)
    calls.clear()
    assert caught.value.snapshot is not None
    server = Server(both, step(2, start("f"), call("f", "fragile$0")), step(3, done()), reads=READS)
    world = World(server)
    world.run([fragile, write], resume=Snapshot.loads(caught.value.snapshot.dumps()), take_over=True)
    assert world.launched == ["fragile"]
    assert sorted(item.call_id for request in server.sent("NextAction") for item in request.results) == ["f", "w"]
    assert calls == []
