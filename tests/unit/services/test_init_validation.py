"""Init refuses what can't work, and says all of it at once, each problem with the path of its field."""

from __future__ import annotations

from typing import Any

import pytest

from plannerd.errors import Reason
from plannerd.services.codec.configuration import InitLimits
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2
from tests.support.builders import agent, bdi, cascade, changed, desire, router, scheduler
from tests.support.engine import Server, refused
from tests.support.models import answering

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts"), output_key="facts")


async def problems_of(request: planner_pb2.InitRequest) -> set[str]:
    """The paths of the fields that an Init complains about."""
    with refused(Reason.INVALID_CONFIGURATION) as caught:
        await Server().client(request).init()
    assert caught.error.violations[0].field in caught.error.message
    assert all(violation.problem for violation in caught.error.violations)
    return set(caught.fields)


async def accepted(request: planner_pb2.InitRequest) -> planner_pb2.InitResponse:
    return await Server().client(request).init()


def options(**config: object) -> planner_pb2.InitRequest:
    """SYSTEM with other options."""
    request = planner_pb2.InitRequest()
    request.CopyFrom(SYSTEM)
    for name, value in config.items():
        field = request.scheduler.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated:
            getattr(request.scheduler, name)[:] = value
        elif value is None:
            request.scheduler.ClearField(name)  # type: ignore[arg-type]
        else:
            setattr(request.scheduler, name, value)
    return request


# ---- one at a time


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("goal", None),
        ("goal", " \u3000"),
        *(("goal_threshold", bad) for bad in (None, 0.0, 1.0, -0.1, 1.5, float("nan"), float("inf"), float("-inf"))),
        *(("activation_threshold", bad) for bad in (None, 0.0, 1.0, -5.0, float("nan"))),
        ("max_invocations", 0),
        ("max_invocations", -1),
        ("goal_question_template", ""),
        ("goal_question_template", "\u2003"),
        ("goal_question_template", "Is {{name}} done?"),
        ("goal_question_template", "Is {{ Goal }} reached?"),
        ("goal_question_template", "{{}}"),
        ("usefulness_question_template", "How useful is it?"),
        ("usefulness_question_template", "How useful is it for {{goal}}?"),
        ("usefulness_question_template", "{{name}} for {{other}}?"),
        ("usefulness_levels", ["ONLY"]),
    ],
    ids=str,
)
async def test_a_bad_option_of_the_scheduler_is_refused(name: str, value: object) -> None:
    """A missing goal, thresholds outside of (0, 1), a maximum below 1, and bad templates and levels are refused."""
    assert await problems_of(options(**{name: value})) == {f"scheduler.{name}"}


async def test_a_blank_level_is_refused_with_its_place() -> None:
    """No level may be blank."""
    assert await problems_of(options(usefulness_levels=["NO", " ", "YES", ""])) == {
        "scheduler.usefulness_levels[1]",
        "scheduler.usefulness_levels[3]",
    }


@pytest.mark.parametrize(
    "config",
    [
        {"goal_threshold": 5e-324, "activation_threshold": 0.9999999999999999},
        {"max_invocations": 1},
        {"goal_question_template": "Done?"},
        {"usefulness_question_template": "{{ name }} or {{\tdescription\n}}, {{goal}}? {single} }} {{"},
        {"usefulness_levels": ["SAME", "SAME"]},
        {"excluded_output_keys": []},
    ],
    ids=str,
)
async def test_an_unusual_option_of_the_scheduler_is_accepted(config: dict[str, object]) -> None:
    """Thresholds at the edges, a goal question without the goal, and spaces inside slots are fine."""
    await accepted(options(**config))


async def test_keys_that_can_not_be_excluded_are_refused() -> None:
    """Only output keys of agents may be excluded, and never the planner agent's own."""
    request = options(excluded_output_keys=["facts", "ticket", "nothing"])
    assert await problems_of(request) == {f"scheduler.excluded_output_keys[{place}]" for place in range(3)}


async def test_excluding_every_argument_is_allowed() -> None:
    """An argument that is an agent's output key may be excluded, even if it is the only one."""
    await accepted(scheduler(agent("a", writes="ticket"), agent("b", writes="x"), excluded_output_keys=["ticket"]))


@pytest.mark.parametrize("arguments", [(), ("@memory",), ("@a", "@b")])
@pytest.mark.parametrize("make", [scheduler, router, cascade])
async def test_an_untyped_planner_agent_is_refused(make: object, arguments: tuple[str, ...]) -> None:
    """The decision planners need an argument that is not the framework's."""
    request = make(agent("a"), agent("b"), arguments=arguments)  # type: ignore[operator]
    assert await problems_of(request) == {"planner_agent.arguments"}


@pytest.mark.parametrize("make", [scheduler, router, cascade])
async def test_no_agents_are_refused(make: object) -> None:
    """No planner can do anything without subagents."""
    assert "agents" in await problems_of(make())  # type: ignore[operator]


async def test_no_agents_are_refused_for_bdi() -> None:
    """A BDI planner without subagents is refused like any other."""
    assert "agents" in await problems_of(bdi(desires=(desire("d", "a", achievable="x", satisfied="y"),)))


@pytest.mark.parametrize(
    ("agents", "problems"),
    [
        ((agent(""),), {"agents[0].name"}),
        ((agent("a"), agent("\u00a0")), {"agents[1].name"}),
        ((agent("a", id="x"), agent("b", id="x")), {"agents[1].id"}),
        ((agent("a"), agent("b", id="a$0")), {"agents[1].id"}),
        ((agent("a"), agent("b", id="a")), {"agents[1].id"}),
        ((agent("a", id="b"), agent("b")), {"agents[0].id"}),
        ((agent("a$1"), agent("a")), {"agents[1].id"}),
        ((agent("a", id="a"), agent("a")), {"agents[0].id"}),
        ((agent("a", "x", "y", "x"),), {"agents[0].arguments[2].name"}),
        ((agent("a", "x", "x?"),), {"agents[0].arguments[1].name"}),
        ((agent("a", ""),), {"agents[0].arguments[0].name"}),
        ((agent("a", async_=True),), {"agents[0].output_key"}),
        ((agent("a", human=True),), {"agents[0].output_key"}),
        ((agent("a", when_believed=" "),), {"agents[0].activation.belief"}),
        ((agent("a", when_present=" "),), {"agents[0].activation.present_key"}),
        ((agent("a", writes=" "),), {"agents[0].output_key"}),
    ],
    ids=range(16),
)
async def test_a_bad_agent_is_refused(agents: tuple[agent_pb2.Agent, ...], problems: set[str]) -> None:
    """Blank names, ids that collide, arguments declared twice, and delayed outputs without a key are refused."""
    assert await problems_of(scheduler(*agents)) == problems


@pytest.mark.parametrize(
    "agents",
    [
        (agent("a"), agent("a")),
        (agent("a", id="a"), agent("b")),
        (agent("a", id="x"), agent("a", id="y")),
        (agent("a", type="t"), agent("b", type="t")),
        (agent("a", "@x", "x"), agent("b", writes="x"), agent("c", writes="x")),
    ],
    ids=["names", "id is the name", "ids", "types", "output keys"],
)
async def test_an_unusual_system_is_accepted(agents: tuple[agent_pb2.Agent, ...]) -> None:
    """Agents may share names, types and output keys, and an id may be the agent's own name."""
    await accepted(scheduler(*agents))


async def test_a_blank_output_key_of_the_planner_agent_is_refused() -> None:
    """No key of the scope may be blank, so nothing could ever stand under a blank output key."""
    assert await problems_of(scheduler(agent("a"), output_key="\t")) == {"planner_agent.output_key"}


# ---- all at once


async def test_all_problems_are_listed_at_once() -> None:
    """A client sees everything that is wrong with its Init in one answer: options, planner agent and agents."""
    request = scheduler(
        agent("a", "x", "x"),
        agent(" ", async_=True),
        agent("c", id="a"),
        arguments=("@memory",),
        goal=" ",
        goal_threshold=None,
        activation_threshold=1.0,
        max_invocations=0,
        usefulness_levels=["ONE"],
        goal_question_template="{{x}}",
        usefulness_question_template=" ",
        excluded_output_keys=["nothing"],
    )
    assert await problems_of(request) == {
        "scheduler.goal",
        "scheduler.goal_threshold",
        "scheduler.activation_threshold",
        "scheduler.max_invocations",
        "scheduler.usefulness_levels",
        "scheduler.goal_question_template",
        "scheduler.usefulness_question_template",
        "scheduler.excluded_output_keys[0]",
        "planner_agent.arguments",
        "agents[0].arguments[1].name",
        "agents[1].name",
        "agents[1].output_key",
        "agents[2].id",
    }


async def test_all_problems_of_a_router_are_listed_at_once() -> None:
    """A router's problems come in one answer, too."""
    request = router(
        agent("a"), agent("a"), agent(""), arguments=(), threshold=2.0, choice_question=" ",
        relevance_question_template="{{goal}}",
    )  # fmt: skip
    request.planner_agent.output_type = agent_pb2.OUTPUT_TYPE_TEXT
    assert await problems_of(request) == {
        "router.activation_threshold",
        "router.choice_question",
        "router.relevance_question_template",
        "planner_agent.arguments",
        "planner_agent.output_type",
        "agents[1].name",
        "agents[2].name",
    }


async def test_all_problems_of_a_cascade_are_listed_at_once() -> None:
    """A cascade's problems come in one answer, too."""
    request = cascade(agent("a", "x", "x"), arguments=("candidateAnswer",), threshold=0.0, acceptance_criterion=" ")
    assert await problems_of(request) == {
        "cascade.acceptance_threshold",
        "cascade.acceptance_criterion",
        "planner_agent.arguments[0].name",
        "agents",
        "agents[0].arguments[1].name",
    }


async def test_all_problems_of_a_bdi_planner_are_listed_at_once() -> None:
    """A BDI planner's problems come in one answer, too."""
    request = bdi(
        agent("a"),
        agent("b", type="a"),
        desires=(
            desire("d", "a", "z", achievable="x", satisfied="y"),
            desire("d", achievable="x", satisfied=" "),
            planners_pb2.Desire(name=" ", agent_types=["a"]),
        ),
        max_invocations=0,
    )
    assert await problems_of(request) == {
        "bdi.max_invocations",
        "bdi.desires[0].agent_types[1]",
        "bdi.desires[1].name",
        "bdi.desires[1].agent_types",
        "bdi.desires[1].satisfied.present_key",
        "bdi.desires[2].name",
        "bdi.desires[2].achievable",
        "bdi.desires[2].satisfied",
        "agents[1].type",
    }


# ---- what is wrong with the request itself


@pytest.mark.parametrize(
    "invocation_id", ["", " ", " i", "i\t", "a\nb", "\u00a0i", "x" * 129, "\u0000", "a\u2028b"], ids=ascii
)
async def test_an_id_that_can_not_be_one_is_refused(invocation_id: str) -> None:
    """An id has 1 to 128 printable characters without spaces at either end, in every request."""
    client = Server().client(SYSTEM, invocation_id)
    for attempt in (client.init, client.first, client.next, client.where, client.end):
        with refused(Reason.INVALID_REQUEST) as caught:
            await attempt()
        assert caught.fields == ["invocation_id"]


@pytest.mark.parametrize("invocation_id", ["i", "x" * 128, "a b", "\u00e4\U0001f600/..%00"], ids=ascii)
async def test_an_unusual_id_is_accepted(invocation_id: str) -> None:
    """Any printable characters will do."""
    await Server(answering(lookup=3)).started(SYSTEM, invocation_id=invocation_id)


async def test_a_planner_must_be_chosen() -> None:
    """An Init without a planner is refused."""
    request = planner_pb2.InitRequest(agents=[agent("a")])
    with refused(Reason.INVALID_REQUEST) as caught:
        await Server().client(request).init()
    assert caught.fields == ["planner"]


async def test_an_unknown_planner_is_not_found() -> None:
    """A plug-in that this server does not have is named in the error."""
    request = planner_pb2.InitRequest(plugin=planners_pb2.PluginConfig(name="magic"), agents=[agent("a")])
    with refused(Reason.PLANNER_NOT_FOUND) as caught:
        await Server().client(request).init()
    assert caught.metadata == {"planner": "magic"}


async def test_an_unknown_decision_model_is_not_found() -> None:
    """A model that this server does not have is refused at Init, naming those that it has."""
    request = changed(SYSTEM, decision=planner_pb2.DecisionOptions(model="magic"))
    with refused(Reason.DECISION_MODEL_NOT_FOUND) as caught:
        await Server().client(request).init()
    assert "test" in caught.error.message


async def test_an_empty_condition_is_refused_with_its_path() -> None:
    """An activation that says nothing is refused."""
    bad = agent("b")
    bad.activation.SetInParent()
    with refused(Reason.INVALID_REQUEST, Reason.INVALID_CONDITION, Reason.INVALID_CONFIGURATION) as caught:
        await Server().client(scheduler(agent("a"), bad)).init()
    assert caught.fields == ["agents[1].activation"]


async def test_too_many_agents_are_refused() -> None:
    """The number of agents is bounded by the server, and the error names the limit."""
    server = Server(init_limits=InitLimits(max_agents=3))
    with refused(Reason.LIMIT_EXCEEDED) as caught:
        await server.client(scheduler(*(agent(f"a{number}") for number in range(4)))).init()
    assert caught.metadata == {"limit": "max_agents", "allowed": "3", "requested": "4"}
    await server.client(scheduler(*(agent(f"a{number}") for number in range(3)))).init()


@pytest.mark.parametrize(
    "fields",
    [
        {"max_reply_bytes": -1},
        {"decision": planner_pb2.DecisionOptions(strict=True)},
        {"explain": 9},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_other_fields_are_checked(fields: dict[str, Any]) -> None:
    """A negative size, strictness without an expectation, and an unknown level of explanation are refused."""
    with refused(Reason.INVALID_REQUEST) as caught:
        await Server().client(SYSTEM).init(**fields)
    assert caught.fields[0].startswith(next(iter(fields)))


# ---- the expected model


async def test_another_model_than_expected_is_a_warning() -> None:
    """Where another model answers than the thresholds were tuned on, the step says so and happens."""
    client = Server(answering(lookup=3)).client(SYSTEM)
    await client.init(decision=planner_pb2.DecisionOptions(expected_model="tuned-on-this"))
    await client.first({"ticket": "t1"})
    assert "tuned-on-this" in client.step.warnings[0].message


async def test_another_model_than_expected_is_an_error_if_strict() -> None:
    """With strict the step fails instead, and nothing happens."""
    client = Server(answering(lookup=3)).client(SYSTEM)
    await client.init(decision=planner_pb2.DecisionOptions(expected_model="tuned-on-this", strict=True))
    with refused(Reason.DECISION_MODEL_UNEXPECTED):
        await client.first({"ticket": "t1"})
    with refused(Reason.OUT_OF_ORDER):
        await client.where()


async def test_the_expected_model_is_no_warning() -> None:
    """Where the expected model answers, there is nothing to warn of."""
    client = Server(answering(lookup=3)).client(SYSTEM)
    await client.init(decision=planner_pb2.DecisionOptions(expected_model="fixed", strict=True))
    await client.first({"ticket": "t1"})
    assert not client.step.warnings
