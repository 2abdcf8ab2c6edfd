"""One system of each planner, with a human in it, so that an invocation suspends and goes on elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plannerd_client import Bdi, Cascade, Client, Desire, Router, RunResult, Scheduler, Suspend, agent, present

ARGUMENTS = {"ticket": "The kettle leaks, I want my money back"}


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out what the ticket is about."""
    return "refund"


@agent(output_key="reply", human=True)
def approve(ticket: str) -> Suspend:
    """A person writes the reply to the customer."""
    return Suspend("please write", response_id="answer")


@dataclass(frozen=True, slots=True)
class System:
    """A planner and its agents, where the first call goes to `classify` or both, and a human answers the last."""

    planner: Any
    agents: list[Any]
    options: dict[str, Any]


SYSTEMS: dict[str, Callable[[], System]] = {
    "scheduler": lambda: System(
        Scheduler(goal="The customer has a reply", goal_threshold=0.99, activation_threshold=0.01),
        [classify, approve],
        {"output_key": "reply"},
    ),
    "router": lambda: System(Router(activation_threshold=0.001), [classify, approve], {"output_type": dict}),
    "cascade": lambda: System(Cascade(acceptance_threshold=0.999), [classify, approve], {"output_key": "reply"}),
    "bdi": lambda: System(
        Bdi(
            desires=[
                Desire(
                    name="answer",
                    agents=["classify", "approve"],
                    achievable=present("ticket"),
                    satisfied=present("reply"),
                )
            ]
        ),
        [classify, approve],
        {"output_key": "reply"},
    ),
}


def run_over_two(name: str, first: str, second: str, *, stream: bool, **options: Any) -> tuple[RunResult, RunResult]:
    """Run until the human is asked, by the server at `first`; then on from the snapshot, by the one at `second`."""
    system = SYSTEMS[name]()
    options = {**system.options, "explain": "full", **options}
    with Client(first, stream=stream) as client:
        begun = client.run(system.planner, system.agents, ARGUMENTS, **options)
    with Client(second, stream=stream) as client:
        ended = client.run(
            system.planner, system.agents, resume=begun.snapshot, answers={"answer": "We are sorry"}, **options
        )
    return begun, ended
