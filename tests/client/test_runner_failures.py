"""What becomes of a run when agents fail or take too long."""

from __future__ import annotations

import pytest

from plannerd_client import (
    AgentContext,
    AgentFailed,
    MissingArgument,
    Recover,
    Retry,
    UnsupportedValue,
    agent,
)
from plannerd_client.errors import (
    CallTimedOut,
    RunTimedOut,
)
from plannerd_protos.planner.v1 import step_pb2
from tests.client.story import broken, failed_step, polish, write
from tests.client.world import (
    VALUE,
    Server,
    World,
    call,
    done,
    failure,
    start,
    step,
)


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
