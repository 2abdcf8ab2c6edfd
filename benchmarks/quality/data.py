"""The labelled requests: one YAML file a domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

FOLDER: Final = Path(__file__).with_name("examples")
URGENCY: Final = ("it can wait", "within days", "today", "at once")
"""The levels of `urgency`, in words."""

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Labelled(_Strict):
    """One request, with what a person who knows the domain says about it."""

    id: _Text
    request: _Text
    agent: _Text = Field(description="The agent that should handle it.")
    also: list[_Text] = Field(default=[], description="Other agents that could rightly be asked too.")
    urgency: int = Field(ge=0, lt=len(URGENCY), description="Its place on URGENCY.")
    done: _Text = Field(description="What was done about it, as an agent reports it.")
    reached: bool = Field(description="Whether that reaches the goal of the domain.")
    answer: _Text = Field(description="A candidate answer.")
    correct: bool = Field(description="Whether it fully and correctly addresses the request.")


class Domain(_Strict):
    """Requests of one kind, and the agents that there are for them."""

    goal: _Text
    agents: dict[_Text, _Text] = Field(min_length=2, description="Descriptions by name.")
    examples: list[Labelled] = Field(min_length=1)

    @model_validator(mode="after")
    def _agents_exist(self) -> Domain:
        for example in self.examples:
            if unknown := {example.agent, *example.also} - set(self.agents):
                raise ValueError(f"{example.id}: no agent is called {', '.join(sorted(unknown))}")
        if len({example.id for example in self.examples}) < len(self.examples):
            raise ValueError("two examples have the same id")
        return self


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled request in its domain.

    Attributes:
        unsuitable: agents that should not handle it, as many as should, so that yes and no are balanced.
    """

    name: str
    domain: Domain
    labels: Labelled
    unsuitable: tuple[str, ...]

    @property
    def suitable(self) -> tuple[str, ...]:
        """The agents that may handle it."""
        return (self.labels.agent, *self.labels.also)


def load(folder: Path = FOLDER) -> list[Example]:
    """All examples of a folder, in the order of file names and positions.

    Raises:
        ValueError: there are none, or a file is not as `Domain` says; with the name of the file.
    """
    examples: list[Example] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            domain = Domain.model_validate(yaml.safe_load(path.read_text("utf-8")))
        except (ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: {error}") from error
        for labels in domain.examples:
            examples.append(_example(f"{path.stem}/{labels.id}", domain, labels, len(examples)))
    if not examples:
        raise ValueError(f"{folder}: there is no *.yaml with examples")
    return examples


def _example(name: str, domain: Domain, labels: Labelled, position: int) -> Example:
    suitable = (labels.agent, *labels.also)
    others = _rotated([agent for agent in domain.agents if agent not in suitable], position)
    return Example(name, domain, labels, tuple(others[: len(suitable)]))


def _rotated(names: Sequence[str], by: int) -> list[str]:
    """Starting elsewhere each time, so that each agent has its turn."""
    return [names[(by + i) % len(names)] for i in range(len(names))]
