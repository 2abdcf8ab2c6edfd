"""The options of the confidence cascade, their defaults and checks.

Source: the documentation of LangChain4j's ConfidenceCascadePlanner; docs/planners/cascade.md says what goes
beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from plannerd.planners.system import Problems, System, check_typed
from plannerd.planners.templates import check_template
from plannerd.planners.thresholds import check_threshold
from plannerd.values import is_blank

CANDIDATE: Final = "candidateAnswer"
DEFAULT_GRADING_QUESTION: Final = "Does the answer fully and correctly address the request?"


@dataclass(frozen=True, slots=True)
class CascadeOptions:
    """The options as a client sets them; None is the default.

    Attributes:
        acceptance_threshold: the least probability of "yes" to accept an answer, in (0, 1). Required.
        acceptance_criterion: when an answer should be accepted; the question's yes-when.
        grading_question: the text of the yes/no question.
    """

    acceptance_threshold: float | None = None
    acceptance_criterion: str | None = None
    grading_question: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """The options with defaults filled in, known to be sound."""

    threshold: float
    criterion: str | None
    question: str


def check_options(options: CascadeOptions, system: System, problems: Problems) -> CheckedOptions:
    """The options with defaults filled in; what can't work is noted in `problems`."""
    threshold = check_threshold(options.acceptance_threshold, "cascade.acceptance_threshold", problems)
    if options.acceptance_criterion is not None and is_blank(options.acceptance_criterion):
        problems.add("cascade.acceptance_criterion", "must not be blank; leave it unset for none")
    if options.grading_question is not None:
        check_template(options.grading_question, "cascade.grading_question", problems, allowed=())
    if len(system.agents) == 1:
        problems.add("agents", "must be at least 2: a cascade tries one after the other")
    if CANDIDATE in system.planner_agent.inputs:
        position = [argument.name for argument in system.planner_agent.arguments].index(CANDIDATE)
        problems.add(
            f"planner_agent.arguments[{position}].name",
            f"must not be '{CANDIDATE}': the answer to be graded goes by that name",
        )
    check_typed(system, "confidence cascade", problems)
    question = DEFAULT_GRADING_QUESTION if options.grading_question is None else options.grading_question
    return CheckedOptions(threshold, options.acceptance_criterion, question)
