"""The decision router: one decision, then the agents that it chose, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plannerd.decisions.answers import ChoiceAnswer, Refusal
from plannerd.decisions.questions import Choice, DecisionRequest, Option, YesNo
from plannerd.planners.asking import (
    argument_fields,
    has_answered,
    pending_keys,
    probability,
    refused,
    unavailable_agents,
    unavailable_warnings,
)
from plannerd.planners.base import PlannerBase
from plannerd.planners.moves import (
    AgentStatus,
    Assessment,
    Await,
    Done,
    GiveUp,
    GiveUpReason,
    Move,
    NoOp,
    Outcome,
    OutputOf,
    OutputsOf,
    ResultValue,
    Start,
    Warn,
    WarningCode,
)
from plannerd.planners.planner import (
    AskedAtMost,
    Need,
    PlannerMap,
    Report,
    Reported,
    Thinking,
    View,
    merge_reads,
)
from plannerd.planners.router.options import CheckedOptions
from plannerd.planners.router.state import RouterState, dump_cursor, dump_map, load
from plannerd.planners.system import System, Topology
from plannerd.values import Value


class DecisionRouter(PlannerBase[RouterState]):
    """A compiled router.

    Args:
        options: checked, with defaults filled in.
        system: the agents, checked.
    """

    kind = "router"
    topology = Topology.ROUTER
    refers = True

    def __init__(self, options: CheckedOptions, system: System) -> None:
        super().__init__(options, system)
        self.options: CheckedOptions = options
        self._unavailable = unavailable_agents(system)
        # After a resume from a bare planner map, presence tells whether a delayed output has arrived.
        delayed = [agent.output_key for agent in system.agents if agent.is_async or agent.human]
        self.reads = merge_reads(
            self.reads,
            {key: Need.PRESENCE for key in delayed if key is not None},
            dict.fromkeys(system.planner_agent.inputs, Need.VALUE),
        )
        count = len(system.agents)
        self.asks = AskedAtMost(questions=1, options=count) if self._chooses else AskedAtMost(questions=count)

    @property
    def _chooses(self) -> bool:
        return self.options.threshold is None

    # ---- the planner's interface -------------------------------------------------------------------

    def initial(self) -> RouterState:
        """Nothing is decided."""
        return RouterState()

    def begin(self, state: RouterState, view: View) -> Thinking[RouterState]:
        """Decide; or, from a planner map, run the activated agents that have no output yet.

        An output that has arrived meanwhile, or a human's answer, is not asked for again.
        """
        activated = state.activated
        if activated is None:
            return (yield from self._decide(state, view))
        open_calls = [position for position in activated if position not in state.answered | state.skipped]
        arrived = {
            position
            for position in open_calls
            if (position in state.pending or self.system.agents[position].human)
            and has_answered(self.system.agents[position], view)
        }
        on_the_way = {
            position for position in state.pending if view.pending(self.system.agents[position].output_key or "")
        }
        state = replace(state, answered=state.answered | arrived, pending=frozenset(on_the_way))
        missing = tuple(position for position in open_calls if position not in arrived | on_the_way)
        if not missing:
            return self._go_on(state, view)
        names = ", ".join(self.system.agents[position].name for position in missing)
        return Move(state, Start(missing, final=True), Outcome.RESUMED, f"Resumed with: {names}.")

    def told(self, state: RouterState, view: View, report: Report) -> Thinking[RouterState]:
        """Go on once every activated agent was reported."""
        one = frozenset((report.agent,))
        match report.outcome:
            case Reported.ANSWERED:
                state = replace(state, answered=state.answered | one)
            case Reported.SKIPPED:
                state = replace(state, skipped=state.skipped | one)
            case Reported.PENDING:
                state = replace(state, pending=state.pending | one)
        return self._go_on(state, view)
        yield  # a generator that asks nothing

    def proceed(self, state: RouterState, view: View) -> Thinking[RouterState]:
        """Everything has arrived: decide, if the arguments were waited for, or collect."""
        if state.activated is None:
            return (yield from self._decide(state, view))
        return self._go_on(state, view)

    def expects(self, state: RouterState) -> frozenset[int] | None:
        """The activated agents that were not reported yet."""
        return frozenset(state.activated or ()) - state.answered - state.pending - state.skipped

    def awaits(self, state: RouterState) -> frozenset[int]:
        """The activated agents whose outputs are on their way: the result has them all."""
        return state.pending

    def lost(self, state: RouterState, agent: int) -> RouterState:
        """The agent is left out of the result."""
        one = frozenset((agent,))
        return replace(state, pending=state.pending - one, skipped=state.skipped | one)

    def dump(self, state: RouterState) -> PlannerMap:
        """Who was activated, who has an output, whose was pending."""
        return dump_map(state, self.system)

    def dump_cursor(self, state: RouterState) -> PlannerMap:
        """Who was skipped."""
        return dump_cursor(state, self.system)

    def load(
        self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None
    ) -> tuple[RouterState, list[Warn]]:
        """The state from its plain form."""
        return load(planner_map, cursor, self.system)

    # ---- the rules ---------------------------------------------------------------------------------

    def _decide(self, state: RouterState, view: View) -> Thinking[RouterState]:
        warnings = unavailable_warnings(self.system, self._unavailable)
        assessments = tuple(self._assess(position, view) for position in range(len(self.system.agents)))
        active = tuple(found.agent for found in assessments if found.status is AgentStatus.CANDIDATE)
        if not active:
            return self._nobody(state, assessments, warnings)
        if self._chooses and len(active) == 1:
            return self._activate(state, active, assessments, warnings, "the only active agent, nothing was asked")
        waiting = pending_keys(self.system.planner_agent.inputs, view)
        if waiting:
            summary = f"The decision needs values that are on their way: {', '.join(waiting)}."
            return Move(state, Await(waiting), Outcome.AWAITING, summary, assessments)
        if self._chooses:
            return (yield from self._choose(state, view, active, assessments, warnings))
        return (yield from self._select(state, view, active, assessments, warnings))

    def _assess(self, position: int, view: View) -> Assessment:
        agent = self.system.agents[position]
        if position in self._unavailable:
            return Assessment(position, AgentStatus.UNAVAILABLE)
        if not view.holds(agent.activation, agent.id):
            return Assessment(position, AgentStatus.INACTIVE)
        return Assessment(position, AgentStatus.CANDIDATE)

    def _nobody(
        self, state: RouterState, assessments: tuple[Assessment, ...], warnings: tuple[Warn, ...]
    ) -> Move[RouterState]:
        state = replace(state, activated=())
        if self._chooses:
            message = "Gave up: no agent is active, so there is none to choose."
            action = GiveUp(GiveUpReason.NO_ACTIVE_AGENT, message)
            return Move(state, action, Outcome.NONE_ACTIVATED, message, assessments, warnings=warnings)
        summary = "No agent is active; the result is an empty map."
        return Move(state, Done(OutputsOf(())), Outcome.NONE_ACTIVATED, summary, assessments, warnings=warnings)

    def _choose(
        self,
        state: RouterState,
        view: View,
        active: tuple[int, ...],
        assessments: tuple[Assessment, ...],
        warnings: tuple[Warn, ...],
    ) -> Thinking[RouterState]:
        """One choice question; the chosen option is taken, not the one with the highest probability."""
        agents = {self.system.agents[position].name: position for position in active}
        options = tuple(Option(name, self.system.agents[position].described) for name, position in agents.items())
        question = Choice("decision-agent", self.options.choice_question, options)
        answers = yield DecisionRequest(argument_fields(self.system, view), (question,))
        match answers[question.name]:
            case ChoiceAnswer(value=chosen, probabilities=given):
                pass
            case Refusal():
                raise refused(question.name, "which agent is best suited")
            case other:
                raise TypeError(f"the choice question was answered by {type(other).__name__}")
        probabilities = given or {}
        likeliest = max(probabilities, key=lambda name: probabilities[name], default=chosen)
        if probabilities.get(chosen, 0.0) < probabilities.get(likeliest, 0.0):
            message = f"The model chose '{chosen}' although it finds '{likeliest}' more probable; its choice is taken."
            warnings = (*warnings, Warn(WarningCode.CHOICE_NOT_MOST_PROBABLE, message, chosen))
        scored = tuple(
            replace(found, score=probabilities.get(self.system.agents[found.agent].name)) for found in assessments
        )
        return self._activate(state, (agents[chosen],), scored, warnings, "the model's choice")

    def _select(
        self,
        state: RouterState,
        view: View,
        active: tuple[int, ...],
        assessments: tuple[Assessment, ...],
        warnings: tuple[Warn, ...],
    ) -> Thinking[RouterState]:
        """A yes/no question for each active agent, all in one request."""
        threshold = self.options.threshold or 0.0
        agents = {position: self.system.agents[position] for position in active}
        questions = tuple(YesNo(agent.name, self.options.relevance(agent)) for agent in agents.values())
        answers = yield DecisionRequest(argument_fields(self.system, view), questions)
        scores = {
            position: probability(
                answers[agent.name], agent.name, f"whether the agent '{agent.name}' should handle the request"
            )
            for position, agent in agents.items()
        }
        scored = tuple(
            replace(found, score=scores[found.agent], threshold=threshold) if found.agent in scores else found
            for found in assessments
        )
        chosen = tuple(position for position in active if scores[position] >= threshold)
        if not chosen:
            state = replace(state, activated=())
            summary = f"No agent reaches {threshold:g}; the result is an empty map."
            return Move(state, Done(OutputsOf(())), Outcome.NONE_ACTIVATED, summary, scored, warnings=warnings)
        return self._activate(state, chosen, scored, warnings, f"probability >= {threshold:g}")

    def _activate(
        self,
        state: RouterState,
        chosen: tuple[int, ...],
        assessments: tuple[Assessment, ...],
        warnings: tuple[Warn, ...],
        why: str,
    ) -> Move[RouterState]:
        names = ", ".join(self.system.agents[position].name for position in chosen)
        return Move(
            replace(state, activated=chosen),
            Start(chosen, final=True),
            Outcome.CALLED,
            f"Activated {names} ({why}).",
            tuple(replace(found, called=found.agent in chosen) for found in assessments),
            warnings=warnings,
        )

    def _go_on(self, state: RouterState, view: View) -> Move[RouterState]:
        if not state.settled:
            return Move(state, NoOp(), Outcome.RECORDED, "Recorded; other agents are still running.")
        keys = dict.fromkeys(self.system.agents[position].output_key or "" for position in sorted(state.pending))
        waiting = pending_keys(keys, view)
        if waiting:
            summary = f"The result needs outputs that are on their way: {', '.join(waiting)}."
            return Move(state, Await(waiting), Outcome.AWAITING, summary)
        return self._collect(replace(state, answered=state.answered | state.pending, pending=frozenset()))

    def _collect(self, state: RouterState) -> Move[RouterState]:
        answered = tuple(position for position in state.activated or () if position not in state.skipped)
        if not self._chooses:
            outputs = tuple((self.system.agents[position].name, position) for position in answered)
            return Move(state, Done(OutputsOf(outputs)), Outcome.COLLECTED, "Every activated agent has answered.")
        result = OutputOf(answered[0]) if answered else ResultValue(None)
        summary = "The chosen agent has answered." if answered else "The chosen agent was skipped; the result is null."
        return Move(state, Done(result), Outcome.COLLECTED, summary)
