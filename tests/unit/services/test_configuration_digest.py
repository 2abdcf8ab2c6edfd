"""The digest of a configuration: it tells whether an invocation goes on with the configuration it was started with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, step_pb2
from tests.support.builders import Scope, agent, argument, bdi, cascade, desire, router, scheduler
from tests.support.engine import Server
from tests.support.models import answering

SCHEDULER = scheduler(agent("a", "ticket", "x?", writes="k"), agent("b", when_present="k"), excluded_output_keys=["k"])
ROUTER = router(agent("a", "ticket"), agent("b"))
CASCADE = cascade(agent("a", "ticket"), agent("b"))
BDI = bdi(agent("a"), agent("b"), desires=(desire("d", "a", "b", achievable="go", satisfied="end"),))
SCOPE: Scope = {"ticket": "t1", "go": True}

Edit = Callable[[planner_pb2.InitRequest], object]


async def config_changed(before: planner_pb2.InitRequest, after: planner_pb2.InitRequest) -> bool:
    """Whether a state of one configuration is resumed with a warning by another one."""
    model = answering({"decision-agent": "a"}, a=1, b=1)
    client = await Server(model).started(before, SCOPE)
    resumed = Server(answering()).client(after)
    reply = await resumed.init(client.state)
    codes = {warning.code for warning in reply.warnings}
    assert codes <= {step_pb2.WARNING_CODE_CONFIG_CHANGED}
    return bool(codes)


def edited(
    request: planner_pb2.InitRequest, edit: Callable[[planner_pb2.InitRequest], object]
) -> planner_pb2.InitRequest:
    """A copy of a request, edited."""
    copy = planner_pb2.InitRequest()
    copy.CopyFrom(request)
    edit(copy)
    return copy


def spell_out_agents(request: planner_pb2.InitRequest) -> None:
    """Ids, types and output types as they are by default."""
    request.planner_agent.output_type = agent_pb2.OUTPUT_TYPE_ANY
    for position, item in enumerate(request.agents):
        item.id = f"{item.name}${position}"
        item.type = item.name
        item.output_type = agent_pb2.OUTPUT_TYPE_ANY


def spell_out_scheduler(request: planner_pb2.InitRequest) -> None:
    """The options of a scheduler as they are by default."""
    request.scheduler.max_invocations = 10
    request.scheduler.goal_question_template = "Has this goal been reached: {{goal}}?"
    request.scheduler.usefulness_question_template = (
        "How useful would it be to run the agent '{{name}}' ({{description}}) now, to reach this goal: {{goal}}?"
    )
    request.scheduler.usefulness_levels[:] = ["USELESS", "MARGINAL", "USEFUL", "ESSENTIAL"]


def spell_out_router(request: planner_pb2.InitRequest) -> None:
    """The options of a router as they are by default."""
    request.router.choice_question = "Which agent is best suited to handle this request?"


def spell_out_cascade(request: planner_pb2.InitRequest) -> None:
    """The options of a cascade as they are by default."""
    request.cascade.grading_question = "Does the answer fully and correctly address the request?"


def spell_out_bdi(request: planner_pb2.InitRequest) -> None:
    """The options of a BDI planner as they are by default."""
    request.bdi.max_invocations = 50


@pytest.mark.parametrize("request_", [SCHEDULER, ROUTER, CASCADE, BDI], ids=["scheduler", "router", "cascade", "bdi"])
async def test_the_same_configuration_is_no_change(request_: planner_pb2.InitRequest) -> None:
    """A state is resumed without a warning by the configuration that it was made with."""
    assert not await config_changed(request_, request_)


@pytest.mark.parametrize(
    ("request_", "edit"),
    [
        (SCHEDULER, spell_out_agents),
        (SCHEDULER, spell_out_scheduler),
        (ROUTER, spell_out_router),
        (CASCADE, spell_out_cascade),
        (BDI, spell_out_bdi),
        (BDI, spell_out_agents),
    ],
    ids=["agents", "scheduler", "router", "cascade", "bdi", "agents of bdi"],
)
async def test_defaults_that_are_spelt_out_are_no_change(request_: planner_pb2.InitRequest, edit: Edit) -> None:
    """A configuration means the same whether its defaults are spelt out or not."""
    assert not await config_changed(request_, edited(request_, edit))


DIFFERENCES: dict[str, Edit] = {
    "goal": lambda r: setattr(r.scheduler, "goal", "another"),
    "goal threshold": lambda r: setattr(r.scheduler, "goal_threshold", 0.7),
    "activation threshold": lambda r: setattr(r.scheduler, "activation_threshold", 0.6),
    "maximum": lambda r: setattr(r.scheduler, "max_invocations", 11),
    "goal question": lambda r: setattr(r.scheduler, "goal_question_template", "{{goal}}?"),
    "usefulness question": lambda r: setattr(r.scheduler, "usefulness_question_template", "{{name}}?"),
    "levels": lambda r: r.scheduler.usefulness_levels.extend(["NO", "YES"]),
    "excluded keys": lambda r: r.scheduler.ClearField("excluded_output_keys"),
    "another argument of the planner agent": lambda r: r.planner_agent.arguments.append(argument("more")),
    "output key of the planner agent": lambda r: setattr(r.planner_agent, "output_key", "k2"),
    "description": lambda r: setattr(r.agents[1], "text", "what it does"),
    "output key": lambda r: setattr(r.agents[1], "output_key", "more"),
    "optional agent": lambda r: setattr(r.agents[1], "optional", True),
    "key of a condition": lambda r: setattr(r.agents[1].activation, "present_key", "other"),
    "kind of a condition": lambda r: setattr(r.agents[1].activation, "belief", "k"),
    "no condition": lambda r: r.agents[1].ClearField("activation"),
    "mandatory argument": lambda r: setattr(r.agents[0].arguments[1], "optional", False),
    "name of an argument": lambda r: setattr(r.agents[0].arguments[1], "name", "y"),
    "another agent": lambda r: r.agents.append(agent("c")),
    "an agent less": lambda r: r.agents.pop(),
}


@pytest.mark.parametrize("name", DIFFERENCES)
async def test_any_other_difference_is_a_change(name: str) -> None:
    """A difference in any option, in the planner agent or in any agent is warned of on resume, and taken."""
    assert await config_changed(SCHEDULER, edited(SCHEDULER, DIFFERENCES[name]))


async def test_another_wording_of_the_same_templates_is_a_change() -> None:
    """A template counts by its text: what the decision model reads decides."""
    other = edited(
        SCHEDULER, lambda r: setattr(r.scheduler, "goal_question_template", "Has this been reached: {{goal}}?")
    )
    assert await config_changed(SCHEDULER, other)


async def test_options_beside_the_planner_are_no_part_of_the_configuration() -> None:
    """How much is explained, or which model is asked, may change without a warning about the configuration."""
    other = edited(SCHEDULER, lambda r: setattr(r, "explain", planner_pb2.EXPLAIN_LEVEL_NONE))
    assert not await config_changed(SCHEDULER, other)
