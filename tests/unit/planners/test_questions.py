"""The texts that decision models are asked: templates, defaults, names, and the input they are about."""

from __future__ import annotations

import pytest

from plannerd.decisions.questions import Scale
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2
from tests.support.builders import agent, output, scheduler
from tests.support.engine import Client, Server
from tests.support.models import answering


async def asked(request: planner_pb2.InitRequest) -> dict[str, str]:
    """The questions of a first decision: names and texts, in order."""
    client = await Server().started(request)
    return {question.name: question.text for question in client.server.model.asked[0].questions}


def one(*, name: str = "lookup", text: str | None = None, **config: object) -> planner_pb2.InitRequest:
    """A scheduler with one agent."""
    item = agent(name, "ticket")
    if text is not None:
        item.text = text
    return scheduler(item, **config)  # type: ignore[arg-type]


async def test_the_default_questions() -> None:
    """Without templates the questions are those of the documentation, with name, description and goal put in."""
    assert await asked(one(text="finds customers", goal="all is well")) == {
        "lookup": "How useful would it be to run the agent 'lookup' (finds customers) now, to reach this goal: "
        "all is well?",
        "goal": "Has this goal been reached: all is well?",
    }


@pytest.mark.parametrize("text", [None, "", " \u3000"], ids=ascii)
async def test_an_agent_without_a_description_is_described_by_its_name(text: str | None) -> None:
    """A description that is missing or blank is replaced by the name."""
    questions = await asked(one(text=text, usefulness_question_template="{{description}}?"))
    assert questions["lookup"] == "lookup?"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{name}}", "lookup"),
        ("{{ name }}/{{\tdescription\n}}", "lookup/about"),
        ("{{name}}{{name}} for {{goal}}", "lookuplookup for g"),
        ("{name} {{name}} }} {{", "{name} lookup }} {{"),
        ("\u00a0{{name}}", "\u00a0lookup"),
    ],
)
async def test_a_template_is_filled_in(template: str, text: str) -> None:
    """Each slot is replaced, with and without spaces inside, as often as it occurs; all else stays."""
    questions = await asked(one(text="about", goal="g", usefulness_question_template=template))
    assert questions["lookup"] == text


async def test_values_are_put_in_literally() -> None:
    """What looks like a slot, a group or an escape inside a value stays as it is: one pass, nothing interpreted."""
    goal = r"{{name}} \1 \g<0> $1 {{goal}}"
    questions = await asked(
        one(
            name="{{goal}}",
            text="{{description}}",
            goal=goal,
            usefulness_question_template="{{name}}|{{description}}|{{goal}}",
            goal_question_template="{{goal}}!",
        )
    )
    assert questions == {"{{goal}}": f"{{{{goal}}}}|{{{{description}}}}|{goal}", "goal": f"{goal}!"}


@pytest.mark.parametrize(
    ("names", "goal"),
    [
        (["a"], "goal"),
        (["goal"], "_goal"),
        (["goal", "_goal"], "__goal"),
        (["_goal"], "goal"),
        (["goal", "goal"], "goal"),
    ],
    ids=str,
)
async def test_the_goal_question_has_a_name_of_its_own(names: list[str], goal: str) -> None:
    """The goal question is named `goal`, with underscores in front until no agent's question has that name."""
    questions = list(await asked(scheduler(*(agent(name, "ticket") for name in names))))
    assert questions[-1] == goal
    assert len(questions) == len(set(questions)) == len(names) + 1


async def test_a_name_that_no_candidate_uses_is_avoided_too() -> None:
    """The goal question's name does not change from step to step with the agents that happen to be candidates."""
    system = scheduler(agent("lookup", "ticket"), agent("goal", "facts"))
    assert list(await asked(system)) == ["lookup", "_goal"]


async def test_agents_that_share_a_name_are_asked_about_by_id() -> None:
    """Questions of agents that share a name are named by their ids, while the text keeps the name."""
    system = scheduler(
        agent("lookup", "ticket", text="one"),
        agent("lookup", "ticket", id="second", text="two"),
        agent("expert", "ticket", id="third"),
        usefulness_question_template="{{name}}: {{description}}",
    )
    assert await asked(system) == {
        "lookup$0": "lookup: one",
        "second": "lookup: two",
        "expert": "expert: expert",
        "goal": "Has this goal been reached: the ticket is answered?",
    }


@pytest.mark.parametrize("levels", [[], ["NO", "YES"], ["A", "B", "C"]], ids=len)
async def test_levels_come_in_order(levels: list[str]) -> None:
    """Each usefulness question has the levels of the configuration, lowest first, or the default ones."""
    client = await Server().started(one(usefulness_levels=levels))
    question = client.server.model.asked[0].questions[0]
    assert isinstance(question, Scale)
    assert list(question.levels) == (levels or ["USELESS", "MARGINAL", "USEFUL", "ESSENTIAL"])


async def test_no_question_says_what_the_scope_holds() -> None:
    """Questions are made of the configuration alone: whatever the scope holds, they are the same."""
    system = one(text="{{ticket}}", goal="{{ticket}}")
    first = await Server().started(system, {"ticket": "one"})
    second = await Server().started(system, {"ticket": "two"})
    assert first.server.model.asked[0].questions == second.server.model.asked[0].questions


async def input_names(client: Client) -> list[str]:
    return [field.name for field in client.server.model.asked[-1].input]


async def test_the_input_has_arguments_first_then_outputs_by_their_first_writer() -> None:
    """Arguments come in their own order, also absent ones; outputs that are present follow by first declared writer."""
    system = scheduler(
        agent("a", writes="z"),
        agent("b", writes="y"),
        agent("c", writes="z"),
        agent("d", writes="first"),
        agent("e", writes="x"),
        arguments=("second", "@memory", "first"),
    )
    client = await Server(answering(b=3)).started(system, {"x": 1, "y": 2, "z": 3, "first": 4, "other": 5})
    assert await input_names(client) == ["second", "first", "z", "y", "x"]
    await client.next(output(client.call("b"), None))
    assert await input_names(client) == ["second", "first", "z", "x"]


async def test_excluded_keys_are_left_out_of_the_input_everywhere() -> None:
    """A key that is excluded is not sent, neither as an output nor as an argument of the planner agent."""
    system = scheduler(
        agent("a", "x", writes="x"),
        agent("b", "y", writes="y"),
        arguments=("x", "ticket"),
        excluded_output_keys=["x", "y"],
    )
    client = await Server(answering(a=3)).started(system, {"ticket": "t", "x": 1, "y": 2})
    assert await input_names(client) == ["ticket"]
    assert client.agents == {"a": "outstanding"}


async def test_the_goal_is_not_judged_before_its_result_exists() -> None:
    """Where an agent writes the planner agent's output key, the goal question waits until that key is present."""
    system = scheduler(agent("a", "ticket", writes="x"), agent("b", "x", writes="result"), output_key="result")
    client = await Server(answering(a=3, b=3)).started(system)
    assert [question.name for question in client.server.model.asked[0].questions] == ["a"]
    assert client.step.explanation.goal.result_missing
    await client.next(output(client.call("a"), 1))
    await client.next(output(client.call("b"), 1), scope={"ticket": "t2"})
    assert [question.name for question in client.server.model.asked[-1].questions] == ["a", "goal"]


async def test_an_output_key_that_no_agent_writes_does_not_hold_the_goal_back() -> None:
    """Where nobody writes the planner agent's output key, the goal is judged from the start."""
    system = scheduler(agent("a", "ticket"), output_key="result")
    client = await Server(answering(goal=1)).started(system)
    assert client.kind == "done"


def test_the_builders_make_what_they_say() -> None:
    """The notation for arguments that the tests use means what its documentation says."""
    made = agent("a", "x", "y?", "z=").arguments
    assert list(made) == [
        agent_pb2.Argument(name="x"),
        agent_pb2.Argument(name="y", optional=True),
        agent_pb2.Argument(name="z", has_default=True),
    ]
