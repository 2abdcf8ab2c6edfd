"""ListPlanners: pages, and schemas that say what a configuration may look like."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from jsonschema import Draft202012Validator

from plannerd.errors import Reason
from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2
from tests.support.builders import desire
from tests.support.engine import Server, refused

CONFIGURATIONS: dict[str, Message] = {
    "scheduler": planners_pb2.SchedulerConfig(
        goal="g",
        goal_threshold=0.6,
        activation_threshold=0.5,
        max_invocations=3,
        goal_question_template="{{goal}}?",
        usefulness_question_template="{{name}}?",
        usefulness_levels=["no", "yes"],
        excluded_output_keys=["k"],
    ),
    "router": planners_pb2.RouterConfig(
        activation_threshold=0.5, choice_question="who?", relevance_question_template="{{name}}?"
    ),
    "cascade": planners_pb2.CascadeConfig(
        acceptance_threshold=0.5, acceptance_criterion="when it is right", grading_question="right?"
    ),
    "bdi": planners_pb2.BdiConfig(
        desires=[
            desire("d", "a", achievable="x", satisfied="y", priority=-3),
            planners_pb2.Desire(
                name="e",
                priority=2,
                achievable=agent_pb2.Condition(belief="it rains"),
                satisfied=agent_pb2.Condition(cel="has(scope.x)"),
                agent_types=["a", "a"],
            ),
        ],
        max_invocations=7,
    ),
}


async def page(size: int = 0, token: str = "") -> planner_pb2.ListPlannersResponse:
    request = planner_pb2.ListPlannersRequest(page_size=size, page_token=token)
    return await Server().service.ListPlanners(request, CallContext())


async def all_planners() -> dict[str, planner_pb2.PlannerInfo]:
    return {info.name: info for info in (await page()).planners}


async def test_every_planner_is_listed_in_the_order_of_names() -> None:
    """Without a page size the planners come at once, sorted by name, with the server's version."""
    reply = await page()
    assert [info.name for info in reply.planners] == sorted(CONFIGURATIONS)
    assert not reply.next_page_token
    assert reply.server_version == "1.2.3"


async def test_every_planner_says_its_shape_and_the_states_it_can_restore() -> None:
    """Each planner has its topology, and the format versions that this server restores."""
    shapes = {name: info.topology for name, info in (await all_planners()).items()}
    assert shapes == {
        "bdi": planners_pb2.TOPOLOGY_SEQUENCE,
        "cascade": planners_pb2.TOPOLOGY_SEQUENCE,
        "router": planners_pb2.TOPOLOGY_ROUTER,
        "scheduler": planners_pb2.TOPOLOGY_STAR,
    }
    assert all(list(info.state_formats) == [1] for info in (await all_planners()).values())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 2**31 - 1])
async def test_pages_add_up_to_the_whole(size: int) -> None:
    """Whatever the page size, following the tokens gives every planner once, in order, and no page is too large."""
    found: list[str] = []
    reply = await page(size)
    while True:
        assert 0 < len(reply.planners) <= size
        found += [info.name for info in reply.planners]
        if not reply.next_page_token:
            break
        reply = await page(size, reply.next_page_token)
    assert found == sorted(CONFIGURATIONS)


async def test_the_page_size_may_change_on_the_way() -> None:
    """A token says where to go on, whatever the size of the next page."""
    first = await page(1)
    rest = await page(100, first.next_page_token)
    assert [info.name for info in (*first.planners, *rest.planners)] == sorted(CONFIGURATIONS)


@pytest.mark.parametrize(
    "token", ["x", "-1", "99", "4", "1.0", " 1", "\u0661", "9" * 5000, "\ud7ff"], ids=lambda token: ascii(token)[:12]
)
async def test_a_token_that_nobody_gave_out_is_refused(token: str) -> None:
    """A page token that this server can't have given out is refused, whatever it looks like."""
    with refused(Reason.INVALID_REQUEST) as caught:
        await page(1, token)
    assert caught.fields == ["page_token"]


async def test_a_negative_page_size_is_refused() -> None:
    """A page can't have fewer than no entries."""
    with refused(Reason.INVALID_REQUEST) as caught:
        await page(-1)
    assert caught.fields == ["page_size"]


@pytest.mark.parametrize("kind", CONFIGURATIONS)
async def test_a_schema_is_valid_and_accepts_a_full_configuration(kind: str) -> None:
    """Each schema is a valid JSON schema, and accepts the JSON form of a configuration with every field set."""
    schema = json.loads((await all_planners())[kind].configuration_schema)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(MessageToDict(CONFIGURATIONS[kind]))


@pytest.mark.parametrize("kind", CONFIGURATIONS)
async def test_a_schema_refuses_what_no_configuration_has(kind: str) -> None:
    """Each schema refuses unknown fields and values of the wrong type."""
    validator = Draft202012Validator(json.loads((await all_planners())[kind].configuration_schema))
    assert not validator.is_valid({"unknown": 1})
    for name in MessageToDict(CONFIGURATIONS[kind]):
        assert not validator.is_valid({name: {"x": 1}}), name
    assert not validator.is_valid([])


@pytest.mark.parametrize("kind", CONFIGURATIONS)
async def test_a_schema_knows_every_field(kind: str) -> None:
    """A field that the contract gains is in the schema without anybody adding it there."""
    schema = json.loads((await all_planners())[kind].configuration_schema)
    fields = CONFIGURATIONS[kind].DESCRIPTOR.fields
    assert set(schema["properties"]) == {field.json_name for field in fields}
    assert {field.name for field, _ in CONFIGURATIONS[kind].ListFields()} == {field.name for field in fields}
