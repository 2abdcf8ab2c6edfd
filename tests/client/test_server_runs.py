"""Runs against a real server, by both clients."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from plannerd_client import (
    AgentContext,
    Bdi,
    Cascade,
    DecisionOptions,
    Desire,
    GaveUp,
    Router,
    RunStatus,
    Scheduler,
    Step,
    agent,
    belief,
    present,
)
from plannerd_client.errors import (
    ConditionFailed,
    DecisionModelLimit,
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


# --- scheduler


def test_a_scheduler_runs_what_is_useful(run: Run) -> None:
    """Plain functions and coroutine functions run in the order of the planner, and each step says why."""
    steps: list[Step] = []
    result = run(SCHEDULER, [write, polish], REQUEST, output_key="reply", on_step=steps.append, explain="full")
    assert result.status is RunStatus.COMPLETED
    assert result.result == "DRAFT OF WHERE IS MY ORDER?"
    assert [step.action for step in result.steps] == ["start", "start", "done"]
    assert list(result.steps) == steps
    assert [agents for step in result.steps for _, agents in step.started] == ["write$0", "polish$1"]
    assert result.steps[0].explanation.decisions[0].provider == "fixed"
    assert result.steps[0].explanation.agents[0].called


def test_a_model_that_changes_is_a_warning_of_the_step(run: Run) -> None:
    """What the server warns of is with the step, by its code and with its sentence."""
    steps = run(SCHEDULER, [write, polish], REQUEST, model="moody", output_key="reply").steps
    codes = [[warning.code for warning in step.warnings] for step in steps]
    assert codes == [[], ["MODEL_CHANGED"], []]
    assert "moody-" in steps[1].warnings[0].message


def test_a_decision_is_split_where_the_client_asks_for_it(run: Run) -> None:
    """A model that takes fewer questions than there are agents is asked in several requests."""
    router, both = Router(activation_threshold=0.5), [write, agent(name="other", output_key="other")(lambda request: 1)]
    routed = run(router, both, REQUEST, model=DecisionOptions(model="slow", split=True))
    assert routed.result.keys() == {"write", "other"}
    assert [record.part for record in routed.steps[0].explanation.decisions] == [1, 2]
    with pytest.raises(DecisionModelLimit, match=r"decision\.split"):
        run(router, both, REQUEST, model="slow")


def test_a_reached_goal_stops_the_scheduler(run: Run) -> None:
    """The goal is judged once its result exists; what comes after is not run."""
    late = agent(name="late", output_key="late")(lambda reply: reply)
    result = run(SCHEDULER, [write, polish, late], REQUEST, output_key="reply", model="content")
    assert result.scope.keys() == {"request", "draft", "reply"}


@dataclass
class Ticket:
    """A typed output."""

    title: str
    _secret: int


def test_typed_outputs_reach_other_agents_as_they_are(run: Run) -> None:
    """Agents pass their own objects to each other; only what travels is converted."""

    @agent(output_key="ticket")
    def open_ticket(request: str) -> Ticket:
        return Ticket(request, 7)

    @agent(output_key="reply")
    def answer(ticket: Ticket) -> str:
        return f"{ticket.title} {ticket._secret}"

    result = run(SCHEDULER, [open_ticket, answer], REQUEST, output_key="reply")
    assert result.result == "Where is my order? 7"
    assert isinstance(result.scope["ticket"], Ticket)


def test_giving_up_is_raised_with_its_reason(run: Run) -> None:
    """A planner that stops before the result exists raises GaveUp, saying which of the ways it was."""
    with pytest.raises(GaveUp) as caught:
        run(SCHEDULER, [write, polish], REQUEST, output_key="reply", model="bored")
    assert caught.value.reason == "BELOW_THRESHOLD"
    assert caught.value.explanation.agents[0].score == 0.0
    with pytest.raises(GaveUp) as caught:
        run(SCHEDULER, [polish], REQUEST, output_key="reply")
    assert caught.value.reason == "NO_CANDIDATE"


def test_keys_written_by_agents_arm_others_again(run: Run) -> None:
    """What an agent writes beside its output reaches the planner with the report."""
    seen: list[int] = []

    @agent(output_key="count")
    def count(number: int) -> int:
        seen.append(number)
        return number

    @agent(output_key="raised")
    def more(count: int, ctx: AgentContext) -> int:
        if count < 2:
            ctx.scope["number"] = count + 1
        return count

    run(SCHEDULER, [count, more], {"number": 0})
    assert seen == [0, 1, 2]


# --- router


def test_a_router_takes_one(run: Run) -> None:
    """Without a threshold the chosen agent runs, and the result is what it returned."""
    agents = [agent(name="billing")(lambda request: ("b", request)), agent(name="refunds")(lambda: "r")]
    assert run(Router(), agents, REQUEST).result == ("b", "Where is my order?")
    assert run(Router(), agents, REQUEST, model="content").result == "r"


def test_routed_functions_run_at_the_same_time(run: Run) -> None:
    """Plain functions that are started together are in their threads together."""
    barrier = threading.Barrier(3, timeout=30)

    def meet() -> int:
        return barrier.wait()

    agents = [agent(name=name)(meet) for name in ("one", "two", "three")]
    result = run(Router(activation_threshold=0.5), agents, REQUEST, model="content", output_type=dict)
    assert list(result.result) == ["one", "two", "three"]
    assert sorted(result.result.values()) == [0, 1, 2]


def test_routed_coroutines_run_at_the_same_time(run: Run, kind: str) -> None:
    """So do coroutine functions, as tasks of one loop in AsyncClient, in threads otherwise."""
    threads: list[int] = []
    barrier = threading.Barrier(2, timeout=30)
    arrived: list[asyncio.Event] = []

    async def meet() -> str:
        threads.append(threading.get_ident())
        if kind == "sync":
            barrier.wait()
            return "met"
        if not arrived:
            arrived.append(asyncio.Event())
            await arrived[0].wait()
        arrived[0].set()
        return "met"

    agents = [agent(name=name)(meet) for name in ("one", "two")]
    result = run(Router(activation_threshold=0.5), agents, REQUEST, model="content", output_type=dict)
    assert result.result == {"one": "met", "two": "met"}
    assert len(set(threads)) == (2 if kind == "sync" else 1)


def test_nobody_relevant_is_an_empty_map(run: Run) -> None:
    """Below the threshold nothing runs, and the result is empty."""
    agents = [agent(name="one")(lambda: 1), agent(name="two")(lambda: 2)]
    assert run(Router(activation_threshold=0.5), agents, REQUEST).result == {}


def test_a_skipped_agent_is_left_out(run: Run) -> None:
    """An optional agent without its argument is never called, and has no entry in the result."""
    called: list[str] = []

    @agent(optional=True)
    def picky(missing: str) -> None:
        called.append(missing)

    agents = [picky, agent(name="plain")(lambda: 1)]
    result = run(Router(activation_threshold=0.5), agents, REQUEST, model="content", output_type=dict)
    assert result.result == {"plain": 1}
    assert called == []


# --- cascade


def test_a_cascade_stops_at_the_first_answer_that_is_accepted(run: Run) -> None:
    """Cheaper tiers come first; what is accepted is the result, as the agent returned it."""
    tiers = [agent(name="small")(lambda request: {"by": "small"}), agent(name="large")(lambda: {"by": "large"})]
    assert run(Cascade(acceptance_threshold=0.5), tiers, REQUEST, model="content").result == {"by": "small"}
    result = run(Cascade(acceptance_threshold=0.5), tiers, REQUEST)
    assert result.result == {"by": "large"}
    assert [step.action for step in result.steps] == ["start", "start", "done"]


# --- BDI


def test_bdi_pursues_desires_by_the_client_s_beliefs(run: Run) -> None:
    """Conditions may be keys and functions; the desire of the highest priority that is achievable goes first."""
    order: list[str] = []

    @agent(output_key="paid")
    def pay() -> bool:
        order.append("pay")
        return True

    @agent(output_key="shipped")
    def ship() -> bool:
        order.append("ship")
        return True

    desires = [
        Desire(name="ship", agents=[ship], achievable=lambda scope: scope.get("paid", False), satisfied="shipped"),
        Desire(name="pay", agents=[pay], achievable=present("request"), satisfied=belief("is-paid"), priority=5),
    ]
    result = run(Bdi(desires), [pay, ship], REQUEST, beliefs={"is-paid": lambda scope: "paid" in scope})
    assert order == ["pay", "ship"]
    assert result.result is None
    assert result.scope["shipped"] is True


def test_a_belief_that_fails_fails_the_step(run: Run) -> None:
    """It never counts as true or false: the run ends with ConditionFailed, caused by what the belief raised."""

    def broken(scope: Any) -> bool:
        raise ZeroDivisionError

    desires = [Desire(name="d", agents=[write], achievable=broken, satisfied="draft")]
    with pytest.raises(ConditionFailed) as caught:
        run(Bdi(desires), [write], REQUEST)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_inactive_agent_is_no_candidate(run: Run) -> None:
    """Activation conditions decide what may run: a key, or a function."""
    agents = [
        agent(name="off", output_key="off", activation=lambda scope: False)(lambda: 1),
        agent(name="on", output_key="on", activation=present("request"))(lambda: 1),
    ]
    assert run(SCHEDULER, agents, REQUEST).scope.keys() == {"request", "on"}


# --- asynchronous agents


def test_the_planner_goes_on_while_an_async_agent_runs(run: Run) -> None:
    """An async agent may even wait for one that is started after it; the decision that needs its output waits."""
    written = threading.Event()

    @agent(output_key="facts", async_=True)
    def research(request: str) -> str:
        assert written.wait(30)
        return "facts"

    @agent(output_key="draft")
    def signal_and_write(request: str) -> str:
        written.set()
        return "draft"

    planner = Scheduler(goal="g", goal_threshold=0.6, activation_threshold=0.3, excluded_output_keys=["facts"])
    result = run(planner, [research, signal_and_write], REQUEST, output_key="draft")
    assert (result.result, result.scope["facts"]) == ("draft", "facts")
    assert [step.action for step in result.steps].count("start") == 2


def test_a_decision_waits_for_the_outputs_that_it_reads(run: Run) -> None:
    """A pending output in the decision's input is awaited, then reported."""

    @agent(output_key="facts", async_=True)
    async def research(request: str) -> str:
        await asyncio.sleep(0.01)
        return "facts"

    use = agent(name="use", output_key="reply")(lambda facts: facts + "!")
    result = run(SCHEDULER, [research, use], REQUEST, output_key="reply")
    assert result.result == "facts!"
    assert "await" in [step.action for step in result.steps]


def test_a_routed_async_agent_is_in_the_result(run: Run) -> None:
    """A map of results has the outputs that arrived later, never placeholders."""
    slow = agent(name="slow", output_key="s", async_=True)(lambda: "slow")
    fast = agent(name="fast")(lambda: "fast")
    result = run(Router(activation_threshold=0.5), [slow, fast], REQUEST, model="content", output_type=dict)
    assert result.result == {"slow": "slow", "fast": "fast"}
