"""Requests that are sent again, and invocations that go on on another replica."""

from __future__ import annotations

import grpc
import pytest

from plannerd_client import (
    RetryPolicy,
    agent,
)
from plannerd_client.errors import (
    DecisionModelUnavailable,
    InvocationFinished,
    OwnerChanged,
    PlannerdError,
    ServerUnreachable,
    StateOutdated,
)
from tests.client.story import DONE, POLISH, READS, WRITE, calls, polish, scope_of, write
from tests.client.world import (
    VALUE,
    Server,
    World,
    call,
    done,
    failure,
    start,
    step,
    unreachable,
    wait_for,
)

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


# --- sending again


def test_a_lost_reply_is_asked_for_again_with_the_same_request() -> None:
    """After a broken connection the identical request is sent, and no agent runs twice."""
    server = Server(WRITE, unreachable(), unreachable(), POLISH, DONE, reads=READS)
    world = World(server)
    result = world.run([write, polish], output_key="reply")
    sent = [request.SerializeToString(deterministic=True) for request in server.sent("NextAction")]
    assert sent[0] == sent[1] == sent[2] != sent[3]
    assert calls == ["write", "polish"]
    assert world.paused == [0.1, 0.2]
    assert (result.steps[1].retries, result.steps[1].restores) == (2, 0)


def test_a_server_that_asks_for_patience_gets_it() -> None:
    """RetryInfo is the least wait, also beyond the longest wait of the policy."""
    server = Server(failure("DECISION_QUEUE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=7.0), WRITE, DONE)
    world = World(server)
    world.run([write])
    assert world.paused == [7.0]


def test_the_attempts_are_bounded() -> None:
    """When the attempts are used up the last error is raised, and the run can be continued."""
    server = Server(WRITE, *[unreachable()] * 5)
    with pytest.raises(ServerUnreachable) as caught:
        World(server).run([write])
    assert len(server.sent("NextAction")) == 5
    assert caught.value.snapshot is not None
    assert "End" not in server.methods


def test_the_time_is_bounded() -> None:
    """A wait that would end after the total time is not begun."""
    server = Server(failure("DECISION_MODEL_UNAVAILABLE", UNAVAILABLE, retry_after=61.0), WRITE)
    world = World(server)
    with pytest.raises(DecisionModelUnavailable):
        world.run([write])
    assert world.paused == []


@pytest.mark.parametrize("reason", ["DECISION_REFUSED", "INVALID_VALUE", "DECISION_INVALID_ANSWER", "INTERNAL"])
def test_what_does_not_help_is_not_repeated(reason: str) -> None:
    """An error that would come again is raised at once."""
    server = Server(WRITE, failure(reason, grpc.StatusCode.INTERNAL))
    with pytest.raises(PlannerdError) as caught:
        World(server).run([write])
    assert caught.value.reason == reason
    assert len(server.sent("NextAction")) == 1


# --- another replica


@pytest.mark.parametrize("reason", ["INVOCATION_NOT_FOUND", "REPLICA_BEHIND", "STALE_REVISION", "OUT_OF_ORDER"])
def test_an_invocation_that_the_server_lost_goes_on_from_its_last_state(reason: str) -> None:
    """Init(resume), FirstAction with the scope as it was known, then the same request; no agent runs twice."""
    attached = step(1, start("w"), call("w", "write$0"))
    server = Server(WRITE, failure(reason), attached, POLISH, DONE, reads=READS)
    world = World(server)
    result = world.run([write, polish], output_key="reply")
    assert server.methods == [
        *("Init", "FirstAction", "NextAction"),
        *("Init", "FirstAction", "NextAction"),
        *("NextAction", "End"),
    ]
    assert server.sent("Init")[1].state == WRITE.state
    assert not server.sent("Init")[1].take_over
    assert scope_of(server.sent("FirstAction")[1]) == {"request": "hello"}
    assert server.sent("NextAction")[0] == server.sent("NextAction")[1]
    assert calls == ["write", "polish"]
    assert world.paused == []
    assert result.steps[1].restores == 1


def test_the_request_follows_a_position_that_attaching_moved() -> None:
    """If attaching is a step of the server, the request is sent for the position after it."""
    attached = step(2, start("w"), call("w", "write$0"))
    server = Server(WRITE, failure("INVOCATION_NOT_FOUND"), attached, step(3, done()), reads=READS)
    World(server).run([write])
    assert [request.base.revision for request in server.sent("NextAction")] == [1, 2]


def test_a_lost_reply_while_attaching_does_not_start_over() -> None:
    """Only what was not answered is sent again: a second Init would be behind the first attach."""
    attached = step(2, start("w"), call("w", "write$0"))
    server = Server(WRITE, failure("INVOCATION_NOT_FOUND"), unreachable(), attached, step(3, done()), reads=READS)
    World(server).run([write])
    assert server.methods.count("Init") == 2
    assert server.sent("FirstAction")[1] == server.sent("FirstAction")[2]


def test_an_invocation_lost_before_its_first_step_is_set_up_afresh() -> None:
    """Without a state there is nothing to lose: Init is sent as it was."""
    server = Server(failure("INVOCATION_NOT_FOUND"), WRITE, DONE)
    World(server).run([write])
    first, second = server.sent("Init")
    assert first == second


def test_a_server_that_keeps_losing_it_uses_up_the_budget() -> None:
    """Restoring counts as an attempt, and from the second time on there is a wait."""
    server = Server(WRITE, *[failure("INVOCATION_NOT_FOUND")] * 9)
    world = World(server)
    with pytest.raises(PlannerdError):
        world.run([write])
    assert world.paused == [0.2, 0.4, 0.8]


@pytest.mark.parametrize(
    ("reason", "kind"), [("OWNER_CHANGED", OwnerChanged), ("INVOCATION_FINISHED", InvocationFinished)]
)
def test_a_client_that_lost_the_invocation_stops(reason: str, kind: type[PlannerdError]) -> None:
    """It raises that error and never sets the invocation up again."""
    server = Server(WRITE, failure(reason))
    with pytest.raises(kind):
        World(server).run([write])
    assert server.methods.count("Init") == 1


def test_a_state_that_is_outdated_stops_the_run() -> None:
    """When restoring finds the invocation further on, and not by this request, somebody else goes on with it."""
    server = Server(WRITE, *[failure("STALE_REVISION")] * 30)
    server.inits = [None, *[failure("STATE_OUTDATED")] * 30]
    with pytest.raises(StateOutdated):
        World(server).run([write], retry=RetryPolicy(attempts=60, total=1e6))


def test_a_replica_that_is_ahead_by_this_request_answers_it() -> None:
    """A reply was lost, another replica knew nothing, and Init meets the first again: it still has the reply."""
    server = Server(WRITE, unreachable(), failure("INVOCATION_NOT_FOUND"), POLISH, DONE, reads=READS)
    server.inits = [None, failure("STATE_OUTDATED")]
    World(server).run([write, polish])
    sent = server.sent("NextAction")
    assert sent[0] == sent[1] == sent[2]
    assert calls == ["write", "polish"]


def test_async_agents_go_on_running_while_the_invocation_moves() -> None:
    """A pending output is attached as pending, and the agent is not started again."""
    pending = call("r", "research$0", "PENDING")
    server = Server(
        step(1, start("r"), call("r", "research$0")),
        step(2, wait_for("r"), pending),
        failure("INVOCATION_NOT_FOUND"),
        step(2, wait_for("r"), pending),
        step(3, done()),
        reads={"facts": VALUE},
    )
    world = World(server)
    world.run([agent(name="research", output_key="facts", async_=True)(lambda: "f")])
    assert scope_of(server.sent("FirstAction")[1]) == {"facts": "<pending>"}
    assert world.launched == ["research"]
