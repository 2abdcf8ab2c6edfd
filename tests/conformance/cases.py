"""Cases: reading the files, and what the cases of one file share."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent
FOLDER: Final = ROOT / "cases"
SCHEMA: Final = ROOT / "case.schema.json"

REQUESTS: Final = ("first_action", "next_action", "resend", "execution_state", "end", "restore")
"""The kinds of steps."""

TERMINAL: Final = ("done", "give_up")
"""The actions after which nothing follows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case, complete: what its file gives is filled in.

    Attributes:
        planner: the kind of planner, which is the folder too.
        name: unique among the cases of this kind.
        path: the file.
        data: the case as it is written, with `given` and `config` worked in.
    """

    planner: str
    name: str
    path: Path
    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The name for reports: kind and name."""
        return f"{self.planner}/{self.name}"

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The steps; may be empty."""
        steps: Sequence[Mapping[str, Any]] = self.data.get("steps", ())
        return steps


def decisions_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The requests to the decision model that a step makes."""
    written = step.get("decision", [])
    return list(written) if isinstance(written, list) else [written]


def kind_of(step: Mapping[str, Any]) -> str:
    """Which request a step makes."""
    return next(kind for kind in REQUESTS if kind in step)


def agent_ids(agents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of agents, by default `<name>$<position>`."""
    return [agent.get("id") or f"{agent.get('name', '')}${position}" for position, agent in enumerate(agents)]


def with_config(planner: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`planner` with fields of its configuration replaced; null takes a field away."""
    ((kind, config),) = planner.items()
    merged = {**config, **changes}
    return {kind: {key: value for key, value in merged.items() if value is not None}}


def files(folder: Path = FOLDER) -> list[Path]:
    """All files of cases, in order."""
    return sorted(folder.glob("*/*.yaml"))


def read(path: Path) -> dict[str, Any]:
    """The content of a file as it is written; a key that is written twice is refused."""
    content: dict[str, Any] = yaml.load(path.read_text("utf-8"), _Loader)
    return content


def load(folder: Path = FOLDER) -> list[Case]:
    """All cases, in the order of files and inside them."""
    return [case for path in files(folder) for case in _complete(path)]


def _complete(path: Path) -> Iterator[Case]:
    content = read(path)
    given = content.get("given", {})
    for written in content["cases"]:
        data = {**given, **written}
        if changes := data.pop("config", None):
            data["planner"] = with_config(data["planner"], changes)
        yield Case(path.parent.name, data["name"], path, data)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := next((key for position, key in enumerate(keys) if key in keys[:position]), None):
            raise yaml.constructor.ConstructorError(None, None, f"'{twice}' is written twice", node.start_mark)
        return super().construct_mapping(node, deep)
