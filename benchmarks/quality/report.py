"""The figures of one model, and the table that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.quality.asking import Answers, Run
from benchmarks.quality.data import Example
from benchmarks.quality.figures import Judged, ScaleFigures, Share, YesNoFigures, scale, yes_no

PICKS = {
    "choice": "one choice question",
    "relevance": "a yes/no question per agent",
    "usefulness": "a scale question per agent",
}
JUDGED = {
    "relevance": "should this agent handle it?",
    "goal": "is the goal reached?",
    "grade": "is the answer correct?",
}

CHANCE = 0.5  # the area under the curve of a model that knows nothing


@dataclass(frozen=True, slots=True)
class Figures:
    """What a model is worth on the examples.

    Attributes:
        picks: by what was asked (PICKS): how often the right agent came out on top.
        lenient: the same, also counting other agents that may rightly be asked.
        chance: how often a blind choice would be right.
        judged: by question (JUDGED); None where there are too few answers.
        urgency: of the scale question about urgency.
    """

    picks: Mapping[str, Share]
    lenient: Mapping[str, Share]
    chance: float
    judged: Mapping[str, YesNoFigures | None]
    urgency: ScaleFigures | None


def figures(examples: Sequence[Example], run: Run) -> Figures:
    """The figures of a run over these examples."""
    pairs = list(zip(examples, run.answers, strict=True))
    tops = {name: [(example, _top(name, answers)) for example, answers in pairs] for name in PICKS}
    answered = {name: [(example, top) for example, top in found if top is not None] for name, found in tops.items()}
    urgency = [(answers.urgency, example.labels.urgency) for example, answers in pairs if answers.urgency is not None]
    return Figures(
        picks={
            name: Share(sum(top == example.labels.agent for example, top in found), len(found))
            for name, found in answered.items()
        },
        lenient={
            name: Share(sum(top in example.suitable for example, top in found), len(found))
            for name, found in answered.items()
        },
        chance=statistics.fmean(1 / len(example.domain.agents) for example in examples),
        judged={
            "relevance": yes_no([one for example, answers in pairs for one in _relevance(example, answers)]),
            "goal": yes_no([Judged(a.goal, e.labels.reached) for e, a in pairs if a.goal is not None]),
            "grade": yes_no([Judged(a.grade, e.labels.correct) for e, a in pairs if a.grade is not None]),
        },
        urgency=scale([answer for answer, _ in urgency], [label for _, label in urgency]),
    )


def _top(name: str, answers: Answers) -> str | None:
    if name == "choice":
        return answers.choice
    scores = answers.relevance if name == "relevance" else answers.usefulness
    return max(scores, key=scores.__getitem__) if scores else None  # ties to the first declared, as planners do


def _relevance(example: Example, answers: Answers) -> Iterator[Judged]:
    for agents, label in ((example.suitable, True), (example.unsuitable, False)):
        for agent in agents:
            if agent in answers.relevance:
                yield Judged(answers.relevance[agent], label)


def lines(name: str, examples: Sequence[Example], run: Run, found: Figures) -> Iterator[str]:
    """The report of one model."""
    domains = len({id(example.domain) for example in examples})
    resolved = ", ".join(sorted(run.resolved)) or "no answer"
    yield f"Model {name} ({resolved}), {len(examples)} requests, {domains} domains"
    yield ""
    yield "the right agent on top of all          right   of   share      95 %      or also suitable"
    for key, what in PICKS.items():
        pick = found.picks[key]
        yield (
            f"  {what:<34} {pick.hits:>7} {pick.total:>4}   {_percent(pick.value)}   {_interval(pick.interval, 100)}"
            f"      {_percent(found.lenient[key].value)}"
        )
    yield f"  {'chance':<34} {'':>12}   {_percent(found.chance)}"
    yield ""
    yield "yes/no, the planners' default texts       n   AUC     95 %     right at 0.5  always same  Brier (base)"
    for key, what in JUDGED.items():
        one = found.judged[key]
        if one is None:
            yield f"  {what:<34}  too few answers of both kinds"
            continue
        low, high = one.auc_interval
        yield (
            f"  {what:<34} {one.count:>6}  {one.auc:.2f}  {low:.2f}-{high:.2f}        {_percent(one.at_half.value)}"
            f"         {_percent(one.always)}  {one.brier:.3f} ({one.brier_of_base:.3f})"
        )
    yield ""
    yield "thresholds              right, tuned  held out   start from  wrong yes  missed   at most 5 % wrong  missed"
    for key in JUDGED:
        if (one := found.judged[key]) is None:
            continue
        best, careful = one.best, one.careful
        last = f"{'none':>16}" if careful is None else f"{careful.value:>17.3f}    {_percent(careful.missed_yes.value)}"
        yield (
            f"  {key:<24}   {_percent(one.tuned.value)}      {_percent(one.held_out.value)}        {best.value:.3f}"
            f"       {_percent(best.wrong_yes.value)}    {_percent(best.missed_yes.value)} {last}"
        )
    for key, what in JUDGED.items():
        if (one := found.judged[key]) is not None and one.auc_interval[0] <= CHANCE:
            yield f"  NO BETTER THAN CHANCE: {key} ({what}). No threshold helps; don't decide by it."
    yield ""
    if (urgency := found.urgency) is not None:
        yield (
            f"scale, how urgent: rank correlation {urgency.correlation:.2f}, mean error {urgency.error:.2f} levels "
            f"(always the middle: {urgency.constant_error:.2f}), n {urgency.count}"
        )
    if run.seconds:
        yield (
            f"{len(run.seconds)} answered requests, median {statistics.median(run.seconds) * 1000:.1f} ms; "
            f"{run.cut} inputs cut, {run.refused} questions refused"
        )
    for reason, count in sorted(run.failures.items()):
        yield f"FAILED: {count} requests with {reason}"


def _percent(share: float) -> str:
    return "  - " if share != share else f"{share:>4.0%}"  # noqa: PLR0124 (NaN)


def _interval(interval: tuple[float, float], factor: int) -> str:
    low, high = interval
    return "  -  " if low != low else f"{low * factor:>2.0f}-{high * factor:>2.0f} %"  # noqa: PLR0124 (NaN)
