"""What a function says about itself, and what planners and conditions become on the wire."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict

import pytest

from plannerd_client import (
    Agent,
    AgentContext,
    Bdi,
    Cascade,
    DecisionOptions,
    Desire,
    Key,
    ParentCall,
    Plugin,
    Router,
    Scheduler,
    Suspend,
    agent,
    belief,
    cel,
    human,
    present,
)
from plannerd_client._agents import as_agent
from plannerd_client._definition import define, planner_agent_of
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2

if TYPE_CHECKING:
    from decimal import Decimal

ROUTER = Router()


def init(planner: Any, agents: list[Any], **options: Any) -> planner_pb2.InitRequest:
    planner_agent = planner_agent_of("Desk", ["request"], "reply", dict)
    return define(planner, agents, planner_agent, **{"beliefs": {}, **options}).request


def described(function: Any) -> agent_pb2.Agent:
    return init(ROUTER, [function]).agents[0]


def test_an_agent_is_described_by_its_function() -> None:
    """Name, description, arguments and output type come from the function."""

    @agent(output_key="draft")
    def write(request: str, tone: str = "kind", note: str | None = None, extra: Optional[int] = 3) -> str:  # noqa: UP045
        """Writes a draft,
        on two lines.

        And says more.
        """
        return request + tone + str(note) + str(extra)

    message = described(write)
    assert (message.name, message.id, message.type) == ("write", "", "")
    assert message.text == "Writes a draft, on two lines."
    assert [(a.name, a.optional, a.has_default) for a in message.arguments] == [
        ("request", False, False),
        ("tone", False, True),
        ("note", True, False),
        ("extra", False, True),
    ]
    assert (message.output_key, message.output_type) == ("draft", agent_pb2.OUTPUT_TYPE_TEXT)
    assert write("a") == "akindNone3"
    assert write.__doc__ is not None


def test_an_agent_can_be_described_by_hand() -> None:
    """Every option has its place on the wire."""

    @agent(
        name="Writer",
        description="d",
        id="w",
        type="kind",
        output_key="k",
        output_type=dict,
        async_=True,
        optional=True,
        human=True,
        activation=present("request"),
    )
    def write() -> str:
        return ""

    message = described(write)
    assert (message.name, message.text, message.id, message.type) == ("Writer", "d", "w", "kind")
    assert (message.optional, message.human, getattr(message, "async")) == (True, True, True)
    assert message.output_type == agent_pb2.OUTPUT_TYPE_MAP
    assert message.activation.present_key == "request"


def test_the_context_is_no_argument() -> None:
    """A parameter annotated AgentContext is not declared, whatever its name, and with unreadable annotations too."""

    def look(request: str, me: AgentContext) -> None: ...

    def blind(request: Decimal, me: AgentContext) -> Decimal:
        raise NotImplementedError

    for function in (look, blind):
        assert [argument.name for argument in described(function).arguments] == ["request"]
        bound = as_agent(function).bind({"request": 1}, "context")  # type: ignore[arg-type]
        assert isinstance(bound, functools.partial)
        assert bound.keywords == {"request": 1, "me": "context"}


def test_a_parameter_may_read_another_key() -> None:
    """Key names a scope key that is no Python name, also for parameters that are passed by position only."""

    @agent
    def look(order: Annotated[str, Key("order-id")], /, note: Annotated[str | None, Key("the note")]) -> str:
        return f"{order} {note}"

    arguments = described(look).arguments
    assert [(a.name, a.optional) for a in arguments] == [("order-id", False), ("the note", True)]
    assert look.bind({"order-id": 1, "the note": 2}, "context")() == "1 2"  # type: ignore[arg-type]


def test_arguments_without_names_are_refused() -> None:
    """*args and **kwargs name no keys."""
    for function in (lambda *args: args, lambda **kwargs: kwargs):
        with pytest.raises(TypeError, match="names what it reads"):
            agent(name="x")(function)


def test_a_function_without_a_name_needs_one() -> None:
    """A lambda has to be given a name; a time limit must be positive."""
    with pytest.raises(ValueError, match="give the agent one"):
        as_agent(lambda: 1)
    with pytest.raises(ValueError, match="positive"):
        agent(timeout=0)(test_a_function_without_a_name_needs_one)


class Movie(TypedDict):
    """A typed map."""

    title: str


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (dict[str, int], "MAP"),
        (Movie, "MAP"),
        (str, "TEXT"),
        (Literal["a", "b"], "TEXT"),
        (Literal["a", 1], "ANY"),
        (int, "NUMBER"),
        (float, "NUMBER"),
        (bool, "BOOLEAN"),
        (list[int], "LIST"),
        (tuple[int, int], "LIST"),
        (bytes, "OBJECT"),
        (Agent, "OBJECT"),
        (None, "NONE"),
        (Any, "ANY"),
        (object, "ANY"),
        (str | None, "TEXT"),
        (str | Suspend, "TEXT"),
        (str | int, "ANY"),
        (int | float, "NUMBER"),
        (Annotated[str, "x"], "TEXT"),
    ],
)
def test_output_types_come_from_annotations(hint: Any, expected: str) -> None:
    """The declared output type says what a planner cares about."""

    def one() -> None: ...

    one.__annotations__["return"] = hint
    assert described(one).output_type == agent_pb2.OutputType.Value(f"OUTPUT_TYPE_{expected}")


def test_methods_callables_and_partials_can_be_agents() -> None:
    """Everything that can be called can be an agent."""

    class Desk:
        """A desk."""

        def answer(self, request: str) -> str:
            """Answers."""
            return request

        async def __call__(self, request: str) -> str:
            return request

    assert [a.name for a in described(Desk().answer).arguments] == ["request"]
    assert described(Desk().answer).text == "Answers."
    wrapped = Agent(Desk(), name="desk")
    assert wrapped.is_coroutine
    assert described(wrapped).text == "A desk."
    message = described(Agent(functools.partial(Desk().answer, request="x"), name="partial"))
    assert [(a.name, a.has_default) for a in message.arguments] == [("request", True)]


def test_an_unavailable_description_is_said_to_be() -> None:
    """The agent is declared without text, with the reason."""
    message = described(agent(name="far", description="down", available=False)(lambda: 1))
    assert message.unavailable.message == "down"


def test_a_human_is_an_agent() -> None:
    """It is declared human, with what it reads."""
    message = described(human("approve", output_key="ok", description="Approves.", arguments=["draft"]))
    assert (message.human, message.name, message.text, message.output_key) == (True, "approve", "Approves.", "ok")
    assert [(a.name, a.optional, a.has_default) for a in message.arguments] == [("draft", False, False)]


def test_two_agents_of_one_id_are_refused() -> None:
    """Ids must tell agents apart."""
    with pytest.raises(ValueError, match="two agents"):
        init(ROUTER, [agent(name="a", id="x")(lambda: 1), agent(name="b", id="x")(lambda: 1)])


def test_planners_are_their_messages() -> None:
    """Every field of a configuration is where the contract has it, and what is not given is not set."""
    scheduler = init(
        Scheduler(
            goal="g",
            goal_threshold=0.5,
            activation_threshold=0.25,
            max_invocations=3,
            goal_question_template="{{goal}}?",
            usefulness_question_template="{{name}}?",
            usefulness_levels=["a", "b"],
            excluded_output_keys=["k"],
        ),
        [],
    ).scheduler
    assert (scheduler.goal, scheduler.goal_threshold, scheduler.activation_threshold) == ("g", 0.5, 0.25)
    assert (scheduler.max_invocations, scheduler.goal_question_template) == (3, "{{goal}}?")
    assert scheduler.usefulness_question_template == "{{name}}?"
    assert (list(scheduler.usefulness_levels), list(scheduler.excluded_output_keys)) == (["a", "b"], ["k"])
    router = init(Router(), [])
    assert router.WhichOneof("planner") == "router"
    assert not router.router.HasField("activation_threshold")
    cascade = init(Cascade(acceptance_threshold=0.5, acceptance_criterion="c", grading_question="q"), []).cascade
    assert (cascade.acceptance_threshold, cascade.acceptance_criterion, cascade.grading_question) == (0.5, "c", "q")
    plugin = init(Plugin("mine", {"a": [1]}), []).plugin
    assert (plugin.name, plugin.configuration.entries["a"].list_value.values[0].int_value) == ("mine", 1)
    with pytest.raises(TypeError, match="no planner"):
        init("router", [])


def test_desires_take_keys_functions_and_agents() -> None:
    """A key is short for present(key), a function becomes a belief named after its place, an agent is its type."""

    @agent(type="kind")
    def work() -> None: ...

    desires = [
        Desire(name="a", agents=[work, "other"], achievable="order", satisfied=lambda scope: True, priority=2),
        Desire(name="b", agents=[work], achievable=cel("has(scope.x)"), satisfied=belief("done")),
    ]
    definition = define(
        Bdi(desires, max_invocations=9), [work], planner_agent_of("", [], "", Any), beliefs={"done": lambda scope: True}
    )
    first, second = definition.request.bdi.desires
    assert (first.priority, list(first.agent_types)) == (2, ["kind", "other"])
    assert (first.achievable.present_key, first.satisfied.belief) == ("order", "desire:a:satisfied")
    assert (second.achievable.cel, second.satisfied.belief) == ("has(scope.x)", "done")
    assert sorted(definition.beliefs) == ["desire:a:satisfied", "done"]
    assert definition.request.bdi.max_invocations == 9


def test_options_are_where_the_contract_has_them() -> None:
    """Model, explanations and the parent call travel with Init."""
    options = DecisionOptions(model="m", timeout=1.5, split=True, expected_model="e", strict=True)
    request = init(
        ROUTER, [], model=options, explain="full", include_input=True, max_reply_bytes=9, parent=ParentCall("i", "c")
    )
    decision = request.decision
    assert (decision.model, decision.timeout.ToMilliseconds(), decision.split) == ("m", 1500, True)
    assert (decision.expected_model, decision.strict) == ("e", True)
    assert (request.explain, request.include_input) == (planner_pb2.EXPLAIN_LEVEL_FULL, True)
    assert (request.max_reply_bytes, request.parent.invocation_id, request.parent.call_id) == (9, "i", "c")
    assert init(ROUTER, [], model="m").decision.model == "m"
    assert request.planner_agent.output_type == agent_pb2.OUTPUT_TYPE_MAP
