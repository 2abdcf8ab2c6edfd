"""Asks a model about the examples, with the questions and the input that the planners would send."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.quality.data import URGENCY, Example
from plannerd.decisions.answers import Answer, ChoiceAnswer, ScaleAnswer, YesNoAnswer
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Scale, YesNo
from plannerd.errors import PlannerdError
from plannerd.planners.cascade.options import CANDIDATE, DEFAULT_GRADING_QUESTION
from plannerd.planners.router.options import DEFAULT_CHOICE_QUESTION, DEFAULT_RELEVANCE_QUESTION
from plannerd.planners.scheduler.options import (
    DEFAULT_GOAL_QUESTION,
    DEFAULT_USEFULNESS_LEVELS,
    DEFAULT_USEFULNESS_QUESTION,
)
from plannerd.planners.templates import Template

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Texts:
    """The questions: by default those of the planners. `{{name}}`, `{{description}}` and `{{goal}}` are filled in."""

    choice: str = DEFAULT_CHOICE_QUESTION
    relevance: str = DEFAULT_RELEVANCE_QUESTION
    usefulness: str = DEFAULT_USEFULNESS_QUESTION
    goal: str = DEFAULT_GOAL_QUESTION
    grade: str = DEFAULT_GRADING_QUESTION
    urgency: str = "How urgent is this request?"


DEFAULT_TEXTS = Texts()


@dataclass(slots=True)
class Answers:
    """What a model said about one example; None or missing where it refused or failed.

    Attributes:
        choice: the agent that it chose, as for a router.
        relevance: the probability that an agent should handle the request, as for a router with a threshold.
        usefulness: how useful each agent would be, as for the first step of a scheduler.
        urgency: a place on URGENCY.
        goal: the probability that the goal is reached by what was done.
        grade: the probability that the candidate answer is good, as for a cascade.
    """

    choice: str | None = None
    relevance: Numbers = field(default_factory=dict)
    usefulness: Numbers = field(default_factory=dict)
    urgency: float | None = None
    goal: float | None = None
    grade: float | None = None


@dataclass(slots=True)
class Run:
    """All that one model said.

    Attributes:
        resolved: the names by which the model calls itself.
        seconds: how long each request took.
        cut: how many inputs were cut to fit.
        refused: how many questions the model refused.
        failures: failed requests by reason.
    """

    answers: list[Answers]
    resolved: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    cut: int = 0
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)


def requests(example: Example, texts: Texts) -> list[DecisionRequest]:
    """What is asked about an example: five requests, each as a planner would send it, and one about its urgency."""
    agents, goal, labels = example.domain.agents, example.domain.goal, example.labels
    relevance, usefulness = Template(texts.relevance), Template(texts.usefulness)
    request = Field("request", labels.request)
    options = tuple(Option(name, description) for name, description in agents.items())
    described = [{"name": name, "description": description, "goal": goal} for name, description in agents.items()]
    return [
        DecisionRequest((request,), (Choice("choice", texts.choice, options),)),
        DecisionRequest((request,), tuple(YesNo(agent["name"], relevance.render(agent)) for agent in described)),
        DecisionRequest(
            (request,),
            tuple(Scale(agent["name"], usefulness.render(agent), DEFAULT_USEFULNESS_LEVELS) for agent in described),
        ),
        DecisionRequest((request,), (Scale("urgency", texts.urgency, URGENCY),)),
        DecisionRequest(
            (request, Field("outcome", labels.done)),
            (YesNo("goal", Template(texts.goal).render({"goal": goal})),),
        ),
        DecisionRequest((request, Field(CANDIDATE, labels.answer, rank=1)), (YesNo("grade", texts.grade),)),
    ]


async def ask_all(
    models: DecisionModels,
    name: str | None,
    examples: Sequence[Example],
    texts: Texts = DEFAULT_TEXTS,
    *,
    parallel: int,
    timeout: float,
) -> Run:
    """Ask the model of that name about all examples, `parallel` requests at a time.

    Raises:
        PlannerdError: there is no such model.
    """
    named = models.get(name)
    run = Run([Answers() for _ in examples])
    free = asyncio.Semaphore(parallel)

    async def ask(request: DecisionRequest) -> list[tuple[str, Answer]]:
        async with free:
            started = time.perf_counter()
            try:
                response = await models.ask(named, request, timeout)
            except PlannerdError as error:
                run.failures[error.reason.name] += 1
                return []
        run.seconds.append(time.perf_counter() - started)
        run.resolved.add(response.model)
        run.cut += response.truncation is not None
        return list(response.answers.items())

    async def about(example: Example, answers: Answers) -> None:
        asked = await asyncio.gather(*(ask(request) for request in requests(example, texts)))
        choice, relevance, usefulness, urgency, goal, grade = asked
        answers.choice = next((answer.value for _, answer in choice if isinstance(answer, ChoiceAnswer)), None)
        answers.relevance = _numbers(relevance)
        answers.usefulness = _numbers(usefulness)
        answers.urgency = _numbers(urgency).get("urgency")
        answers.goal = _numbers(goal).get("goal")
        answers.grade = _numbers(grade).get("grade")
        run.refused += sum(not isinstance(answer, _ANSWERED) for part in asked for _, answer in part)

    await asyncio.gather(*(about(*pair) for pair in zip(examples, run.answers, strict=True)))
    return run


_ANSWERED = (ChoiceAnswer, YesNoAnswer, ScaleAnswer)


def _numbers(answers: list[tuple[str, Answer]]) -> Numbers:
    """Probabilities and means by question, without refusals."""
    numbers: Numbers = {}
    for name, answer in answers:
        if isinstance(answer, YesNoAnswer):
            numbers[name] = answer.probability
        elif isinstance(answer, ScaleAnswer):
            numbers[name] = answer.mean
    return numbers
