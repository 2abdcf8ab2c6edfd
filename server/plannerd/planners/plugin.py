"""Planners that an operator adds: a Python package names a `PlannerPlugin` as an entry point.

    [project.entry-points."plannerd.planners"]
    until = "until_planner:PLUGIN"

docs/planners/plugins.md shows a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from plannerd.planners.planner import Planner
from plannerd.planners.system import Problems, System, Topology
from plannerd.values import Value

ENTRY_POINTS: Final = "plannerd.planners"
"""The group of entry points in which plug-ins are found."""

OptionsT = TypeVar("OptionsT", bound=BaseModel)


def _no_more_checks(options: BaseModel, system: System, problems: Problems) -> None:
    """The types of the options say everything."""


@dataclass(frozen=True, slots=True)
class PlannerPlugin(Generic[OptionsT]):
    """A planner of an operator's own.

    Attributes:
        name: how clients ask for it: lower case letters, digits, `-` and `_`, not the name of another planner.
        options: the type of its configuration. `ListPlanners` shows its JSON schema. Forbid extra fields, so
            that a misspelt option is refused.
        planner: makes the planner of checked options and the system. It must be pure and deterministic, like
            the planners of this package: `PlannerBase` has the parts that most of them share.
        topology: the shape of its systems, for display.
        check: notes what can't work although the types are right. Field paths begin with
            `plugin.configuration`.
    """

    name: str
    options: type[OptionsT]
    planner: Callable[[OptionsT, System], Planner[Any]]
    topology: Topology = Topology.SEQUENCE
    check: Callable[[OptionsT, System, Problems], None] = _no_more_checks

    def parse(self, configuration: dict[str, Value], system: System, problems: Problems) -> OptionsT | None:
        """The options, or None where they are wrong, which is noted in `problems`."""
        try:
            options = self.options.model_validate(configuration)
        except ValidationError as error:
            for found in error.errors(include_url=False, include_input=False, include_context=False):
                path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"])
                problems.add(f"plugin.configuration{path}", found["msg"])
            return None
        self.check(options, system, problems)
        return options

    def schema(self) -> str:
        """The JSON schema of the configuration, as a text."""
        return json.dumps(self.options.model_json_schema(), sort_keys=True)

    def meaning(self, options: OptionsT) -> str:
        """The options by their meaning: without what has its default."""
        return json.dumps(options.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
