"""The decision scheduler: at each step it runs the agent that a decision model finds most useful.

Each move goes: which agents can run; one request with a usefulness question for each of them and, unless
the result can't exist yet, a question whether the goal is reached; then stop, or call the best one.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from plannerd.decisions.answers import Refusal, ScaleAnswer
from plannerd.decisions.questions import DecisionRequest, Field, Question, Scale, YesNo
from plannerd.planners.asking import (
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
    GoalAssessment,
    Move,
    Outcome,
    Start,
    Warn,
    WarningCode,
)
from plannerd.planners.planner import (
    Answers,
    AskedAtMost,
    Need,
    PlannerMap,
    Report,
    Reported,
    Thinking,
    View,
    merge_reads,
)
from plannerd.planners.scheduler.options import CheckedOptions
from plannerd.planners.scheduler.state import SchedulerState, dump_cursor, dump_map, load
from plannerd.planners.system import System, Topology
from plannerd.values import Value


class DecisionScheduler(PlannerBase[SchedulerState]):
    """A compiled scheduler: options and agents, checked, with everything that never changes made once.

    Args:
        options: checked, with defaults filled in.
        system: the agents, checked.
    """

    kind = "scheduler"
    topology = Topology.STAR

    def __init__(self, options: CheckedOptions, system: System) -> None:
        super().__init__(options, system)
        self.options: CheckedOptions = options
        excluded = self.options.excluded
        self._arguments = tuple(key for key in system.planner_agent.inputs if key not in excluded)
        arguments = frozenset(self._arguments)
        self._outputs = tuple(key for key in system.output_keys if key not in excluded and key not in arguments)
        self._input_keys = self._arguments + self._outputs
        self._mandatory = tuple(
            tuple(argument.name for argument in agent.arguments if argument.mandatory) for agent in system.agents
        )
        readers: dict[str, set[int]] = {}
        for position, agent in enumerate(system.agents):
            for argument in agent.arguments:
                if not argument.framework:
                    readers.setdefault(argument.name, set()).add(position)
        self._readers = {key: frozenset(positions) for key, positions in readers.items()}
        self._result_key = system.planner_agent.output_key if system.result_key_written else None
        self._usefulness = tuple(self._usefulness_question(position) for position in range(len(system.agents)))
        self._goal = self._goal_question()
        self._without_description = unavailable_agents(system)
        self.watched = frozenset(self._readers)
        self.reads = merge_reads(
            self.reads, dict.fromkeys(self._input_keys, Need.VALUE), dict.fromkeys(self._readers, Need.PRESENCE)
        )
        self.asks = AskedAtMost(questions=len(system.agents), levels=len(self.options.usefulness_levels))

    # ---- what never changes ------------------------------------------------------------------------

    def _usefulness_question(self, position: int) -> Scale:
        agent = self.system.agents[position]
        text = self.options.usefulness_question.render(
            {"name": agent.name, "description": agent.described, "goal": self.options.goal}
        )
        return Scale(self.system.reference(position), text, self.options.usefulness_levels)

    def _goal_question(self) -> YesNo:
        taken = {question.name for question in self._usefulness}
        name = "goal"
        while name in taken:
            name = f"_{name}"
        return YesNo(name, self.options.goal_question.render({"goal": self.options.goal}))

    # ---- the planner's interface -------------------------------------------------------------------

    def initial(self) -> SchedulerState:
        """No agent has run."""
        return SchedulerState()

    def begin(self, state: SchedulerState, view: View) -> Thinking[SchedulerState]:
        """Decide; or, from a planner map that was running an agent, run that one again.

        A human who has answered meanwhile is not asked again: the planner decides on the answer.
        """
        fresh = self._without_description - state.unavailable
        state = replace(state, unavailable=state.unavailable | fresh)
        warnings = unavailable_warnings(self.system, fresh)
        if state.current is None:
            return (yield from self._decide(state, view, warnings))
        agent = self.system.agents[state.current]
        key = agent.output_key
        if agent.human and key is not None and has_answered(agent, view):
            answered = replace(state, current=None, blocked=state.blocked - self._readers.get(key, frozenset()))
            return (yield from self._decide(self._wrote(answered, key), view, warnings))
        return Move(
            state,
            Start((state.current,)),
            Outcome.RESUMED,
            f"Resumed with '{agent.name}', which was being run.",
            warnings=warnings,
        )

    def told(self, state: SchedulerState, view: View, report: Report) -> Thinking[SchedulerState]:
        """Decide, now that the agent being run has answered, was skipped, or will answer later."""
        state = replace(state, current=None)
        key = self.system.agents[report.agent].output_key
        if key is not None and report.outcome is not Reported.SKIPPED:
            state = self._wrote(state, key)
        return (yield from self._decide(state, view))

    def proceed(self, state: SchedulerState, view: View) -> Thinking[SchedulerState]:
        """Decide, now that the input has no pending key left."""
        return (yield from self._decide(state, view))

    def expects(self, state: SchedulerState) -> frozenset[int] | None:
        """The agent being run."""
        return frozenset() if state.current is None else frozenset((state.current,))

    def dump(self, state: SchedulerState) -> PlannerMap:
        """Invocations, who cannot run again yet, who is being run."""
        return dump_map(state, self.system)

    def dump_cursor(self, state: SchedulerState) -> PlannerMap:
        """Who is left out, and which outputs are newest."""
        return dump_cursor(state, self.system)

    def load(
        self, planner_map: Mapping[str, Value], cursor: Mapping[str, Value] | None
    ) -> tuple[SchedulerState, list[Warn]]:
        """The state from its plain form."""
        return load(planner_map, cursor, self.system)

    # ---- the rules ---------------------------------------------------------------------------------

    @staticmethod
    def _wrote(state: SchedulerState, key: str) -> SchedulerState:
        return replace(state, recent=(*(other for other in state.recent if other != key), key))

    def _decide(
        self, state: SchedulerState, view: View, warnings: tuple[Warn, ...] = ()
    ) -> Generator[DecisionRequest, Answers, Move[SchedulerState]]:
        """One decision, in the order that docs/planners/scheduler.md gives."""
        rearmed: frozenset[int] = frozenset().union(*(self._readers[key] for key in view.changed))
        state = replace(state, blocked=state.blocked - rearmed)
        if state.invocations >= self.options.max_invocations:
            return self._out_of_invocations(state, view, warnings)
        assessments = tuple(self._assess(position, state, view) for position in range(len(self.system.agents)))
        candidates = [found.agent for found in assessments if found.status is AgentStatus.CANDIDATE]
        if not candidates:
            return self._stop(
                state,
                view,
                Outcome.NO_CANDIDATE,
                GiveUpReason.NO_CANDIDATE,
                "no agent can run, and the goal was not judged",
                assessments,
                warnings,
            )
        pending = pending_keys(self._input_keys, view)
        if pending:
            return Move(
                state,
                Await(pending),
                Outcome.AWAITING,
                f"The decision needs outputs that are on their way: {', '.join(pending)}.",
                assessments,
                warnings=warnings,
            )
        judged = self._result_key is None or view.present(self._result_key)
        questions: list[Question] = [self._usefulness[position] for position in candidates]
        if judged:
            questions.append(self._goal)
        answers = yield DecisionRequest(self._input(state, view), tuple(questions))
        return self._choose(state, view, answers, candidates, assessments, judged, warnings)

    def _assess(self, position: int, state: SchedulerState, view: View) -> Assessment:
        agent = self.system.agents[position]
        if position in state.unavailable:
            return Assessment(position, AgentStatus.UNAVAILABLE)
        missing = tuple(key for key in self._mandatory[position] if not view.present(key))
        if missing:
            return Assessment(position, AgentStatus.MISSING_KEY, missing_keys=missing)
        if position in state.blocked:
            return Assessment(position, AgentStatus.UNCHANGED)
        # Last, so that a condition may count on the agent's arguments being there.
        if not view.holds(agent.activation, agent.id):
            return Assessment(position, AgentStatus.INACTIVE)
        return Assessment(position, AgentStatus.CANDIDATE)

    def _input(self, state: SchedulerState, view: View) -> tuple[Field, ...]:
        rank = {key: position + 1 for position, key in enumerate(state.recent)}
        fields = [Field(key, view.value(key), rank.get(key, 0)) for key in self._arguments]
        fields.extend(Field(key, view.value(key), rank.get(key, 0)) for key in self._outputs if view.present(key))
        return tuple(fields)

    def _choose(
        self,
        state: SchedulerState,
        view: View,
        answers: Answers,
        candidates: list[int],
        assessments: tuple[Assessment, ...],
        judged: bool,
        warnings: tuple[Warn, ...],
    ) -> Move[SchedulerState]:
        goal = GoalAssessment(self.options.goal_threshold, result_missing=not judged)
        if judged:
            found = probability(answers[self._goal.name], self._goal.name, "whether the goal is reached")
            goal = replace(goal, probability=found)
        reached = goal.probability is not None and goal.probability >= self.options.goal_threshold
        # A refused usefulness does not matter once the goal is reached.
        scores = {position: self._score(position, answers, needed=not reached) for position in candidates}
        assessments = tuple(
            replace(found, score=scores[found.agent], threshold=self.options.activation_threshold)
            if found.agent in scores
            else found
            for found in assessments
        )
        if reached:
            summary = f"The goal is reached: {goal.probability:.3f} >= {goal.threshold:g}."
            return Move(state, Done(), Outcome.GOAL_REACHED, summary, assessments, goal, warnings)
        # max() keeps the first of equals: the first declared agent wins a tie.
        best = max(candidates, key=lambda position: scores[position] or 0.0)
        agent, score, least = self.system.agents[best], scores[best] or 0.0, self.options.activation_threshold
        if score < least:
            return self._stop(
                state,
                view,
                Outcome.BELOW_THRESHOLD,
                GiveUpReason.BELOW_THRESHOLD,
                f"no agent is useful enough: the best, '{agent.name}', has {score:.3f} < {least:g}",
                assessments,
                warnings,
                goal,
            )
        called = replace(state, invocations=state.invocations + 1, blocked=state.blocked | {best}, current=best)
        return Move(
            called,
            Start((best,), final=called.invocations >= self.options.max_invocations),
            Outcome.CALLED,
            f"'{agent.name}' is the most useful agent now: {score:.3f} >= {least:g}.",
            tuple(replace(found, called=found.agent == best) for found in assessments),
            goal,
            warnings,
        )

    def _score(self, position: int, answers: Answers, *, needed: bool) -> float | None:
        question = self._usefulness[position]
        match answers[question.name]:
            case ScaleAnswer(mean=mean):
                return mean / (len(self.options.usefulness_levels) - 1)
            case Refusal():
                if needed:
                    raise refused(question.name, f"how useful the agent '{self.system.agents[position].name}' is")
                return None
            case other:
                raise TypeError(f"a usefulness question was answered by {type(other).__name__}")

    def _out_of_invocations(
        self, state: SchedulerState, view: View, warnings: tuple[Warn, ...]
    ) -> Move[SchedulerState]:
        maximum = self.options.max_invocations
        message = f"the maximum of {maximum} invocations is used up"
        warn = Warn(WarningCode.MAX_INVOCATIONS, f"Stopped: {message}; the decision model was not asked again.")
        return self._stop(
            state,
            view,
            Outcome.MAX_INVOCATIONS,
            GiveUpReason.MAX_INVOCATIONS,
            message,
            (),
            (*warnings, warn),
        )

    def _stop(
        self,
        state: SchedulerState,
        view: View,
        outcome: Outcome,
        reason: GiveUpReason,
        why: str,
        assessments: tuple[Assessment, ...],
        warnings: tuple[Warn, ...],
        goal: GoalAssessment | None = None,
    ) -> Move[SchedulerState]:
        """Stop without the goal: with what the scope holds, or by giving up if the result was never written."""
        key = self._result_key
        if key is not None and not view.present(key):
            message = f"Gave up: {why}, and '{key}' has not been written yet."
            return Move(state, GiveUp(reason, message), outcome, message, assessments, goal, warnings)
        if key is not None and view.pending(key):
            summary = f"Stopping ({why}) once '{key}' has arrived."
            return Move(state, Await((key,)), Outcome.AWAITING, summary, assessments, goal, warnings)
        return Move(state, Done(), outcome, f"Stopped: {why}.", assessments, goal, warnings)
