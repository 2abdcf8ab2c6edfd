"""What the decision planners share: the arguments as input, unavailable descriptions, refusals."""

from __future__ import annotations

from collections.abc import Iterable

from plannerd.decisions.answers import Answer, Refusal, YesNoAnswer
from plannerd.decisions.questions import Field
from plannerd.errors import PlannerdError, Reason
from plannerd.planners.moves import Warn, WarningCode
from plannerd.planners.planner import View
from plannerd.planners.system import Agent, System


def argument_fields(system: System, view: View) -> tuple[Field, ...]:
    """The planner agent's arguments as input, in declaration order; an absent one is null."""
    return tuple(Field(key, view.value(key)) for key in system.planner_agent.inputs)


def pending_keys(keys: Iterable[str], view: View) -> tuple[str, ...]:
    """Those of `keys` whose values have not arrived yet."""
    return tuple(key for key in keys if view.pending(key))


def has_answered(agent: Agent, view: View) -> bool:
    """Whether the output of `agent` can be read under its output key: present, and not on its way."""
    key = agent.output_key
    return key is not None and view.present(key) and not view.pending(key)


def unavailable_agents(system: System) -> frozenset[int]:
    """The positions of the agents whose descriptions can't be read."""
    return frozenset(position for position, agent in enumerate(system.agents) if agent.unavailable)


def unavailable_warnings(system: System, agents: Iterable[int]) -> tuple[Warn, ...]:
    """A warning for each of `agents`, which are left out as their descriptions can't be read."""
    return tuple(
        Warn(
            WarningCode.DESCRIPTION_UNAVAILABLE,
            f"The description of '{system.agents[position].name}' can't be read; it is left out for the rest of "
            "the invocation.",
            system.agents[position].id,
        )
        for position in sorted(agents)
    )


def refused(question: str, what: str) -> PlannerdError:
    """The model declined to answer a question whose answer is needed: it did not say `what`."""
    return PlannerdError(
        Reason.DECISION_REFUSED,
        f"The decision model declined to say {what}. The step did not happen.",
        metadata={"question": question},
    )


def probability(answer: Answer, question: str, what: str) -> float:
    """The probability of "yes" in the answer to `question`.

    Raises:
        PlannerdError: DECISION_REFUSED.
    """
    match answer:
        case YesNoAnswer(probability=value):
            return value
        case Refusal():
            raise refused(question, what)
        case other:
            raise TypeError(f"a yes/no question was answered by {type(other).__name__}")
