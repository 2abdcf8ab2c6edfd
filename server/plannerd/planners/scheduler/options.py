"""The options of the decision scheduler, their defaults and checks.

Source of every rule: the documentation of LangChain4j's DecisionSchedulerPlanner.Builder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plannerd.planners.system import Problems, System, check_typed
from plannerd.planners.templates import Template, check_template
from plannerd.planners.thresholds import check_threshold
from plannerd.values import is_blank

DEFAULT_GOAL_QUESTION: Final = "Has this goal been reached: {{goal}}?"
DEFAULT_USEFULNESS_QUESTION: Final = (
    "How useful would it be to run the agent '{{name}}' ({{description}}) now, to reach this goal: {{goal}}?"
)
DEFAULT_USEFULNESS_LEVELS: Final = ("USELESS", "MARGINAL", "USEFUL", "ESSENTIAL")
DEFAULT_MAX_INVOCATIONS: Final = 10


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The options as a client sets them; None and empty are the defaults.

    Attributes:
        goal: what is to be reached; part of every question. Required.
        goal_threshold: the least probability of the goal to stop, in (0, 1). Required.
        activation_threshold: the least score for an agent to run, in (0, 1). Required.
        max_invocations: how many agents run at most, at least 1. Default 10.
        goal_question: template with {{goal}}.
        usefulness_question: template with {{name}} or {{description}}, and {{goal}}.
        usefulness_levels: at least 2, lowest first.
        excluded_output_keys: output keys left out of the decision's input.
    """

    goal: str = ""
    goal_threshold: float | None = None
    activation_threshold: float | None = None
    max_invocations: int | None = None
    goal_question: str | None = None
    usefulness_question: str | None = None
    usefulness_levels: tuple[str, ...] = ()
    excluded_output_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options with defaults filled in, known to be sound."""

    goal: str
    goal_threshold: float
    activation_threshold: float
    max_invocations: int
    goal_question: Template
    usefulness_question: Template
    usefulness_levels: tuple[str, ...]
    excluded: frozenset[str]


def check_options(options: SchedulerOptions, system: System, problems: Problems) -> CheckedOptions:
    """The options with defaults filled in; what can't work is noted in `problems`."""
    if is_blank(options.goal):
        problems.add("scheduler.goal", "is required and must not be blank: it says what the agents are to reach")
    maximum = DEFAULT_MAX_INVOCATIONS if options.max_invocations is None else options.max_invocations
    if maximum < 1:
        problems.add("scheduler.max_invocations", f"must be at least 1, but is {maximum}")
    levels = options.usefulness_levels or DEFAULT_USEFULNESS_LEVELS
    if len(levels) < 2:
        problems.add("scheduler.usefulness_levels", "must have at least 2 levels, from the lowest to the highest")
    for position, level in enumerate(levels):
        if is_blank(level):
            problems.add(f"scheduler.usefulness_levels[{position}]", "must not be blank")
    written = set(system.output_keys)
    for position, key in enumerate(options.excluded_output_keys):
        path = f"scheduler.excluded_output_keys[{position}]"
        if key == system.planner_agent.output_key:
            problems.add(path, f"'{key}' is the planner agent's own output key: the goal is judged on the result")
        elif key not in written:
            problems.add(path, f"'{key}' is not the output key of any agent")
    checked = CheckedOptions(
        goal=options.goal,
        goal_threshold=check_threshold(options.goal_threshold, "scheduler.goal_threshold", problems),
        activation_threshold=check_threshold(options.activation_threshold, "scheduler.activation_threshold", problems),
        max_invocations=maximum,
        goal_question=check_template(
            DEFAULT_GOAL_QUESTION if options.goal_question is None else options.goal_question,
            "scheduler.goal_question_template",
            problems,
            allowed=("goal",),
        ),
        usefulness_question=check_template(
            DEFAULT_USEFULNESS_QUESTION if options.usefulness_question is None else options.usefulness_question,
            "scheduler.usefulness_question_template",
            problems,
            allowed=("name", "description", "goal"),
            one_of=("name", "description"),
        ),
        usefulness_levels=levels,
        excluded=frozenset(options.excluded_output_keys),
    )
    check_typed(system, "decision scheduler", problems)
    return checked
