"""The options of the decision router, their defaults and checks.

Source: the documentation of LangChain4j's DecisionRouterPlanner; docs/planners/router.md says what goes beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plannerd.planners.system import Agent, OutputType, Problems, System, check_typed
from plannerd.planners.templates import Template, check_template
from plannerd.planners.thresholds import check_threshold

DEFAULT_CHOICE_QUESTION: Final = "Which agent is best suited to handle this request?"
DEFAULT_RELEVANCE_QUESTION: Final = "Should the agent '{{name}}' ({{description}}) handle this request?"
RELEVANCE_WITHOUT_DESCRIPTION: Final = "Should the agent '{{name}}' handle this request?"


@dataclass(frozen=True, slots=True)
class RouterOptions:
    """The options as a client sets them; None is the default.

    Attributes:
        activation_threshold: None: the one agent that is chosen runs. Else all agents whose probability
            reaches it, in (0, 1), run in parallel.
        choice_question: the text of the choice question.
        relevance_question: template with {{name}} or {{description}}.
    """

    activation_threshold: float | None = None
    choice_question: str | None = None
    relevance_question: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options with defaults filled in; `threshold` None: one agent is chosen."""

    threshold: float | None
    choice_question: str
    relevance_question: Template | None

    def relevance(self, agent: Agent) -> str:
        """The yes/no question about one agent."""
        template = self.relevance_question
        if template is None:
            default = RELEVANCE_WITHOUT_DESCRIPTION if agent.description is None else DEFAULT_RELEVANCE_QUESTION
            template = Template(default)
        return template.render({"name": agent.name, "description": agent.described})


def check_options(options: RouterOptions, system: System, problems: Problems) -> CheckedOptions:
    """The options with defaults filled in; what can't work is noted in `problems`."""
    if options.choice_question is not None:
        check_template(options.choice_question, "router.choice_question", problems, allowed=())
    relevance = None
    if options.relevance_question is not None:
        relevance = check_template(
            options.relevance_question,
            "router.relevance_question_template",
            problems,
            allowed=("name", "description"),
            one_of=("name", "description"),
        )
    threshold = options.activation_threshold
    if threshold is not None:
        check_threshold(threshold, "router.activation_threshold", problems)
        if system.planner_agent.output_type not in (OutputType.ANY, OutputType.MAP):
            problems.add(
                "planner_agent.output_type",
                "must accept a map (unspecified, any or map): a router with a threshold returns a map from agent to "
                "output",
            )
    elif len(system.agents) < 2:
        problems.add("agents", "must be at least 2 for a choice; with an activation threshold one is enough")
    seen: dict[str, int] = {}
    for position, agent in enumerate(system.agents):
        if agent.name in seen:
            problems.add(f"agents[{position}].name", f"'{agent.name}' is the name of agents[{seen[agent.name]}] too")
        seen.setdefault(agent.name, position)
    check_typed(system, "decision router", problems)
    question = DEFAULT_CHOICE_QUESTION if options.choice_question is None else options.choice_question
    return CheckedOptions(threshold, question, relevance)
