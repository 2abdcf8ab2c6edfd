"""A resumed invocation may have a changed configuration: what is taken, what is warned of, what is refused."""

from __future__ import annotations

import pytest

from plannerd.errors import Reason
from plannerd.values import PENDING, Value
from plannerd.wire.values import encode_map
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2
from tests.support.builders import agent, output, pending, router, scheduler, skipped, suspended
from tests.support.engine import Client, Server, refused
from tests.support.models import answering

LOOKUP = agent("lookup", "ticket", writes="facts")
EXPERT = agent("expert", "facts", writes="advice")
APPROVER = agent("approver", "advice", writes="approval", human=True)
SYSTEM = scheduler(LOOKUP, EXPERT, APPROVER)
ANSWERS = {"lookup": 3, "expert": 2, "approver": 1.5}


async def running_expert() -> Client:
    """Running the second agent; the first one can't run again."""
    client = await Server(answering(**ANSWERS)).started(SYSTEM)
    await client.next(output(client.call("lookup"), "f1"))
    return client


def resuming(request: planner_pb2.InitRequest, **answers: float) -> Client:
    """A client of a fresh server with another configuration."""
    return Server(answering(**(answers or ANSWERS))).client(request)


def warnings(reply: planner_pb2.InitResponse) -> list[tuple[str, str]]:
    """Codes and agents of the warnings."""
    return [
        (step_pb2.WarningCode.Name(item.code).removeprefix("WARNING_CODE_"), item.agent_id) for item in reply.warnings
    ]


def questions(client: Client) -> list[str]:
    return [question.name for question in client.server.model.asked[-1].questions]


async def test_a_new_agent_takes_part_at_once() -> None:
    """An agent that is new in the resumed configuration is a candidate at the next decision."""
    client = await running_expert()
    other = resuming(scheduler(LOOKUP, EXPERT, APPROVER, agent("newcomer", "ticket")), newcomer=3)
    assert warnings(await other.init(client.state)) == [("CONFIG_CHANGED", "")]
    await other.first({"ticket": "t1", "facts": "f1"})
    await other.next(output(client.call("expert"), "a1"))
    assert questions(other) == ["approver", "newcomer", "goal"]
    assert other.agents == {"newcomer": "outstanding"}


async def test_new_thresholds_count_at_once() -> None:
    """Thresholds and templates are those of the resumed configuration, with a warning, and nothing is decided again."""
    client = await running_expert()
    changed = scheduler(LOOKUP, EXPERT, APPROVER, activation_threshold=0.9, goal="another goal")
    other = resuming(changed)
    await other.init(client.state)
    await other.first({"ticket": "t1", "facts": "f1"})
    assert other.agents == {"expert": "outstanding"}
    await other.next(output(client.call("expert"), "a1"))
    assert "another goal" in other.server.model.asked[0].questions[0].text
    assert other.kind == "done"
    assert other.step.explanation.outcome == step_pb2.STEP_OUTCOME_BELOW_THRESHOLD


async def test_a_lower_maximum_counts_at_once() -> None:
    """A maximum that is used up already by then stops the planner at the next decision, without asking."""
    client = await running_expert()
    other = resuming(scheduler(LOOKUP, EXPERT, APPROVER, max_invocations=1))
    await other.init(client.state)
    await other.first({"ticket": "t1", "facts": "f1"})
    await other.next(output(client.call("expert"), "a1"))
    assert other.kind == "done"
    assert other.server.decisions == 0


async def test_a_dropped_agent_that_ran_is_warned_of_and_forgotten() -> None:
    """An agent that can't run again and is no longer declared is named in a warning."""
    client = await running_expert()
    other = resuming(scheduler(EXPERT, APPROVER))
    assert sorted(warnings(await other.init(client.state))) == [("AGENT_DROPPED", "lookup"), ("CONFIG_CHANGED", "")]
    await other.first({"ticket": "t1", "facts": "f1"})
    await other.next(output(client.call("expert"), "a1"))
    assert other.agents == {"approver": "outstanding"}


async def test_a_dropped_agent_that_is_being_run_is_refused_and_named() -> None:
    """A state whose live call is of an agent that is no longer declared is refused, naming the agent."""
    client = await running_expert()
    other = resuming(scheduler(LOOKUP, APPROVER))
    with refused(Reason.LIVE_AGENT_MISSING) as caught:
        await other.init(client.state)
    assert caught.metadata["agent"] == "expert"
    with refused(Reason.INVOCATION_NOT_FOUND):
        await other.where()


@pytest.mark.parametrize("report", [pending, suspended])
async def test_a_dropped_agent_whose_output_is_on_its_way_is_refused(report: object) -> None:
    """The same goes for calls that are pending or suspended."""
    system = router(agent("a", writes="x", human=True), agent("b", writes="y"), agent("c"))
    client = await Server(answering(a=0.9, b=0.9)).started(system)
    await client.next(report(client.call("a")))  # type: ignore[operator]
    with refused(Reason.LIVE_AGENT_MISSING) as caught:
        await resuming(router(agent("b", writes="y"), agent("c"))).init(client.state)
    assert caught.metadata["agent"] == "a"


async def test_an_agent_whose_description_can_not_be_read_any_more_is_left_out() -> None:
    """A description that became unreadable leaves its agent out from the resume on, with a warning."""
    client = await running_expert()
    gone = agent_pb2.Agent()
    gone.CopyFrom(APPROVER)
    gone.unavailable.SetInParent()
    other = resuming(scheduler(LOOKUP, EXPERT, gone))
    assert ("DESCRIPTION_UNAVAILABLE", "approver$2") in warnings(await other.init(client.state))
    await other.first({"ticket": "t1", "facts": "f1"})
    await other.next(output(client.call("expert"), "a1"))
    assert other.kind == "done", "nobody else can run"
    assert other.server.decisions == 0


async def test_an_agent_that_was_left_out_stays_left_out() -> None:
    """An agent whose description could not be read at first is left out for the rest, even if it can be later."""
    unreadable = agent("expert", "facts", writes="advice", unavailable=True)
    client = await Server(answering(**ANSWERS)).started(scheduler(LOOKUP, unreadable))
    other = resuming(scheduler(LOOKUP, EXPERT))
    await other.init(client.state)
    await other.first({"ticket": "t1"})
    await other.next(output(client.call("lookup"), "f1"), scope={"ticket": "t2"})
    assert questions(other) == ["lookup", "goal"]


async def test_an_agent_of_another_position_is_still_the_same_by_name() -> None:
    """Agents are told by their names: another order of declaration changes nothing but ties."""
    client = await running_expert()
    other = resuming(scheduler(APPROVER, EXPERT, LOOKUP))
    await other.init(client.state)
    await other.first({"ticket": "t1", "facts": "f1"})
    assert other.agents == {"expert": "outstanding"}
    await other.next(output(client.call("expert"), "a1"))
    assert questions(other) == ["approver", "goal"]


async def test_agents_that_share_a_name_are_told_by_their_ids() -> None:
    """Of two agents of one name the one whose id the state has is being run, wherever it is declared."""
    first, second = agent("lookup", "ticket", writes="x", id="one"), agent("lookup", "ticket", writes="y", id="two")
    client = await Server(answering(two=3)).started(scheduler(first, second))
    other = resuming(scheduler(second, first), one=3)
    await other.init(client.state)
    await other.first({"ticket": "t1"})
    assert other.agents == {"two": "outstanding"}
    await other.next(output(client.call("two"), "y1"))
    assert questions(other) == ["one", "goal"]


async def test_another_planner_is_refused() -> None:
    """A state of a scheduler can't be continued by a router."""
    client = await running_expert()
    with refused(Reason.STATE_OF_OTHER_PLANNER):
        await resuming(router(LOOKUP, EXPERT)).init(client.state)


# ---- the planner's own map, without the rest of a state


def bare(invocations: int, blocked: list[Value], current: str | None) -> planner_pb2.InitRequest:
    """A resume from such a map."""
    values: dict[str, Value] = {"invocations": invocations, "cannotRunAgain": blocked, "beingInvoked": current}
    return planner_pb2.InitRequest(planner_map=encode_map(values))


async def from_map(resume: planner_pb2.InitRequest, system: planner_pb2.InitRequest = SYSTEM) -> Client:
    """A client that resumed from a planner map."""
    client = resuming(system)
    await client.init(planner_map=resume.planner_map)
    return client


async def test_a_bare_map_runs_again_what_was_being_run() -> None:
    """From the map alone the agent that was being run runs again, without a decision and not counted again."""
    client = await from_map(bare(1, ["lookup"], "lookup"))
    await client.first({"ticket": "t1"})
    assert client.agents == {"lookup": "outstanding"}
    assert client.server.decisions == 0
    await client.next(output(client.call("lookup"), "f1"))
    assert questions(client) == ["expert", "goal"]


async def test_a_bare_map_between_two_agents_decides() -> None:
    """From a map in which nobody is being run the planner decides; who can't run again can't."""
    client = await from_map(bare(1, ["lookup"], None))
    await client.first({"ticket": "t1", "facts": "f1"})
    assert questions(client) == ["expert", "goal"]


async def test_a_bare_map_of_somebody_who_has_answered_decides_on_the_answer() -> None:
    """If a human was asked and the answer is in the scope, the planner decides on it; else it asks again."""
    resume = bare(3, ["approver", "expert", "lookup"], "approver")
    scope = {"ticket": "t1", "facts": "f1", "advice": "a1"}
    answered = await from_map(resume, scheduler(LOOKUP, EXPERT, APPROVER, agent("closer", "approval")))
    await answered.first({**scope, "approval": "granted"})
    assert questions(answered) == ["closer", "goal"]
    unanswered = await from_map(resume)
    await unanswered.first({**scope, "approval": PENDING})
    assert unanswered.agents == {"approver": "outstanding"}


async def test_a_bare_map_keeps_the_count() -> None:
    """The number of invocations in the map counts against the maximum."""
    client = await from_map(bare(2, ["lookup"], None), scheduler(LOOKUP, EXPERT, max_invocations=2))
    await client.first({"ticket": "t1", "facts": "f1"})
    assert client.server.decisions == 0
    assert client.step.warnings[0].code == step_pb2.WARNING_CODE_MAX_INVOCATIONS


async def test_a_bare_map_with_a_dropped_agent_warns() -> None:
    """A name among those that can't run again that is no longer declared is a warning."""
    client = resuming(SYSTEM)
    reply = await client.init(planner_map=bare(1, ["gone", "lookup"], None).planner_map)
    assert warnings(reply) == [("AGENT_DROPPED", "gone")]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"invocations": 1, "cannotRunAgain": []}, "planner.beingInvoked"),
        ({"invocations": "1", "cannotRunAgain": [], "beingInvoked": None}, "planner.invocations"),
        ({"invocations": -1, "cannotRunAgain": [], "beingInvoked": None}, "planner.invocations"),
        ({"invocations": 1.5, "cannotRunAgain": [], "beingInvoked": None}, "planner.invocations"),
        ({"invocations": True, "cannotRunAgain": [], "beingInvoked": None}, "planner.invocations"),
        ({"invocations": 2**60, "cannotRunAgain": [], "beingInvoked": None}, "planner.invocations"),
        ({"invocations": 1, "cannotRunAgain": "lookup", "beingInvoked": None}, "planner.cannotRunAgain"),
        ({"invocations": 1, "cannotRunAgain": [1], "beingInvoked": None}, "planner.cannotRunAgain"),
        ({"invocations": 1, "cannotRunAgain": ["a", "a"], "beingInvoked": None}, "planner.cannotRunAgain"),
        ({"invocations": 1, "cannotRunAgain": [], "beingInvoked": 3}, "planner.beingInvoked"),
        ({"invocations": 1, "cannotRunAgain": [], "beingInvoked": None, "more": 1}, "planner.more"),
    ],
    ids=range(11),
)
async def test_a_malformed_map_is_refused_with_the_field(values: dict[str, Value], field: str) -> None:
    """A planner map with a field missing, unknown or of the wrong type is refused, naming the field."""
    client = resuming(SYSTEM)
    with refused(Reason.INVALID_EXECUTION_STATE) as caught:
        await client.init(planner_map=encode_map(values))
    assert caught.fields == [field]
    with refused(Reason.INVOCATION_NOT_FOUND):
        await client.where()


async def test_a_map_that_runs_an_agent_that_is_gone_is_refused() -> None:
    """A planner map whose agent being run is not declared is refused, naming the agent."""
    with refused(Reason.LIVE_AGENT_MISSING) as caught:
        await from_map(bare(1, [], "gone"))
    assert caught.metadata["agent"] == "gone"


async def test_a_whole_number_may_be_written_as_a_double() -> None:
    """A client whose language has one number type may write the count as a double."""
    client = resuming(SYSTEM)
    values: dict[str, Value] = {"invocations": 1.0, "cannotRunAgain": ["lookup"], "beingInvoked": "lookup"}
    await client.init(planner_map=encode_map(values))
    await client.first({"ticket": "t1"})
    assert client.agents == {"lookup": "outstanding"}


async def test_a_skip_disarms_an_agent_over_a_resume() -> None:
    """A skipped agent counts as run, in the state as well: it is no candidate after a resume."""
    system = scheduler(agent("a", "ticket"), agent("b", "ticket"))
    client = await Server(answering({"a": 3})).started(system)
    other = resuming(system, a=3, b=2)
    await other.init(client.state)
    await other.first({"ticket": "t1"})
    await other.next(skipped(client.call("a")))
    assert questions(other) == ["b", "goal"]
