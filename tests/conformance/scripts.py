"""Scripts for the decision model `fixed`: the answers of a case, in order, for each server that is asked.

The files are for servers that run elsewhere; in process the same script is given to the model directly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance.cases import TERMINAL, Case, decisions_of, kind_of

INSTANCES: Final = 2
"""How many instances of the server a case may move between."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run a case.

    Attributes:
        name: short; part of the names of models.
        minimal: the client sends no more than it must: nothing that the planner does not read, tags in
            place of values where presence is enough. Otherwise it sends everything that it has.
        handover: before each request that follows a step the invocation moves to another instance.
        stream: requests go over the stream Run.
    """

    name: str
    minimal: bool = True
    handover: bool = False
    stream: bool = False


MODES: Final = (
    Mode("minimal"),
    Mode("full", minimal=False),
    Mode("handover", handover=True),
    Mode("stream", stream=True),
)
"""All ways to run a case."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is sent: the instance, and whether the invocation must move there first."""

    instance: int
    moves: bool


def places(case: Case, mode: Mode) -> list[Place]:
    """Where each step of a case is sent. Known beforehand, so that every instance can have its own script."""
    found: list[Place] = []
    instance = 0
    live = False
    for step in case.steps:
        kind = kind_of(step)
        moves = mode.handover and live and kind == "next_action"
        if moves or kind == "restore":
            instance = (instance + 1) % INSTANCES
        found.append(Place(instance, moves))
        live = _live_after(kind, step, live)
    return found


def _live_after(kind: str, step: Mapping[str, Any], live: bool) -> bool:
    if kind in {"end", "restore"}:
        return False
    if kind in {"first_action", "next_action"} and "error" not in step["expect"]:
        return not any(action in step["expect"] for action in TERMINAL)
    return live


def script(case: Case, mode: Mode, instance: int | None = None) -> dict[str, Any]:
    """The script of a case for one instance, or for all of them together."""
    steps = [
        written_step(decision)
        for step, place in zip(case.steps, places(case, mode), strict=True)
        for decision in decisions_of(step)
        if instance in {None, place.instance}
    ]
    return {"model": "fixed", "steps": steps, **case.data.get("model", {})}


def written_step(decision: Mapping[str, Any]) -> dict[str, Any]:
    """What the model does with one request, as scripts write it."""
    if "fails" in decision:
        return {"error": decision["fails"], "message": "the case says so"}
    answers = {name: _answer(answer) for name, answer in decision["answers"].items()}
    return {"model": decision["model"], "answers": answers} if "model" in decision else answers


def _answer(answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    ((kind, parts),) = answer.items()
    if kind == "refusal":
        return {"refuse": parts.get("message", "")}
    return _numbers(parts)


def _numbers(written: Any) -> Any:
    """`written` with the texts NaN and Infinity as numbers; other texts stay."""
    if isinstance(written, dict):
        return {key: _numbers(item) for key, item in written.items()}
    if isinstance(written, list):
        return [_numbers(item) for item in written]
    return float(written) if written in ("NaN", "Infinity", "-Infinity") else written


def model_name(case: Case, mode: Mode) -> str:
    """The name under which a server that runs elsewhere has the script of a case."""
    return f"{case.planner}.{case.name}.{mode.name[0]}"


def write(folder: Path, cases: Iterable[Case], instances: int = INSTANCES) -> list[Path]:
    """Write the settings of each server and the scripts that they name, for all modes; the paths of the settings.

    Args:
        folder: where to write; made if need be.
        cases: whose scripts to write.
        instances: how many servers there are. One alone answers for all instances.
    """
    cases = list(cases)
    written = []
    for instance in range(instances):
        scripts = folder.resolve() / f"scripts-{instance}"
        scripts.mkdir(parents=True, exist_ok=True)
        models = {}
        for case in cases:
            for mode in MODES:
                path = scripts / f"{model_name(case, mode)}.json"
                path.write_text(json.dumps(script(case, mode, instance if instances > 1 else None)), "utf-8")
                models[path.stem] = {"provider": "fixed", "file": str(path)}
        settings = folder.resolve() / f"settings-{instance}.yaml"
        # JSON is YAML, too.
        settings.write_text(json.dumps({"decisions": {"models": models}}, indent=1), "utf-8")
        written.append(settings)
    return written
