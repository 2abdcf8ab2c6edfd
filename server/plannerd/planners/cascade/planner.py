"""The confidence cascade: agents are tried in order until a decision model accepts an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from plannerd.decisions.questions import DecisionRequest, Field, YesNo
from plannerd.errors import PlannerdError, Reason
from plannerd.planners.asking import argument_fields, has_answered, pending_keys, probability
from plannerd.planners.base import PlannerBase
from plannerd.planners.cascade.options import CANDIDATE, CheckedOptions
from plannerd.planners.fields import Fields
from plannerd.planners.moves import (
    AgentStatus,
    Assessment,
    Await,
    Done,
    Move,
    Outcome,
    OutputOf,
    Result,
    ResultValue,
    Start,
    Warn,
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
from plannerd.planners.system import System, Topology
from plannerd.values import Value


@dataclass(frozen=True, slots=True)
class CascadeState:
    """Where a cascade stands.

    Attributes:
        tier: the position of the agent being tried; None before the first.
        latest: the position of the agent that answered last.
        ungraded: its answer, while the grade waits for an argument. Never saved: a state holds no outputs.
        waiting: whether there is such an answer, here or where the state was saved.
        skipped: the tier's answer was on its way, and then it was skipped; true within one step only.
    """

    tier: int | None = None
    latest: int | None = None
    ungraded: tuple[Value] | None = None
    waiting: bool = False
    skipped: bool = False


class ConfidenceCascade(PlannerBase[CascadeState]):
    """A compiled cascade; its agents are the tiers, in the order of declaration.

    Args:
        options: checked, with defaults filled in.
        system: the agents, checked.
    """

    kind = "cascade"
    topology = Topology.SEQUENCE
    refers = True
    asks = AskedAtMost(questions=1)

    def __init__(self, options: CheckedOptions, system: System) -> None:
        super().__init__(options, system)
        self.options: CheckedOptions = options
        self._last = len(system.agents) - 1
        self._question = YesNo("answer-accepted", self.options.question, yes_when=self.options.criterion)
        self.reads = merge_reads(self.reads, dict.fromkeys(system.planner_agent.inputs, Need.VALUE))
        for position, agent in enumerate(system.agents):
            # A delayed answer is read from the scope; of the last tier's, never graded, whether it is there.
            if agent.output_key is not None and (agent.is_async or agent.human):
                need = Need.PRESENCE if position == self._last else Need.VALUE
                self.reads = merge_reads(self.reads, {agent.output_key: need})

    # ---- the planner's interface -------------------------------------------------------------------

    def output_need(self, agent: int) -> Need:
        """The answer itself, as it will be graded; of the last tier only what conditions read."""
        if agent != self._last:
            return Need.VALUE
        return self.reads.get(self.system.agents[agent].output_key or "", Need.NONE)

    def reads_at(self, state: CascadeState) -> Mapping[str, Need]:
        """Also the key of an answer that waits for its grade, where only the scope of the client still has it."""
        if not (state.waiting and state.ungraded is None) or state.tier is None:
            return self.reads
        key = self.system.agents[state.tier].output_key
        return self.reads if key is None else merge_reads(self.reads, {key: Need.VALUE})

    def initial(self) -> CascadeState:
        """No tier was tried."""
        return CascadeState()

    def begin(self, state: CascadeState, view: View) -> Thinking[CascadeState]:
        """Try the first active tier; or, from a planner map, the tier that was being tried.

        A human who has answered meanwhile is not asked again: the answer is graded.
        """
        if state.tier is None:
            return self._try_next(state, view)
        agent = self.system.agents[state.tier]
        if agent.human and has_answered(agent, view):
            return (yield from self._grade(state, view, self._answer_in_scope(state, view)))
        summary = f"Resumed with '{agent.name}', which was being tried."
        return Move(state, Start((state.tier,), final=state.tier == self._last), Outcome.RESUMED, summary)

    def told(self, state: CascadeState, view: View, report: Report) -> Thinking[CascadeState]:
        """Grade the answer of the tier being tried, pass over a skipped one, or wait for a delayed one."""
        if report.outcome is Reported.SKIPPED:
            return self._try_next(state, view)
        if report.outcome is Reported.PENDING:
            key = self.system.agents[report.agent].output_key or ""
            return Move(state, Await((key,)), Outcome.AWAITING, "The answer of the tier is on its way.")
        return (yield from self._grade(state, view, report.value))

    def proceed(self, state: CascadeState, view: View) -> Thinking[CascadeState]:
        """Grade the answer, now that it or the arguments have arrived; or pass over a tier that was skipped."""
        if state.skipped or state.tier is None:
            return self._try_next(replace(state, skipped=False), view)
        if state.waiting and state.ungraded is None and self.system.agents[state.tier].output_key is None:
            # The state was restored, and no key has the answer: it can't be graded any more, only kept.
            return self._try_next(replace(state, waiting=False), view)
        answer = state.ungraded[0] if state.ungraded else self._answer_in_scope(state, view)
        return (yield from self._grade(replace(state, ungraded=None, waiting=False), view, answer))

    def dump(self, state: CascadeState) -> PlannerMap:
        """The tier being tried and the latest that answered."""
        return {"tier": self._name(state.tier), "latest": self._name(state.latest)}

    def lost(self, state: CascadeState, agent: int) -> CascadeState:
        """The tier is passed over without a grade."""
        return replace(state, skipped=agent == state.tier)

    def dump_cursor(self, state: CascadeState) -> PlannerMap:
        """Whether an answer waits to be graded."""
        return {"waiting": state.waiting}

    def dump_outputs(self, state: CascadeState) -> list[Value]:
        """The answer that waits for its grade."""
        return list(state.ungraded or ())

    def load_outputs(self, state: CascadeState, outputs: list[Value]) -> CascadeState:
        """The state with that answer."""
        return replace(state, ungraded=(outputs[0],))

    def load(
        self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None
    ) -> tuple[CascadeState, list[Warn]]:
        """The state from its plain form."""
        fields = Fields(planner_map, "planner")
        tier, latest = fields.optional_text("tier"), fields.optional_text("latest")
        fields.done()
        waiting = False
        if cursor is not None:
            extra = Fields(cursor, "cursor")
            waiting = extra.boolean("waiting")
            extra.done()
        return CascadeState(self._position(tier), self._position(latest), waiting=waiting), []

    # ---- the rules ---------------------------------------------------------------------------------

    def _name(self, position: int | None) -> str | None:
        return None if position is None else self.system.reference(position)

    def _position(self, name: str | None) -> int | None:
        if name is None:
            return None
        position = self.system.by_reference.get(name)
        if position is None:
            raise PlannerdError(
                Reason.LIVE_AGENT_MISSING,
                f"The state to resume names the tier '{name}', which is not declared. Declare it again.",
                metadata={"agent": name},
            )
        return position

    @staticmethod
    def _wait(state: CascadeState, keys: tuple[str, ...]) -> Move[CascadeState]:
        summary = f"The grade needs values that are on their way: {', '.join(keys)}."
        return Move(state, Await(keys), Outcome.AWAITING, summary)

    def _answer_in_scope(self, state: CascadeState, view: View) -> Value:
        tier = self.system.agents[state.tier or 0]
        graded = state.tier != self._last and self._next_active(state, view)[0] is not None
        return view.value(tier.output_key or "") if graded else None

    def _next_active(self, state: CascadeState, view: View) -> tuple[int | None, tuple[Assessment, ...]]:
        """The first active tier after the one being tried, and what was found on the way."""
        found: list[Assessment] = []
        for position in range(0 if state.tier is None else state.tier + 1, len(self.system.agents)):
            agent = self.system.agents[position]
            if view.holds(agent.activation, agent.id):
                found.append(Assessment(position, AgentStatus.CANDIDATE))
                return position, tuple(found)
            found.append(Assessment(position, AgentStatus.INACTIVE))
        return None, tuple(found)

    def _try_next(self, state: CascadeState, view: View, tried: tuple[Assessment, ...] = ()) -> Move[CascadeState]:
        position, found = self._next_active(state, view)
        if position is None:
            result: Result = ResultValue(None) if state.latest is None else OutputOf(state.latest)
            summary = "No tier is left to try; the result is the latest answer, or null if there was none."
            return Move(state, Done(result), Outcome.ALL_SKIPPED, summary, (*tried, *found))
        name = self.system.agents[position].name
        why = "the answer before it was not accepted" if tried else "the next tier"
        return Move(
            replace(state, tier=position),
            Start((position,), final=position == self._last),
            Outcome.CALLED,
            f"Trying '{name}': {why}.",
            (*tried, *(replace(item, called=item.agent == position) for item in found)),
        )

    def _grade(self, state: CascadeState, view: View, answer: Value) -> Thinking[CascadeState]:
        """Accept the answer or try the next tier; without a next one, return it ungraded."""
        tier = state.tier or 0
        state = replace(state, latest=tier)
        position, found = self._next_active(state, view)
        if position is None:
            summary = f"The answer of '{self.system.agents[tier].name}' is returned ungraded: no later tier is active."
            return Move(state, Done(OutputOf(tier)), Outcome.UNGRADED, summary, found)
        waiting = pending_keys(self.system.planner_agent.inputs, view)
        if waiting:
            return self._wait(replace(state, ungraded=(answer,), waiting=True), waiting)
        fields = (*argument_fields(self.system, view), Field(CANDIDATE, answer, rank=1))
        answers = yield DecisionRequest(fields, (self._question,))
        name, threshold = self._question.name, self.options.threshold
        grade = probability(answers[name], name, "whether the answer is good enough")
        graded = (Assessment(tier, AgentStatus.CANDIDATE, score=grade, threshold=threshold),)
        if grade >= threshold:
            summary = f"The answer of '{self.system.agents[tier].name}' is accepted: {grade:.3f} >= {threshold:g}."
            return Move(state, Done(OutputOf(tier)), Outcome.ACCEPTED, summary, graded)
        return self._try_next(state, view, graded)
