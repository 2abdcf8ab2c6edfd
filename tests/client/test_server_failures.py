"""Failing agents, failing models and refusals, against a real server and by both clients."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from plannerd_client import (
    AgentContext,
    AgentFailed,
    Bdi,
    DecisionOptions,
    Desire,
    MissingArgument,
    Recover,
    Retry,
    Scheduler,
    agent,
)
from plannerd_client.errors import (
    CallTimedOut,
    DecisionInvalidAnswer,
    DecisionModelNotFound,
    InvalidConfiguration,
    InvalidRequest,
    InvocationAlreadyExists,
    UnsupportedInput,
)
from tests.client.conftest import Run
from tests.client.story import REQUEST, SCHEDULER


@agent(output_key="draft")
def write(request: str) -> str:
    """Writes a draft."""
    return f"draft of {request}"


@agent(output_key="reply")
async def polish(draft: str) -> str:
    """Polishes a draft."""
    await asyncio.sleep(0)
    return draft.upper()


def test_a_failure_is_raised_from_its_cause(run: Run) -> None:
    """AgentFailed names the agent, and the invocation is over."""

    def broken(request: str) -> str:
        raise ValueError(request)

    with pytest.raises(AgentFailed, match="broken") as caught:
        run(SCHEDULER, [broken], REQUEST)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_missing_argument_is_named(run: Run) -> None:
    """A mandatory argument that is not in the scope fails the call by name."""
    desires = [Desire(name="d", agents=[polish], achievable="request", satisfied="reply")]
    with pytest.raises(MissingArgument) as caught:
        run(Bdi(desires), [polish], REQUEST)
    assert caught.value.argument == "draft"


def test_handlers_may_retry_and_recover(run: Run) -> None:
    """A retried call keeps its id; a recovered one counts as answered, and the run moves on."""
    contexts: list[AgentContext] = []

    @agent(output_key="draft")
    def flaky(request: str, ctx: AgentContext) -> str:
        contexts.append(ctx)
        raise ValueError

    def handler(ctx: AgentContext, error: Exception) -> Retry | Recover:
        return Retry() if ctx.attempt < 3 else Recover("made up")

    result = run(SCHEDULER, [flaky, polish], REQUEST, output_key="reply", on_error=handler)
    assert result.result == "MADE UP"
    assert [ctx.attempt for ctx in contexts] == [1, 2, 3]
    assert len({ctx.call_id for ctx in contexts}) == 1


def test_an_agent_that_takes_too_long_fails(run: Run) -> None:
    """Its time limit holds for plain functions, coroutine functions and async agents; the late one is told."""
    contexts: list[AgentContext] = []
    release = threading.Event()

    @agent(timeout=0.05)
    def slow(request: str, ctx: AgentContext) -> None:
        contexts.append(ctx)
        release.wait(30)

    @agent(timeout=0.05)
    async def slow_coroutine(request: str, ctx: AgentContext) -> None:
        contexts.append(ctx)
        await asyncio.sleep(30)

    @agent(timeout=0.05, async_=True, output_key="k")
    async def slow_background(request: str, ctx: AgentContext) -> None:
        contexts.append(ctx)
        await asyncio.sleep(30)

    use = agent(name="use", output_key="used")(lambda k: k)
    for function in (slow, slow_coroutine, slow_background):
        with pytest.raises(AgentFailed) as caught:
            run(SCHEDULER, [function, use], REQUEST)
        assert isinstance(caught.value.__cause__, CallTimedOut)
    release.set()
    assert [ctx.cancelled for ctx in contexts] == [True] * 3


outages: list[int] = []


def test_a_decision_model_that_is_down_is_asked_again(run: Run) -> None:
    """The runner repeats the step within its budget; nothing ran twice."""
    calls: list[str] = []

    @agent(output_key="note")
    def note(request: str) -> str:
        calls.append(request)
        return "n"

    result = run(SCHEDULER, [note], REQUEST, model="flaky")
    # The server counts the requests of its model, so only the first run meets the outage.
    outages.append(result.steps[0].retries)
    assert outages == [2, 0, 0, 0][: len(outages)]
    assert len(calls) == 1


def test_nonsense_of_a_model_is_not_repeated(run: Run) -> None:
    """An invalid answer ends the run at once with an error of its own, and the run could be continued."""
    with pytest.raises(DecisionInvalidAnswer):
        run(SCHEDULER, [write], REQUEST, model="liar")


@pytest.mark.parametrize(
    ("planner", "arguments", "options", "kind_of_error"),
    [
        (Scheduler(goal=" ", goal_threshold=0.5, activation_threshold=0.5), REQUEST, {}, InvalidConfiguration),
        (Scheduler(goal="g", goal_threshold=1, activation_threshold=0.5), REQUEST, {}, InvalidConfiguration),
        (SCHEDULER, {}, {}, InvalidConfiguration),
        (SCHEDULER, REQUEST, {"model": "nobody"}, DecisionModelNotFound),
        (SCHEDULER, REQUEST, {"model": DecisionOptions(model="nobody")}, DecisionModelNotFound),
        (SCHEDULER, {"request": b"bytes"}, {}, UnsupportedInput),
        (SCHEDULER, REQUEST, {"invocation_id": " "}, InvalidRequest),
    ],
)
def test_refusals_are_typed(run: Run, planner: Any, arguments: Any, options: Any, kind_of_error: Any) -> None:
    """What the server refuses is raised as the class of its reason, with the bad fields where there are any."""
    with pytest.raises(kind_of_error) as caught:
        run(planner, [write], arguments, **options)
    if kind_of_error in {InvalidConfiguration, InvalidRequest}:
        assert caught.value.violations


def test_an_id_in_use_is_refused(run: Run) -> None:
    """A second invocation of the same id, while the first one runs, is an error."""
    caught: list[Exception] = []

    @agent
    def again(request: str, ctx: AgentContext) -> None:
        try:
            run(SCHEDULER, [write], REQUEST, invocation_id=ctx.invocation_id)
        except InvocationAlreadyExists as error:
            caught.append(error)

    run(SCHEDULER, [again], REQUEST)
    assert len(caught) == 1
