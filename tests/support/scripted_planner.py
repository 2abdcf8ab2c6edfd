"""A planner whose moves a test writes down, to see what the engine makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from plannerd.conditions import Condition
from plannerd.planners import registry
from plannerd.planners.moves import Action, Move, Outcome, Warn
from plannerd.planners.planner import AskedAtMost, Need, PlannerMap, Report, Thinking, View
from plannerd.planners.system import System, Topology
from plannerd.values import Value


class ScriptedPlanner:
    """Makes the moves that were written down; its state is their number so far."""

    kind = "scripted"
    topology = Topology.PARALLEL
    refers = True
    watched: frozenset[str] = frozenset()
    asks: AskedAtMost | None = None
    conditions: tuple[Condition, ...] = ()

    def __init__(self, moves: tuple[Action, ...], system: System) -> None:
        self.system = system
        self.reads: Mapping[str, Need] = {key: Need.VALUE for key in system.output_keys}
        self._moves = moves

    def output_need(self, agent: int) -> Need:
        return self.reads.get(self.system.agents[agent].output_key or "", Need.NONE)

    def initial(self) -> int:
        return 0

    def begin(self, state: int, view: View) -> Thinking[int]:
        return self._move(state)
        yield

    def told(self, state: int, view: View, report: Report) -> Thinking[int]:
        return self._move(state)
        yield

    def proceed(self, state: int, view: View) -> Thinking[int]:
        return self._move(state)
        yield

    def dump(self, state: int) -> PlannerMap:
        return {"moves": state}

    def dump_cursor(self, state: int) -> PlannerMap:
        return {}

    def load(self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None) -> tuple[int, list[Warn]]:
        raise NotImplementedError

    def _move(self, state: int) -> Move[int]:
        return Move(state + 1, self._moves[state], Outcome.OTHER, "As it was written down.")


class _Factory:
    kind = "scheduler"
    topology = Topology.STAR

    def __init__(self, moves: tuple[Action, ...]) -> None:
        self._moves = moves

    def __call__(self, checked: object, system: System) -> ScriptedPlanner:
        return ScriptedPlanner(self._moves, system)


@contextmanager
def scripted(*actions: Action) -> Iterator[None]:
    """Inside, each scheduler that an Init asks for makes these moves instead: the first action, then one per report."""
    with pytest.MonkeyPatch.context() as patch:
        infos = [
            replace(info, planner=_Factory(actions)) if info.kind == "scheduler" else info for info in registry.PLANNERS
        ]
        patch.setattr(registry, "PLANNERS", tuple(infos))
        yield
