"""How large execution states are: small, whatever the values are, and in step with the number of agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from plannerd_protos.planner.v1 import agent_pb2, planner_pb2
from tests.support.builders import agent, bdi, cascade, desire, output, router, scheduler
from tests.support.engine import Client, Server
from tests.support.models import FunctionModel

# Names and ids as people give them, and a scope of a kilobyte.
TICKET = {"ticket": "t" * 1024}


def agents(count: int) -> list[agent_pb2.Agent]:
    return [agent(f"assistant-{number}", "ticket", writes=f"answer-{number}") for number in range(count)]


def a_bdi(count: int) -> planner_pb2.InitRequest:
    names = [made.name for made in agents(count)]
    return bdi(
        *agents(count), desires=(desire("work", *names, achievable="ticket", satisfied="never"),), max_invocations=count
    )


SYSTEMS: Mapping[str, Callable[[int], planner_pb2.InitRequest]] = {
    "scheduler": lambda count: scheduler(*agents(count), max_invocations=count),
    "router": lambda count: router(*agents(count)),
    "cascade": lambda count: cascade(*agents(max(count, 2))),
    "bdi": a_bdi,
}
BOUNDS = {1: 750, 5: 1500, 100: 20_000}
"""Bytes, generous: what is measured is in docs/operations.md."""


async def largest_state(planner: str, count: int) -> int:
    """The largest state of an invocation on its way, with every agent called once."""
    # Everybody is useful, nothing is ever good enough.
    model = FunctionModel(lambda number, question: 0.9 if question.startswith("assistant") else 0.1)
    server = Server(model)
    client: Client = await server.started(SYSTEMS[planner](count), TICKET)
    largest = len(client.state.data)
    while client.step.calls:
        await client.next(output(client.step.calls[0].id, "x" * 100))
        largest = max(largest, len(client.state.data))
    return largest


@pytest.mark.parametrize("planner", SYSTEMS)
@pytest.mark.parametrize("count", BOUNDS)
async def test_a_state_is_small(planner: str, count: int) -> None:
    """With 1, 5 and 100 agents a state stays within its bound, all the way."""
    assert 200 < await largest_state(planner, count) < BOUNDS[count]


async def test_a_state_does_not_grow_with_the_steps() -> None:
    """A state after hundreds of steps of one kind is hardly larger than after ten: calls are remembered as runs."""
    names = ["assistant-0", "assistant-1"] * 300
    system = bdi(
        *agents(2), desires=(desire("work", *names, achievable="ticket", satisfied="never"),), max_invocations=600
    )
    client = await Server().started(system, TICKET)
    sizes = []
    for _ in range(500):
        await client.next(output(client.step.calls[0].id, "x"))
        sizes.append(len(client.state.data))
    assert sizes[-1] < sizes[10] + 50


async def test_a_state_does_not_grow_with_the_values() -> None:
    """A megabyte in the scope leaves the state as large as a few characters do."""
    small = await Server(FunctionModel(lambda number, question: 0.9)).started(scheduler(*agents(3)), {"ticket": "t"})
    large = await Server(FunctionModel(lambda number, question: 0.9)).started(
        scheduler(*agents(3)), {"ticket": "t" * (1 << 20)}
    )
    assert len(small.state.data) == len(large.state.data)
