"""Asynchronous agents, beliefs and humans, against a scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from plannerd_client import (
    AgentContext,
    AgentFailed,
    RunStatus,
    Snapshot,
    Suspend,
    agent,
    belief,
    human,
)
from plannerd_client.errors import (
    ConditionFailed,
    MissingBelief,
    PendingValue,
)
from plannerd_protos.planner.v1 import agent_pb2, step_pb2
from tests.client.story import DONE, POLISH, WRITE, broken, failed_step, polish, write
from tests.client.world import (
    Server,
    World,
    call,
    done,
    failure,
    no_op,
    start,
    step,
    suspend,
    wait_for,
)


@agent(output_key="facts", async_=True)
def research(request: str) -> str:
    return "facts"


def test_an_async_agent_is_reported_as_pending_and_goes_on() -> None:
    """It is started and reported as pending; its output is reported when the planner waits for it."""
    server = Server(
        step(1, start("r"), call("r", "research$0")),
        step(2, start("w"), call("r", "research$0", "PENDING"), call("w", "write$1")),
        step(3, wait_for("r"), call("r", "research$0", "PENDING")),
        step(4, done()),
    )
    world = World(server)
    world.stuck = {"research"}

    def release(one: Any) -> None:
        if one.action == "await":
            world.stuck.clear()

    world.run([research, write], on_step=release)
    outcomes = [
        [(item.call_id, item.WhichOneof("outcome")) for item in request.results]
        for request in server.sent("NextAction")
    ]
    assert outcomes == [[("r", "pending")], [("w", "output")], [("r", "output")]]


def test_awaited_outputs_are_reported_together() -> None:
    """A run that waits for several outputs reports them in one request, when all are there."""
    background = [agent(name=name, output_key=name, async_=True)(lambda: 1) for name in ("one", "two")]
    server = Server(
        step(1, start("a", "b"), call("a", "one$0"), call("b", "two$1")),
        step(2, wait_for("a", "b"), call("a", "one$0", "PENDING"), call("b", "two$1", "PENDING")),
        step(3, done()),
    )
    World(server).run(background)
    assert [len(request.results) for request in server.sent("NextAction")] == [2, 2]


def test_pending_arguments_are_waited_for() -> None:
    """A call whose argument is on its way starts when it has arrived."""
    server = Server(
        step(1, start("r"), call("r", "research$0")),
        step(2, start("u"), call("r", "research$0", "PENDING"), call("u", "use$1")),
        step(3, no_op(), call("u", "use$1")),
        step(4, done(step_pb2.Result(output_of="u"))),
    )
    world = World(server)
    result = world.run([research, agent(name="use")(lambda facts: facts + "!")])
    assert result.result == "facts!"
    assert world.launched == ["research", "use"]


def test_a_result_that_is_on_its_way_is_waited_for() -> None:
    """When the planner is done while the output key is pending, the result is the output, never a placeholder."""
    server = Server(
        step(1, start("r"), call("r", "research$0")),
        step(2, done(), call("r", "research$0", "PENDING")),
    )
    assert World(server).run([research], output_key="facts").result == "facts"


def test_an_async_agent_that_fails_after_the_end_is_told() -> None:
    """Its failure is in the result; the run fails only if it was to be the result."""
    broken_research = agent(name="research", output_key="facts", async_=True)(broken)
    steps = [step(1, start("r"), call("r", "research$0")), step(2, done(), call("r", "research$0", "PENDING"))]
    result = World(Server(*steps)).run([broken_research])
    assert [failure.call_id for failure in result.late_failures] == ["r"]
    with pytest.raises(AgentFailed):
        World(Server(*steps, failure("INVOCATION_FINISHED"))).run([broken_research], output_key="facts")


def test_a_pending_key_is_present_but_not_readable() -> None:
    """Beliefs see that a pending key is there, and fail when they read it."""
    seen: list[Any] = []

    def look(scope: Any) -> bool:
        seen.append("facts" in scope)
        return bool(scope.get("facts"))

    server = Server(
        step(1, start("r"), call("r", "research$0")),
        lambda request: step(2, done()) if request.beliefs["b"] == agent_pb2.BELIEF_FAILED else failure("INTERNAL"),
        beliefs=["b"],
    )
    World(server).run([research], beliefs={"b": look})
    assert seen == [False, True]


# --- beliefs


def test_beliefs_are_evaluated_before_every_step() -> None:
    """Each request has every belief that the planner named, as it stands then."""
    server = Server(WRITE, POLISH, DONE, beliefs=["drafted"])
    World(server).run([write, polish], beliefs={"drafted": lambda scope: "draft" in scope})
    sent = [request.beliefs["drafted"] for _, request in server.requests if hasattr(request, "beliefs")]
    assert sent == [agent_pb2.BELIEF_FALSE, agent_pb2.BELIEF_TRUE, agent_pb2.BELIEF_TRUE]


def test_functions_in_the_place_of_conditions_are_named_after_it() -> None:
    """A function as activation becomes a belief with a name that every process gives it."""
    server = Server(step(1, done()), beliefs=["agent:one$0:activation"])
    World(server).run([agent(name="one", activation=lambda scope: True)(lambda: 1)])
    assert server.sent("Init")[0].agents[0].activation.belief == "agent:one$0:activation"


def test_a_missing_belief_is_an_error_of_the_client() -> None:
    """A belief without a function is refused before anything is decided."""
    server = Server(beliefs=["vip"])
    with pytest.raises(MissingBelief, match="vip"):
        World(server).run([agent(name="one", activation=belief("vip"))(lambda: 1)])


def test_a_belief_that_raises_is_the_cause_of_the_failed_condition() -> None:
    """CONDITION_FAILED is raised from what the belief raised; what is no bool counts as failed."""
    for function, cause in ((lambda scope: scope["x"], KeyError), (lambda scope: "yes", TypeError)):
        server = Server(failure("CONDITION_FAILED"), beliefs=["b"])
        with pytest.raises(ConditionFailed) as caught:
            World(server).run([write], beliefs={"b": function})
        assert isinstance(caught.value.__cause__, cause)


# --- humans


def test_a_human_suspends_the_run() -> None:
    """The call is reported as suspended, and the run returns what is asked, with a snapshot, without ending."""
    approve = human("approve", output_key="approved", arguments=["draft"], request="ok?", timeout=60)
    server = Server(
        step(1, start("h"), call("h", "approve$0")),
        step(2, suspend("h"), call("h", "approve$0", "SUSPENDED", response_id="h")),
    )
    result = World(server).run([approve], scope={"draft": "d"})
    assert server.sent("NextAction")[0].results[0].suspended.response_id == "h"
    assert result.status is RunStatus.SUSPENDED
    (suspension,) = result.suspensions
    assert (suspension.response_id, suspension.agent, suspension.request) == ("h", "approve$0", "ok?")
    assert (suspension.arguments, suspension.expires_at) == ({"draft": "d"}, 1060.0)
    assert isinstance(result.snapshot, Snapshot)
    assert "End" not in server.methods


@pytest.mark.parametrize("raised", [True, False])
def test_an_agent_may_suspend_by_returning_or_raising(raised: bool) -> None:
    """Both ways are the same, with a response id of the agent's own choice."""

    @agent(output_key="answer", human=True)
    def ask() -> Suspend:
        if raised:
            raise Suspend({"q": 1}, response_id="mine")
        return Suspend({"q": 1}, response_id="mine")

    server = Server(
        step(1, start("h"), call("h", "ask$0")),
        step(2, suspend("h"), call("h", "ask$0", "SUSPENDED", response_id="mine")),
    )
    result = World(server).run([ask])
    assert (result.suspensions[0].response_id, result.suspensions[0].request) == ("mine", {"q": 1})


def test_a_suspended_sibling_cancels_nobody() -> None:
    """The others complete and are reported before the run returns suspended."""
    approve = human("approve", output_key="approved")
    server = Server(
        step(1, start("h", "w"), call("h", "approve$0"), call("w", "write$1")),
        step(2, no_op(), call("h", "approve$0", "SUSPENDED"), call("w", "write$1")),
        step(3, suspend("h"), call("h", "approve$0", "SUSPENDED", response_id="h")),
    )
    result = World(server).run([approve, write])
    assert result.scope["draft"] == "draft of hello"
    assert result.status is RunStatus.SUSPENDED


def test_a_call_that_needs_a_human_s_answer_waits_for_it() -> None:
    """A sibling whose argument a human owes is not run; the run suspends instead of waiting for ever."""
    approve = human("approve", output_key="draft")
    server = Server(
        step(1, start("h"), call("h", "approve$0")),
        step(2, start("p"), call("h", "approve$0", "SUSPENDED"), call("p", "polish$1")),
    )
    world = World(server)
    result = world.run([approve, polish])
    assert result.status is RunStatus.SUSPENDED
    assert world.launched == ["approve"]


def test_an_async_agent_may_be_answered_from_outside() -> None:
    """One that suspends lets the planner go on; the run suspends when its output is needed, and takes an answer."""
    outside = agent(name="outside", output_key="facts", async_=True)(lambda: Suspend("which facts?"))
    pending = call("o", "outside$0", "PENDING")
    server = Server(
        step(1, start("o"), call("o", "outside$0")),
        step(2, start("w"), pending, call("w", "write$1")),
        step(3, wait_for("o"), pending),
    )
    result = World(server).run([outside, write])
    assert [one.request for one in result.suspensions] == ["which facts?"]
    assert result.snapshot is not None
    server = Server(step(3, wait_for("o"), pending), step(4, done()))
    world = World(server)
    result = world.run([outside, write], resume=Snapshot.loads(result.snapshot.dumps()), answers={"o": "these"})
    assert result.scope["facts"] == "these"
    assert world.launched == []


def test_an_agent_that_suspends_needs_an_output_key() -> None:
    """Otherwise its answer would be lost: it fails."""
    with pytest.raises(AgentFailed, match="needs an output key"):
        World(Server(step(1, start("c"), call("c", "ask$0")), failed_step())).run([agent(name="ask")(Suspend)])


def test_reading_a_pending_key_of_the_scope_is_an_error() -> None:
    """An agent that reads a key whose value a human owes gets PendingValue."""
    caught: list[Exception] = []

    @agent
    def peek(ctx: AgentContext) -> None:
        try:
            ctx.scope["approved"]
        except PendingValue as error:
            caught.append(error)

    server = Server(
        step(1, start("h", "p"), call("h", "approve$0"), call("p", "peek$1")),
        step(2, no_op(), call("h", "approve$0", "SUSPENDED"), call("p", "peek$1")),
        step(3, suspend("h"), call("h", "approve$0", "SUSPENDED")),
    )
    World(server).run([human("approve", output_key="approved"), peek])
    assert len(caught) == 1
