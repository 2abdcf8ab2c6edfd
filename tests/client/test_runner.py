"""The loop of a run, against a scripted server."""

from __future__ import annotations

from typing import Any

import pytest

from plannerd_client import (
    AgentContext,
    GaveUp,
    MissingArgument,
    RunStatus,
    UnknownAction,
    agent,
)
from plannerd_client.errors import (
    ProtocolError,
)
from plannerd_protos.planner.v1 import planner_pb2, step_pb2, value_pb2
from tests.client.story import DONE, POLISH, WRITE, failed_step, polish, scope_of, write
from tests.client.world import (
    NONE,
    PRESENCE,
    VALUE,
    Server,
    World,
    call,
    done,
    no_op,
    start,
    step,
)


def test_a_run_follows_the_planner_and_returns_what_the_scope_holds() -> None:
    """Agents run in the order of the planner, and an unset result is what the scope holds under the output key."""
    world = World(Server(WRITE, POLISH, DONE, reads={"request": VALUE, "draft": VALUE}))
    result = world.run([write, polish], output_key="reply")
    assert (result.status, result.result) == (RunStatus.COMPLETED, "DRAFT OF HELLO")
    assert result.scope == {"request": "hello", "draft": "draft of hello", "reply": "DRAFT OF HELLO"}
    assert [one.action for one in result.steps] == ["start", "start", "done"]
    assert result.steps[0].started == (("w", "write$0"),)
    assert result.snapshot is None
    assert world.server.methods == ["Init", "FirstAction", "NextAction", "NextAction", "End"]
    assert world.server.sent("End")[0].outcome == planner_pb2.END_OUTCOME_COMPLETED


def test_only_keys_that_the_planner_reads_travel_and_only_as_it_needs_them() -> None:
    """FirstAction has the read keys alone, and a tag where presence is enough."""
    server = Server(step(1, done()), reads={"request": VALUE, "secret": PRESENCE, "absent": VALUE})
    World(server).run([write], scope={"secret": object(), "unread": "x"})
    first = server.sent("FirstAction")[0]
    assert scope_of(first) == {"request": "hello"}
    assert first.scope.set["secret"].opaque.tag
    assert sorted(first.scope.set) == ["request", "secret"]


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
    assert scope_of(first) == {"note": 7}
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
