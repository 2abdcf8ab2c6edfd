"""A planner plug-in: the agents run one after the other, round after round, until a key is in the scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, Field

from plannerd.conditions import PresentKey
from plannerd.planners.base import PlannerBase
from plannerd.planners.fields import Fields
from plannerd.planners.moves import Done, GiveUp, GiveUpReason, Move, Outcome, Start, Warn
from plannerd.planners.planner import PlannerMap, Report, Thinking, View
from plannerd.planners.plugin import PlannerPlugin
from plannerd.planners.system import Problems, System, Topology
from plannerd.values import Value


class UntilOptions(BaseModel):
    """The configuration. `ListPlanners` shows its JSON schema."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    key: str = Field(min_length=1, description="The planner is done when this key is in the scope.")
    max_rounds: int = Field(3, ge=1, description="How often each agent runs at most.")


@dataclass(frozen=True, slots=True)
class UntilState:
    """How many calls were made, in all rounds together."""

    calls: int = 0


class Until(PlannerBase[UntilState]):
    """The compiled planner. It is shared by invocations: what changes is the state alone."""

    def __init__(self, options: UntilOptions, system: System) -> None:
        self._key = PresentKey(options.key)
        super().__init__(options, system, (self._key,))
        self._limit = options.max_rounds * len(system.agents)

    def initial(self) -> UntilState:
        """Nothing has run."""
        return UntilState()

    def begin(self, state: UntilState, view: View) -> Thinking[UntilState]:
        """The first agent, unless the key is there already."""
        return self._next(state, view)
        yield  # a planner that asks a decision model yields a DecisionRequest and is sent the answers

    def told(self, state: UntilState, view: View, report: Report) -> Thinking[UntilState]:
        """The next agent, whatever the last one answered."""
        return self._next(state, view)
        yield

    def proceed(self, state: UntilState, view: View) -> Thinking[UntilState]:
        """Never needed: this planner waits for nothing."""
        return self._next(state, view)
        yield

    def dump(self, state: UntilState) -> PlannerMap:
        """The state by plain values."""
        return {"calls": state.calls}

    def load(
        self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None
    ) -> tuple[UntilState, list[Warn]]:
        """The state from its plain form; `Fields` refuses what does not fit, with the path."""
        fields = Fields(planner_map, "planner")
        state = UntilState(fields.integer("calls"))
        fields.done()
        return state, []

    def _next(self, state: UntilState, view: View) -> Move[UntilState]:
        if view.holds(self._key, "until"):
            return Move(state, Done(), Outcome.OTHER, f"'{self._key.key}' is there.")
        if state.calls >= self._limit:
            message = f"Gave up: '{self._key.key}' is not there after {state.calls} calls."
            return Move(state, GiveUp(GiveUpReason.OTHER, message), Outcome.OTHER, message)
        agent = state.calls % len(self.system.agents)
        called = replace(state, calls=state.calls + 1)
        return Move(called, Start((agent,)), Outcome.CALLED, f"'{self.system.agents[agent].name}' is next.")


def check(options: UntilOptions, system: System, problems: Problems) -> None:
    """Refuse a key that nobody writes: the planner could never be done."""
    if not system.writers(options.key):
        problems.add("plugin.configuration.key", f"'{options.key}' is not the output key of any agent")


PLUGIN = PlannerPlugin(name="until", options=UntilOptions, planner=Until, topology=Topology.LOOP, check=check)
