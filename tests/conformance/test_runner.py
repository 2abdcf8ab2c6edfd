"""The runner itself: it must notice what it is there to notice."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.cases import Case, decisions_of, load
from tests.conformance.runner import MismatchError, run
from tests.conformance.scripts import INSTANCES, MODES, Mode, places, script
from tests.conformance.targets import InProcess

CASES = {case.id: case for case in load()}
ANY_VALUE_WILL_DO = {"done", "no_op", "as"}
"""Parts of an expectation where another value does not make it wrong: any form of done, an alias."""


def changed(case: Case, path: tuple[Any, ...], value: Any) -> Case:
    """`case` with another value at `path`."""
    data = copy.deepcopy(dict(case.data))
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return Case(case.planner, case.name, case.path, data)


def leaves(written: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in `written` that is no map and no list, with its path."""
    if isinstance(written, dict):
        for key, item in written.items():
            yield from leaves(item, (*path, key))
    elif isinstance(written, list):
        for position, item in enumerate(written):
            yield from leaves(item, (*path, position))
    else:
        yield path, written


def expectations(case: Case) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every single thing that a case expects."""
    yield from leaves(case.data.get("init", {}), ("init",))
    for position, step in enumerate(case.steps):
        yield from leaves(step.get("expect", {}), ("steps", position, "expect"))
        if "error" not in step.get("expect", {}):
            one = not isinstance(step.get("decision"), list)
            for number, decision in enumerate(decisions_of(step)):
                path = ("steps", position, "decision", *(() if one else (number,)))
                for part in ("questions", "input"):
                    yield from leaves(decision.get(part, []), (*path, part))


def another(value: Any) -> Any:
    """A value that differs from `value`."""
    match value:
        case None:
            return "something"
        case bool():
            return not value
        case int() | float():
            return value + 0.001
    return f"{value}x"


@pytest.mark.parametrize(
    "case_id",
    [
        "scheduler/default-questions",
        "scheduler/own-levels",
        "scheduler/no-candidate-without-the-result-gives-up",
        "scheduler/maximum-with-the-result",
        "scheduler/human-suspends-without-a-decision",
        "scheduler/decision-waits-for-a-pending-output",
        "scheduler/belief-activates",
        "scheduler/arguments-then-outputs",
        "scheduler/all-kinds-of-values",
        "scheduler/goal-threshold-zero",
        "scheduler/reads-presence-of-excluded-keys",
        "scheduler/unknown-call",
        "scheduler/state-while-an-agent-runs",
        "scheduler/map-has-counter-blocked-agents-and-running-agent",
        "scheduler/state-with-a-dropped-agent",
        "scheduler/split-into-two-requests",
    ],
)
async def test_every_expectation_counts(case_id: str) -> None:
    """A case fails as soon as any single thing that it expects is another."""
    case = CASES[case_id]
    await run(case, InProcess(), MODES[0])
    for path, value in expectations(case):
        if path[-1] in ANY_VALUE_WILL_DO:
            continue
        with pytest.raises((MismatchError, ValueError)):
            await run(changed(case, path, another(value)), InProcess(), MODES[0])


async def test_a_request_too_many() -> None:
    """A case fails when the model is asked where no request is expected."""
    case = CASES["scheduler/goal-at-threshold-stops"]
    steps = [{key: item for key, item in case.steps[0].items() if key != "decision"}]
    with pytest.raises(MismatchError):
        await run(changed(case, ("steps",), steps), InProcess(), MODES[0])


async def test_a_request_too_few() -> None:
    """A case fails when the model is not asked where a request is expected."""
    case = CASES["scheduler/no-candidate-without-the-result-gives-up"]
    with pytest.raises(MismatchError):
        await run(changed(case, ("steps", 0, "decision"), {"answers": {"writer": 3}}), InProcess(), MODES[0])


async def test_an_error_that_does_not_come() -> None:
    """A case fails when a request that should be refused is not."""
    case = CASES["scheduler/goal-threshold-zero"]
    planner = {"scheduler": {**case.data["planner"]["scheduler"], "goal_threshold": 0.5}}
    with pytest.raises(MismatchError, match="not refused"):
        await run(changed(case, ("planner",), planner), InProcess(), MODES[0])


async def test_an_error_that_is_not_expected() -> None:
    """A case fails when a request is refused that should not be."""
    case = CASES["scheduler/one-agent"]
    with pytest.raises(MismatchError, match="INVALID_CONFIGURATION"):
        await run(changed(case, ("agents",), []), InProcess(), MODES[0])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_scripts_for_instances_make_up_the_whole(mode: Mode) -> None:
    """What the instances answer together is what one that is asked everything answers, in the same order."""
    for case in CASES.values():
        parts = [iter(script(case, mode, instance)["steps"]) for instance in range(INSTANCES)]
        taken = [
            next(parts[place.instance])
            for step, place in zip(case.steps, places(case, mode), strict=True)
            for _ in decisions_of(step)
        ]
        # As texts, since NaN is not equal to itself.
        assert json.dumps(taken) == json.dumps(script(case, mode)["steps"])
        assert not [rest for part in parts for rest in part]


def test_handover_moves_invocations() -> None:
    """In the mode `handover` most invocations with several steps move."""
    mode = next(mode for mode in MODES if mode.handover)
    long = [case for case in CASES.values() if sum("next_action" in step for step in case.steps) > 1]
    assert len([case for case in long if any(place.moves for place in places(case, mode))]) > len(long) * 0.8
