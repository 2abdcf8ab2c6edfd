"""How much one Init may bring."""

from __future__ import annotations

import pytest

from plannerd.errors import PlannerdError, Reason
from plannerd.services.codec.configuration import InitLimits, decode_init
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2

EXPRESSION = "scope.x > 1"


def init() -> planner_pb2.InitRequest:
    """Three expressions: an activation, and the two conditions of a desire."""
    condition = agent_pb2.Condition(cel=EXPRESSION)
    desire = planners_pb2.Desire(name="d", achievable=condition, satisfied=condition, agent_types=["a"])
    return planner_pb2.InitRequest(
        invocation_id="i",
        bdi=planners_pb2.BdiConfig(desires=[desire]),
        agents=[agent_pb2.Agent(name="a", activation=condition)],
    )


def test_as_many_characters_as_allowed_are_accepted() -> None:
    """Expressions of exactly as many characters as the limit are compiled."""
    assert (
        decode_init(init(), "", InitLimits(max_cel_characters=3 * len(EXPRESSION))).configuration.agents[0].activation
        is not None
    )


def test_one_character_more_is_refused_before_anything_is_compiled() -> None:
    """One character more is LIMIT_EXCEEDED, which names the limit; all expressions of an Init count together."""
    with pytest.raises(PlannerdError) as raised:
        decode_init(init(), "", InitLimits(max_cel_characters=3 * len(EXPRESSION) - 1))
    assert raised.value.reason is Reason.LIMIT_EXCEEDED
    assert raised.value.metadata == {"limit": "max_cel_characters", "allowed": "32", "requested": "33"}


def test_parts_are_counted_together() -> None:
    """Arguments, desires and their agents count together, to the limit and not beyond."""
    request = init()
    request.agents[0].arguments.add(name="x")
    assert decode_init(request, "", InitLimits(max_parts=3)).configuration.planner is not None
    with pytest.raises(PlannerdError) as raised:
        decode_init(request, "", InitLimits(max_parts=2))
    assert raised.value.metadata == {"limit": "max_parts", "allowed": "2", "requested": "3"}
