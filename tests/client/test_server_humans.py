"""Humans and others who answer from outside, against a real server and by both clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plannerd_client import (
    AlreadyAnswered,
    Router,
    RunStatus,
    Snapshot,
    Suspend,
    UnknownAnswer,
    agent,
    human,
)
from tests.client.conftest import Plannerd, Run, runs
from tests.client.story import PATIENT, REQUEST, SCHEDULER, Log

ROUTER = Router(activation_threshold=0.5)

Servers = Callable[[], Plannerd]


def approval(log: Log) -> list[Any]:
    approve = human("approve", output_key="approved", arguments=["draft"], request="May it be sent?")
    return [log.agent("draft", "request"), approve, log.agent("sent", "approved")]


@pytest.mark.parametrize("lost", [False, True])
def test_a_human_answers_another_process_later(kind: str, own_servers: Servers, lost: bool) -> None:
    """The run suspends; with the snapshot and the answer it goes on anywhere, also on a server that knows nothing."""
    server, log = own_servers(), Log()
    run = runs(kind, target=server.target, retry=PATIENT)
    first = run(SCHEDULER, approval(log), REQUEST, output_key="sent")
    assert first.status is RunStatus.SUSPENDED
    assert first.snapshot is not None
    (question,) = first.suspensions
    assert (question.agent, question.request) == ("approve$1", "May it be sent?")
    assert question.arguments == {"draft": "draft of Where is my order?"}
    snapshot = Snapshot.loads(first.snapshot.dumps())
    if lost:
        server.restart()
    run = runs(kind, target=server.target, retry=PATIENT)
    second = run(SCHEDULER, approval(log), resume=snapshot, answers={question.response_id: "yes"})
    assert second.result == "sent of yes"
    assert log.calls == ["draft", "sent"]


def test_resuming_without_an_answer_changes_nothing(run: Run) -> None:
    """The run suspends again with the same ids, as often as one likes, and can still be answered."""
    log = Log()
    result = run(SCHEDULER, approval(log), REQUEST, output_key="sent")
    again = run(SCHEDULER, approval(log), resume=result.snapshot)
    assert again.suspensions == result.suspensions
    third = run(SCHEDULER, approval(log), resume=again.snapshot)
    assert third.suspensions == result.suspensions
    answers = {result.suspensions[0].response_id: "yes"}
    assert run(SCHEDULER, approval(log), resume=third.snapshot, answers=answers).result == "sent of yes"


def test_one_snapshot_can_be_resumed_again_while_nothing_was_answered(run: Run) -> None:
    """Resuming is no step: whoever died after it, or threw the newer snapshot away, can resume from the old one."""
    log = Log()
    result = run(SCHEDULER, approval(log), REQUEST, output_key="sent")
    for _ in range(2):
        again = run(SCHEDULER, approval(log), resume=result.snapshot)
        assert again.suspensions == result.suspensions


def test_several_humans_answer_one_by_one(run: Run) -> None:
    """Each answer is kept; the run suspends until the last one; wrong and repeated answers are refused."""
    agents = [human("left", output_key="l"), human("right", output_key="r"), agent(name="plain")(lambda: 1)]
    options: dict[str, Any] = {"model": "content", "output_type": dict}
    first = run(ROUTER, agents, REQUEST, **options)
    ids = {one.agent: one.response_id for one in first.suspensions}
    assert sorted(ids) == ["left$0", "right$1"]
    with pytest.raises(UnknownAnswer):
        run(ROUTER, agents, resume=first.snapshot, answers={"nobody": 1})
    second = run(ROUTER, agents, resume=first.snapshot, answers={ids["left$0"]: "L"}, model="content")
    assert [one.agent for one in second.suspensions] == ["right$1"]
    with pytest.raises(AlreadyAnswered):
        run(ROUTER, agents, resume=second.snapshot, answers={ids["left$0"]: "other"}, model="content")
    last = run(ROUTER, agents, resume=second.snapshot, answers={ids["right$1"]: "R"}, model="content")
    assert last.result == {"left": "L", "right": "R", "plain": 1}


def test_an_async_agent_may_be_answered_from_outside(run: Run) -> None:
    """The planner goes on without it; the run suspends when its output is needed, and takes the answer later."""
    log = Log()
    outside = agent(name="outside", output_key="facts", async_=True)(lambda request: Suspend("which?"))
    agents = [outside, log.agent("other", "request"), log.agent("reply", "facts")]
    planner = replace(SCHEDULER, excluded_output_keys=["facts"])
    first = run(planner, agents, REQUEST, output_key="reply")
    assert first.status is RunStatus.SUSPENDED
    assert log.calls == ["other"]
    second = run(planner, agents, resume=first.snapshot, answers={first.suspensions[0].response_id: "these"})
    assert second.result == "reply of these"
