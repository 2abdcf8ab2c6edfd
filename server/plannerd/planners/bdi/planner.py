"""The BDI planner: the achievable desire of the highest priority is pursued, and preempted by a higher one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from plannerd.planners.base import PlannerBase
from plannerd.planners.bdi.options import CheckedOptions, Intention
from plannerd.planners.fields import Fields
from plannerd.planners.moves import (
    AgentStatus,
    Assessment,
    Await,
    Done,
    GiveUp,
    GiveUpReason,
    Move,
    Outcome,
    Start,
    Warn,
)
from plannerd.planners.planner import PlannerMap, Report, Thinking, View
from plannerd.planners.system import System, Topology
from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class BdiState:
    """Where a BDI planner stands.

    Attributes:
        invocations: how many agents were called so far.
        desire: the desire being pursued, by its place among the desires; None between two.
        step: the place in its intention of the agent being run.
        progress: where preempted desires go on, by desire.
    """

    invocations: int = 0
    desire: int | None = None
    step: int = 0
    progress: Mapping[int, int] = field(default_factory=dict)


class BeliefDesireIntention(PlannerBase[BdiState]):
    """A compiled BDI planner.

    Args:
        options: checked, with defaults filled in.
        system: the agents, checked.
    """

    kind = "bdi"
    topology = Topology.SEQUENCE

    def __init__(self, options: CheckedOptions, system: System) -> None:
        found = ((intention.achievable, intention.satisfied) for intention in options.intentions)
        super().__init__(options, system, tuple(condition for pair in found for condition in pair))
        self.options: CheckedOptions = options
        self._intentions = options.intentions

    # ---- the planner's interface -------------------------------------------------------------------

    def initial(self) -> BdiState:
        """No agent has run."""
        return BdiState()

    def begin(self, state: BdiState, view: View) -> Thinking[BdiState]:
        """Deliberate. From a bare planner map, the chosen intention starts at its first agent."""
        return self._deliberate(state, view)
        yield  # a generator that asks nothing

    def told(self, state: BdiState, view: View, report: Report) -> Thinking[BdiState]:
        """Go on with the intention, or drop it for another."""
        if state.desire is None:
            return self._deliberate(state, view)
        current = self._intentions[state.desire]
        if view.holds(current.satisfied, current.name):
            return self._deliberate(replace(state, desire=None), view)
        if any(self._pursuable(other, view) for other in self._intentions if other.priority > current.priority):
            progress = {**state.progress, state.desire: state.step + 1}
            return self._deliberate(replace(state, desire=None, progress=progress), view)
        if view.holds(current.achievable, current.name):
            return self._dispatch(replace(state, step=state.step + 1), view)
        return self._deliberate(replace(state, desire=None), view)
        yield  # a generator that asks nothing

    def proceed(self, state: BdiState, view: View) -> Thinking[BdiState]:
        """Finish, now that the result has arrived; or pursue what has become possible meanwhile."""
        return self._deliberate(state, view)
        yield  # a generator that asks nothing

    def expects(self, state: BdiState) -> frozenset[int] | None:
        """The agent of the intention that is being run; unknown if its desire is no longer declared."""
        if state.desire is None:
            return None
        agents = self._intentions[state.desire].agents
        return frozenset((agents[state.step],)) if state.step < len(agents) else None

    def dump(self, state: BdiState) -> PlannerMap:
        """The counter alone, as in the library."""
        return {"invocationCounter": state.invocations}

    def dump_cursor(self, state: BdiState) -> PlannerMap:
        """Desire, place and progress: what is needed to continue exactly."""
        return {
            "desire": None if state.desire is None else self._intentions[state.desire].name,
            "step": state.step,
            "progress": {self._intentions[desire].name: step for desire, step in state.progress.items()},
        }

    def load(self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None) -> tuple[BdiState, list[Warn]]:
        """The state from its plain form; a desire that is no longer declared is forgotten."""
        fields = Fields(planner_map, "planner")
        state = BdiState(fields.integer("invocationCounter"))
        fields.done()
        if cursor is None:
            return state, []
        extra = Fields(cursor, "cursor")
        places = {intention.name: place for place, intention in enumerate(self._intentions)}
        desire = extra.optional_text("desire")
        step = extra.integer("step", maximum=1_000_000)
        saved = extra.fields("progress")
        names = [str(name) for name in extra.mapping("progress")]
        progress = {name: saved.integer(name, maximum=1_000_000) for name in names}
        extra.done()
        return (
            replace(
                state,
                desire=None if desire is None else places.get(desire),
                step=step,
                progress={places[name]: place for name, place in progress.items() if name in places},
            ),
            [],
        )

    # ---- the rules ---------------------------------------------------------------------------------

    @staticmethod
    def _pursuable(intention: Intention, view: View) -> bool:
        return view.holds(intention.achievable, intention.name) and not view.holds(intention.satisfied, intention.name)

    def _deliberate(self, state: BdiState, view: View) -> Move[BdiState]:
        """Among the achievable and unsatisfied desires the highest priority, the first declared on a tie."""
        pursuable = [place for place, found in enumerate(self._intentions) if self._pursuable(found, view)]
        if pursuable:
            chosen = max(pursuable, key=lambda place: self._intentions[place].priority)
            return self._dispatch(replace(state, desire=chosen, step=state.progress.get(chosen, 0)), view)
        state = replace(state, desire=None)
        key = self.system.planner_agent.output_key
        if key is not None and view.pending(key):
            summary = f"No desire is left to pursue; finishing once '{key}' has arrived."
            return Move(state, Await((key,)), Outcome.AWAITING, summary)
        return Move(state, Done(), Outcome.NO_DESIRE, "No desire is left to pursue.")

    def _dispatch(self, state: BdiState, view: View) -> Move[BdiState]:
        """Run the next active agent of the intention; inactive ones are passed over."""
        intention = self._intentions[state.desire or 0]
        passed: list[Assessment] = []
        for step in range(state.step, len(intention.agents)):
            position = intention.agents[step]
            agent = self.system.agents[position]
            if not view.holds(agent.activation, agent.id):
                passed.append(Assessment(position, AgentStatus.INACTIVE))
                continue
            if state.invocations >= self.options.max_invocations:
                message = f"Gave up: the maximum of {self.options.max_invocations} invocations is used up."
                action = GiveUp(GiveUpReason.MAX_INVOCATIONS, message)
                return Move(state, action, Outcome.MAX_INVOCATIONS, message, _in_order(passed))
            called = Assessment(position, AgentStatus.CANDIDATE, called=True)
            return Move(
                replace(state, invocations=state.invocations + 1, step=step),
                Start((position,)),
                Outcome.CALLED,
                f"'{agent.name}' is next for the desire '{intention.name}' (priority {intention.priority}).",
                _in_order((*passed, called)),
            )
        count = len(intention.agents)
        message = (
            f"Gave up: the desire '{intention.name}' is not satisfied, and its intention has no agent left "
            f"({count} {'agent' if count == 1 else 'agents'})."
        )
        action = GiveUp(GiveUpReason.INTENTION_EXHAUSTED, message)
        return Move(state, action, Outcome.INTENTION_EXHAUSTED, message, _in_order(passed))


def _in_order(found: Iterable[Assessment]) -> tuple[Assessment, ...]:
    """Each agent once, by what was found last, in the order of declaration."""
    latest = {assessment.agent: assessment for assessment in found}
    return tuple(latest[agent] for agent in sorted(latest))
