"""The loop of a run, against a scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from plannerd_client import (
    AgentContext,
    AgentFailed,
    GaveUp,
    MissingArgument,
    Recover,
    Retry,
    RunStatus,
    Snapshot,
    Suspend,
    UnknownAction,
    UnsupportedValue,
    agent,
    belief,
    human,
)
from plannerd_client._values import decode
from plannerd_client.errors import (
    CallTimedOut,
    ConditionFailed,
    MissingBelief,
    PendingValue,
    ProtocolError,
    RunTimedOut,
)
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2, value_pb2
from tests.client.world import (
    NONE,
    PRESENCE,
    VALUE,
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


@agent(output_key="draft")
def write(request: str) -> str:
    return f"draft of {request}"


@agent(output_key="reply")
def polish(draft: str) -> str:
    return draft.upper()


def values(update: value_pb2.ScopeUpdate) -> dict[str, Any]:
    return {key: decode(value, key) for key, value in update.set.items() if value.WhichOneof("kind") != "opaque"}


def two_steps() -> list[step_pb2.Step]:
    return [
        step(1, start("c1"), call("c1", "write$0")),
        step(2, start("c2"), call("c2", "polish$1")),
        step(3, done()),
    ]


def test_a_run_follows_the_planner_and_returns_what_the_scope_holds() -> None:
    """Agents run in the order of the planner, and an unset result is what the scope holds under the output key."""
    world = World(Server(*two_steps(), reads={"request": VALUE, "draft": VALUE}))
    result = world.run([write, polish], output_key="reply")
    assert (result.status, result.result) == (RunStatus.COMPLETED, "DRAFT OF HELLO")
    assert result.scope == {"request": "hello", "draft": "draft of hello", "reply": "DRAFT OF HELLO"}
    assert [one.action for one in result.steps] == ["start", "start", "done"]
    assert result.steps[0].started == (("c1", "write$0"),)
    assert result.snapshot is None
    assert world.server.methods == ["Init", "FirstAction", "NextAction", "NextAction", "End"]
    assert world.server.sent("End")[0].outcome == planner_pb2.END_OUTCOME_COMPLETED


def test_only_keys_that_the_planner_reads_travel_and_only_as_it_needs_them() -> None:
    """FirstAction has the read keys alone, and a tag where presence is enough."""
    server = Server(step(1, done()), reads={"request": VALUE, "secret": PRESENCE, "absent": VALUE})
    World(server).run([write], scope={"secret": object(), "unread": "x"})
    scope = server.sent("FirstAction")[0].scope
    assert values(scope) == {"request": "hello"}
    assert scope.set["secret"].opaque.tag
    assert sorted(scope.set) == ["request", "secret"]


def test_later_steps_carry_changes_only() -> None:
    """A report has what changed in the scope since the last step, without the output keys of its results."""

    @agent(output_key="draft")
    def noting(ctx: AgentContext) -> str:
        ctx.scope["note"] = 7
        del ctx.scope["old"]
        return "d"

    server = Server(
        step(1, start("c1"), call("c1", "noting$0")),
        step(2, start("c2"), call("c2", "polish$1")),
        step(3, done()),
        reads={"request": VALUE, "note": VALUE, "old": VALUE, "draft": VALUE},
    )
    World(server).run([noting, polish], scope={"old": 1})
    first, second = server.sent("NextAction")
    assert values(first.scope) == {"note": 7}
    assert list(first.scope.removed) == ["old"]
    assert not second.scope.set
    assert not second.scope.removed


@pytest.mark.parametrize(
    ("need", "output", "form"),
    [
        (VALUE, "x", "value"),
        (PRESENCE, "x", "opaque"),
        (PRESENCE, None, "value"),
        (PRESENCE, "  ", "value"),
        (NONE, "x", "withheld"),
    ],
)
def test_an_output_travels_as_far_as_it_is_needed(need: Any, output: Any, form: str) -> None:
    """The output is sent as a value, a tag or not at all, as the call says; what is absent is never a tag."""
    server = Server(step(1, start("c"), call("c", "one$0", output_need=need)), step(2, done()))
    World(server).run([agent(name="one", output_key="k")(lambda: output)])
    assert server.sent("NextAction")[0].results[0].output.WhichOneof("form") == form


def test_a_null_output_removes_its_key() -> None:
    """An agent that returns None takes its output key out of the scope."""
    server = Server(step(1, start("c"), call("c", "one$0")), step(2, done()))
    result = World(server).run([agent(name="one", output_key="k")(lambda: None)], scope={"k": 1})
    assert "k" not in result.scope


def test_calls_of_one_step_run_together_and_each_is_reported() -> None:
    """All calls of a step are started before one is waited for; results that are there share a request."""
    server = Server(
        step(1, start("a", "b"), call("a", "one$0"), call("b", "two$1")),
        step(2, done(step_pb2.Result(outputs=outputs(("two", "b"), ("one", "a"), ("none", ""))))),
    )
    world = World(server, batch=True)
    result = world.run([agent(name="one")(lambda: 1), agent(name="two")(lambda: 2)])
    assert [item.call_id for item in server.sent("NextAction")[0].results] == ["a", "b"]
    assert list(result.result.items()) == [("two", 2), ("one", 1), ("none", None)]


def outputs(*named: tuple[str, str]) -> step_pb2.NamedOutputs:
    made = [step_pb2.NamedOutput(name=name, **({"call_id": call_id} if call_id else {})) for name, call_id in named]
    return step_pb2.NamedOutputs(outputs=made)


def test_a_completion_is_reported_before_its_siblings_end() -> None:
    """What has ended is reported while others still run, and they go on after a no-op."""
    server = Server(
        step(1, start("a", "b"), call("a", "one$0"), call("b", "two$1")),
        step(2, no_op(), call("b", "two$1")),
        step(3, done(step_pb2.Result(output_of="b"))),
    )
    world = World(server)
    result = world.run([agent(name="one")(lambda: 1), agent(name="two")(lambda: 2)])
    assert [len(request.results) for request in server.sent("NextAction")] == [1, 1]
    assert world.launched == ["one", "two"]
    assert result.result == 2


def test_a_result_is_the_client_s_own_object() -> None:
    """The result of a call is the very object that the agent returned, and lands under the output key."""
    thing = object()
    server = Server(
        step(1, start("c"), call("c", "one$0", output_need=NONE)), step(2, done(step_pb2.Result(output_of="c")))
    )
    result = World(server).run([agent(name="one")(lambda: thing)], output_key="k")
    assert result.result is thing
    assert result.scope["k"] is thing


def test_a_result_may_be_a_value_or_a_key_of_the_scope() -> None:
    """A value of the planner is decoded, a scope key looked up."""
    value = value_pb2.Value(int_value=3)
    assert World(Server(step(1, done(step_pb2.Result(value=value))))).run([write]).result == 3
    assert World(Server(step(1, done(step_pb2.Result(scope_key="request"))))).run([write]).result == "hello"


def test_writes_of_a_step_come_before_its_calls() -> None:
    """What a step writes is in the scope when its calls start, and is not sent back."""
    writes = value_pb2.ScopeUpdate(set={"request": value_pb2.Value(string_value="new")}, removed=["gone"])
    server = Server(
        step(1, start("c"), call("c", "write$0"), writes=writes),
        step(2, done()),
        reads={"request": VALUE, "gone": VALUE},
    )
    result = World(server).run([write], scope={"gone": 1})
    assert result.scope == {"request": "new", "draft": "draft of new"}
    assert not server.sent("NextAction")[0].scope.set


def test_arguments_of_a_call_replace_those_of_the_scope() -> None:
    """An override is passed in place of what the scope holds."""
    overridden = call("c", "write$0", arguments={"request": value_pb2.Value(string_value="other")})
    result = World(Server(step(1, start("c"), overridden), step(2, done()))).run([write])
    assert result.scope["draft"] == "draft of other"


def test_an_unknown_action_stops_the_run() -> None:
    """An action that this client does not know is an error of its own, and runs nothing."""
    world = World(Server(step(1, step_pb2.Action(), call("c", "write$0"))))
    with pytest.raises(UnknownAction):
        world.run([write])
    assert world.launched == []


def test_an_undeclared_agent_is_refused() -> None:
    """A call of an agent that the run does not have is an error."""
    with pytest.raises(ProtocolError, match="other"):
        World(Server(step(1, start("c"), call("c", "other")))).run([write])


def test_giving_up_is_a_typed_error() -> None:
    """A give-up raises GaveUp with its reason, its message and the explanation, and ends the invocation."""
    give_up = step_pb2.GiveUp(reason=step_pb2.GIVE_UP_REASON_BELOW_THRESHOLD, message="nothing is useful")
    explanation = step_pb2.Explanation(summary="why")
    server = Server(step(1, step_pb2.Action(give_up=give_up), explanation=explanation))
    with pytest.raises(GaveUp, match="nothing is useful") as caught:
        World(server).run([write])
    assert (caught.value.reason, caught.value.explanation.summary) == ("BELOW_THRESHOLD", "why")
    assert server.methods[-1] == "End"


# --- arguments


def test_arguments_come_from_the_scope_with_defaults_and_none() -> None:
    """A default is passed where a key is absent, None where the parameter is optional."""
    seen: list[Any] = []

    def look(request: str, level: int = 3, note: str | None = None) -> None:
        seen.append((request, level, note))

    World(Server(step(1, start("c"), call("c", "look$0")), step(2, done()))).run([look])
    assert seen == [("hello", 3, None)]


def test_an_optional_agent_without_a_mandatory_argument_is_skipped() -> None:
    """It is never called, and reported as skipped."""
    server = Server(step(1, start("c"), call("c", "maybe$0")), step(2, done(step_pb2.Result(output_of="c"))))
    world = World(server)
    result = world.run([agent(name="maybe", optional=True)(lambda missing: missing)])
    assert server.sent("NextAction")[0].results[0].WhichOneof("outcome") == "skipped"
    assert world.launched == []
    assert result.result is None


def test_a_missing_mandatory_argument_is_a_failure_that_names_it() -> None:
    """Without the argument the agent is not called and the run fails with MissingArgument; blank text is missing."""
    server = Server(step(1, start("c"), call("c", "polish$0")), failed_step())
    with pytest.raises(MissingArgument) as caught:
        World(server).run([polish], scope={"draft": " \t"})
    assert (caught.value.agent, caught.value.argument) == ("polish$0", "draft")
    assert server.sent("NextAction")[0].results[0].failed.type == "MissingArgument"


def failed_step() -> step_pb2.Step:
    give_up = step_pb2.GiveUp(reason=step_pb2.GIVE_UP_REASON_AGENT_FAILED)
    return step(9, step_pb2.Action(give_up=give_up))


def test_the_context_names_the_call() -> None:
    """An agent that asks for its context gets ids, attempt, deadline, trace and whether it is the last."""
    contexts: list[AgentContext] = []
    server = Server(step(1, start("c"), call("c", "look$0", final=True), traceparent="00-1-2-01"), step(2, done()))

    @agent(timeout=5)
    def look(ctx: AgentContext) -> None:
        contexts.append(ctx)

    World(server).run([look], invocation_id="inv-1")
    context = contexts[0]
    assert (context.invocation_id, context.call_id, context.agent) == ("inv-1", "c", "look$0")
    assert (context.attempt, context.deadline, context.traceparent) == (1, 1005.0, "00-1-2-01")
    assert context.final


# --- failures


def broken() -> None:
    raise ValueError("no")


def test_a_failing_agent_fails_the_run() -> None:
    """Without a handler the failure is reported and AgentFailed raised from the cause; it may still be taken over."""
    server = Server(step(1, start("c"), call("c", "broken$0")), failed_step())
    with pytest.raises(AgentFailed) as caught:
        World(server).run([broken])
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.agent, caught.value.call_id) == ("broken$0", "c")
    failed = server.sent("NextAction")[0].results[0].failed
    assert (failed.type, failed.message) == ("ValueError", "no")
    assert server.methods[-1] == "NextAction"


def test_the_run_fails_with_the_agent_s_failure_even_if_plannerd_is_gone() -> None:
    """That the failure can't be reported does not hide it."""
    server = Server(step(1, start("c"), call("c", "broken$0")), *[failure("OWNER_CHANGED")])
    with pytest.raises(AgentFailed) as caught:
        World(server).run([broken])
    assert "plannerd could not be told" in caught.value.__notes__[0]


def test_a_handler_may_retry() -> None:
    """A retry is a new attempt of the same call, after its delay, and nothing is reported of the failed one."""
    contexts: list[AgentContext] = []

    def flaky(ctx: AgentContext) -> str:
        contexts.append(ctx)
        if ctx.attempt < 3:
            raise ValueError
        return "ok"

    server = Server(step(1, start("c"), call("c", "flaky$0")), step(2, done(step_pb2.Result(output_of="c"))))
    world = World(server)
    result = world.run([flaky], on_error=lambda _ctx, _error: Retry(delay=2.5))
    assert result.result == "ok"
    assert [(one.call_id, one.attempt) for one in contexts] == [("c", 1), ("c", 2), ("c", 3)]
    assert world.now == 1005.0
    assert len(server.sent("NextAction")) == 1


def test_a_handler_may_recover() -> None:
    """A supplied value counts as the output, marked recovered."""
    server = Server(step(1, start("c"), call("c", "broken$0")), step(2, done(step_pb2.Result(output_of="c"))))
    result = World(server).run([broken], on_error=lambda _ctx, error: Recover(str(error)))
    assert result.result == "no"
    assert server.sent("NextAction")[0].results[0].recovered


def test_a_handler_that_mends_the_scope_may_retry_a_missing_argument() -> None:
    """Arguments are looked up again at each attempt."""

    def mend(ctx: AgentContext, error: Exception) -> Retry:
        assert isinstance(error, MissingArgument)
        ctx.scope[error.argument] = "given"
        return Retry()

    server = Server(step(1, start("c"), call("c", "polish$0")), step(2, done()))
    assert World(server).run([polish], on_error=mend).scope["reply"] == "GIVEN"


def test_a_handler_that_raises_fails_the_run_with_what_it_raised() -> None:
    """The handler's own exception is the cause, with the agent's as its context."""

    def handler(ctx: AgentContext, error: Exception) -> None:
        raise KeyError("handler")

    with pytest.raises(AgentFailed) as caught:
        World(Server(step(1, start("c"), call("c", "broken$0")), failed_step())).run([broken], on_error=handler)
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(caught.value.__cause__.__context__, ValueError)


def test_a_handler_must_return_a_decision() -> None:
    """Anything but a Retry, a Recover or None is refused."""
    with pytest.raises(AgentFailed, match="on_error returned 5"):
        World(Server(step(1, start("c"), call("c", "broken$0")), failed_step())).run([broken], on_error=lambda *_: 5)


def test_siblings_of_a_failed_agent_finish() -> None:
    """Agents that run when another fails are waited for; what they return is kept, and not reported."""
    ended: list[str] = []
    server = Server(step(1, start("a", "b"), call("a", "broken$0"), call("b", "slow$1")), failed_step())
    with pytest.raises(AgentFailed) as caught:
        World(server).run([broken, agent(name="slow", output_key="k")(lambda: ended.append("slow"))])
    assert ended == ["slow"]
    assert [result.call_id for request in server.sent("NextAction") for result in request.results] == ["a"]
    snapshot = caught.value.snapshot
    assert snapshot is not None
    assert [report.call_id for report in snapshot.unreported] == ["b"]


def test_siblings_of_a_failed_agent_can_be_cancelled() -> None:
    """With cancel_siblings they are abandoned and told so."""
    contexts: list[AgentContext] = []

    @agent(name="slow")
    def slow(ctx: AgentContext) -> None:
        contexts.append(ctx)

    world = World(Server(step(1, start("a", "b"), call("a", "broken$0"), call("b", "slow$1")), failed_step()))
    with pytest.raises(AgentFailed):
        world.run([broken, slow], cancel_siblings=True)
    assert world.abandoned == ["slow"]
    assert contexts == []


def test_an_output_that_can_t_travel_is_a_failure_of_its_agent() -> None:
    """It goes to the handler like any other failure, and names where the trouble is."""
    seen: list[Exception] = []

    def handler(_ctx: AgentContext, error: Exception) -> Recover:
        seen.append(error)
        return Recover(1)

    server = Server(step(1, start("c"), call("c", "one$0")), step(2, done()))
    World(server).run([agent(name="one")(lambda: {"a": [object()]})], on_error=handler)
    assert isinstance(seen[0], UnsupportedValue)
    assert seen[0].path == "output of one$0.a[0]"


def test_an_argument_that_can_t_travel_is_an_error() -> None:
    """It is never converted silently, and the invocation that was set up for it is released."""
    server = Server(reads={"request": VALUE})
    with pytest.raises(UnsupportedValue, match=r"request\.x"):
        World(server).run([write], {"request": {"x": object()}})
    assert server.methods == ["Init", "End"]


def test_an_agent_has_a_time_limit() -> None:
    """A call that takes longer is abandoned and fails with CallTimedOut."""
    world = World(Server(step(1, start("c"), call("c", "slow$0")), failed_step()), stuck={"slow"})
    with pytest.raises(AgentFailed) as caught:
        world.run([agent(name="slow", timeout=3)(lambda: None)])
    assert isinstance(caught.value.__cause__, CallTimedOut)
    assert world.abandoned == ["slow"]
    assert world.now == 1003.0


def test_a_run_has_a_time_limit() -> None:
    """When it is over the run ends with RunTimedOut, abandons its agents and can be continued."""
    world = World(Server(step(1, start("c"), call("c", "slow$0"))), stuck={"slow"})
    with pytest.raises(RunTimedOut) as caught:
        world.run([agent(name="slow")(lambda: None)], timeout=4)
    assert world.abandoned == ["slow"]
    assert caught.value.snapshot is not None
    assert world.server.methods == ["Init", "FirstAction"]


# --- asynchronous agents


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
    server = Server(*two_steps(), beliefs=["drafted"])
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
