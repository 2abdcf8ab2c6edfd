"""A planner whose moves a test writes down, to see what the engine makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from plannerd.planners.base import PlannerBase
from plannerd.planners.moves import Action, Move, Outcome, Warn
from plannerd.planners.planner import Need, PlannerMap, Report, Thinking, View
from plannerd.planners.plugin import PlannerPlugin
from plannerd.planners.system import System
from plannerd.values import Value
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2


class NoOptions(BaseModel):
    """The configuration of a planner without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedPlanner(PlannerBase[int]):
    """Makes the moves that were written down, one at first and one per report; its state is their number so far."""

    refers = True

    def __init__(self, moves: tuple[Action, ...], options: NoOptions, system: System) -> None:
        super().__init__(options, system)
        self.reads = dict.fromkeys(system.output_keys, Need.VALUE)
        self._moves = moves

    def initial(self) -> int:
        return 0

    def begin(self, state: int, view: View) -> Thinking[int]:
        return self._move(state)
        yield  # asks nothing

    def told(self, state: int, view: View, report: Report) -> Thinking[int]:
        return self._move(state)
        yield

    def proceed(self, state: int, view: View) -> Thinking[int]:
        return self._move(state)
        yield

    def dump(self, state: int) -> PlannerMap:
        return {"moves": state}

    def load(self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None) -> tuple[int, list[Warn]]:
        moves = planner_map["moves"]
        assert isinstance(moves, int)
        return moves, []

    def _move(self, state: int) -> Move[int]:
        return Move(state + 1, self._moves[state], Outcome.OTHER, "As it was written down.")


def scripted(*actions: Action) -> PlannerPlugin[NoOptions]:
    """A plug-in named `scripted` that makes these moves."""
    return PlannerPlugin("scripted", NoOptions, lambda options, system: ScriptedPlanner(actions, options, system))


def scripted_request(*agents: agent_pb2.Agent) -> planner_pb2.InitRequest:
    """An Init of it."""
    return planner_pb2.InitRequest(plugin=planners_pb2.PluginConfig(name="scripted"), agents=agents)
