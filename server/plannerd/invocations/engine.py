"""The engine: every request of a client, against the state table of the contract.

Calls for one invocation are serialised; different invocations never wait for each other. A step is
committed by one `Store.put`, with its encoded reply; whatever fails before that leaves the invocation as
it was.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from plannerd.conditions import Beliefs
from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.errors import PlannerdError, Reason, Violation, invalid
from plannerd.invocations.commands import (
    EndCommand,
    FirstActionCommand,
    InitCommand,
    InitReply,
    NextActionCommand,
    StepEvent,
    StepReply,
)
from plannerd.invocations.decider import Decider
from plannerd.invocations.explanation import ExplainLevel, Explanation
from plannerd.invocations.locks import KeyedLocks
from plannerd.invocations.position import Position, Relation, relate
from plannerd.invocations.record import Definition, Record, Reply, Tombstone
from plannerd.invocations.resume import check_replaceable, init_digest, resumed, taken_over
from plannerd.invocations.scope import ScopeLimits
from plannerd.invocations.state_format import dump_state
from plannerd.invocations.store import Key, Store
from plannerd.invocations.transition import Transition
from plannerd.planners.moves import Outcome, Warn
from plannerd.planners.planner import Planner, belief_names
from plannerd.planners.registry import Registry

Encode: TypeAlias = Callable[[StepReply], bytes]
"""Turns a reply into the bytes that are sent, stored and repeated."""

Stepped: TypeAlias = tuple[Record, Explanation, tuple[Warn, ...]]


_NOT_OWNER: Final = (Relation.FENCED, Relation.FORKED)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The bounds of one invocation.

    Attributes:
        max_reply_bytes: bytes of one reply.
        scope: how much scope is kept.
        decision_timeout: seconds for one request to a decision model where the client sets none.
        definition_bytes: about how many bytes of compiled configurations are kept for the next Init.
    """

    max_reply_bytes: int = 4 << 20
    scope: ScopeLimits = field(default_factory=ScopeLimits)
    decision_timeout: float = 30.0
    definition_bytes: int = 64 << 20


class Engine:
    """Runs invocations.

    Args:
        models: the decision models.
        store: where invocations are kept.
        encode: encodes a reply.
        limits: bounds.
        planners: the planners; default: those of the contract.
        clock: monotonic seconds.
        new_branch: makes the random part of a position.
        observe: hears of every committed step.
    """

    def __init__(
        self,
        models: DecisionModels,
        store: Store,
        encode: Encode,
        limits: EngineLimits = EngineLimits(),
        *,
        planners: Registry | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_branch: Callable[[], str] = lambda: secrets.token_hex(5),
        observe: Callable[[StepEvent], None] = lambda event: None,
    ) -> None:
        self.limits = limits
        self.planners = planners or Registry()
        self._models = models
        self._store = store
        self._encode = encode
        self._clock = clock
        self._new_branch = new_branch
        self._observe = observe
        self._locks = KeyedLocks()
        self._definitions: OrderedDict[bytes, Definition] = OrderedDict()
        self._definition_bytes = 0

    # ---- requests ----------------------------------------------------------------------------------

    async def init(self, identity: str, command: InitCommand) -> InitReply:
        """Start or continue an invocation (rows 3 to 8b)."""
        definition = self._define(command)
        named = self._model(definition.planner, command.options.model)
        options = replace(command.options, model=named.name if named else "")
        fresh = Record(
            invocation_id=command.invocation_id,
            definition=definition,
            options=options,
            position=Position(1, 0, self._new_branch()),
            init_digest=init_digest(command, definition),
            planner_state=definition.planner.initial(),
            traceparent=command.traceparent,
        )
        record = resumed(fresh, command)
        if command.validate_only:
            return self._init_reply(record, started=False)
        key = (identity, command.invocation_id)
        async with self._locks.hold(key):
            existing = await self._store.get(key)
            if isinstance(existing, Tombstone):
                raise _ended(command.invocation_id)
            if isinstance(existing, Record) and not command.take_over:
                if existing.init_digest == record.init_digest and existing.reply is None:
                    return self._init_reply(existing)
                check_replaceable(existing, command)
            if command.take_over:
                record = taken_over(record, existing, self._new_branch())
            await self._store.put(key, record)
        return self._init_reply(record)

    async def first_action(self, identity: str, command: FirstActionCommand, digest: bytes) -> bytes:
        """Give the scope and get the first action, or attach to a running invocation (rows 16, 17).

        Attaching is no step: it decides nothing and moves no position, so that it may be repeated, and so that
        a request whose reply was lost can be sent again as it was.
        """

        async def step(record: Record, transition: Transition) -> Stepped:
            if record.action is None:
                return await transition.begin(command.scope)
            return transition.attach(command.scope)

        return await self._step(identity, command, digest, step)

    async def next_action(self, identity: str, command: NextActionCommand, digest: bytes) -> bytes:
        """Report results and get the next action (rows 15, 18 to 26)."""

        async def step(record: Record, transition: Transition) -> Stepped:
            if record.action is None or not record.attached:
                raise PlannerdError(
                    Reason.OUT_OF_ORDER,
                    "This invocation has no scope here yet: call FirstAction with a snapshot before NextAction.",
                )
            return await transition.report(command.scope, command.results)

        return await self._step(identity, command, digest, step)

    async def execution_state(self, identity: str, invocation_id: str) -> bytes:
        """The last step, with its execution state."""
        record = await self._live((identity, invocation_id), invocation_id)
        if record.reply is not None:
            return record.reply.encoded
        if record.action is None:
            raise PlannerdError(
                Reason.OUT_OF_ORDER, "This invocation has not begun: call FirstAction first, there is no step yet."
            )
        explanation = Explanation(Outcome.RESUMED, "Restored from an execution state; no step was made since.")
        return self._fit(record, self._reply(record, explanation, record.warnings))

    async def end(self, identity: str, command: EndCommand) -> None:
        """Release an invocation (row 28)."""
        key = (identity, command.invocation_id)
        async with self._locks.hold(key):
            existing = await self._store.get(key)
            if existing is None:
                return
            if command.base is not None and relate(command.base, existing.position) in _NOT_OWNER:
                raise _owner_changed(command.invocation_id, existing.position)
            if isinstance(existing, Record):
                await self._store.end(key, Tombstone(existing.position))

    # ---- the step as a transaction -----------------------------------------------------------------

    async def _step(
        self,
        identity: str,
        command: FirstActionCommand | NextActionCommand,
        digest: bytes,
        step: Callable[[Record, Transition], Awaitable[Stepped]],
    ) -> bytes:
        key = (identity, command.invocation_id)
        async with self._locks.hold(key):
            record = await self._live(key, command.invocation_id)
            repeated = await self._place(key, record, command.base, digest)
            if repeated is not None:
                return repeated
            if record.terminal:
                raise PlannerdError(
                    Reason.INVOCATION_FINISHED,
                    "This invocation is finished; its last answer says how. Start another one under a new id.",
                    metadata={"invocation_id": command.invocation_id},
                )
            _check_beliefs(record.definition, command.beliefs)
            started = self._clock()
            # That the model takes what the planner asks was checked when the record was made.
            named = self._models.get(record.options.model) if record.definition.planner.asks else None
            decider = Decider(self._models, named, record.options, self.limits.decision_timeout, self._clock)
            transition = Transition(record, command.beliefs, decider.ask, self.limits.scope)
            after, explanation, warnings = await step(record, transition)
            explanation = replace(explanation, decisions=tuple(decider.records), seconds=self._clock() - started)
            if decider.records:
                after = replace(after, model=decider.records[-1].response.model)
            reply = self._reply(after, explanation, (*warnings, *decider.warnings))
            encoded = self._fit(after, reply)
            if after.position != record.position:
                after = replace(after, reply=Reply(encoded, command.base, digest))
            await self._store.put(key, after)
        self._observe(StepEvent(identity, command.invocation_id, reply))
        return encoded

    async def _live(self, key: Key, invocation_id: str) -> Record:
        record = await self._store.get(key)
        if isinstance(record, Tombstone):
            raise _ended(invocation_id)
        if record is None:
            raise PlannerdError(
                Reason.INVOCATION_NOT_FOUND,
                f"There is no invocation '{invocation_id}' here. Start it with Init, or continue it with "
                "Init(resume) from its last execution state.",
                metadata={"invocation_id": invocation_id},
            )
        return record

    async def _place(self, key: Key, record: Record, base: Position, digest: bytes) -> bytes | None:
        """Hold the base against the position (rows 9 to 13): the stored reply for a repeat, None to go on."""
        current = record.position
        if base.epoch < 1 or base.revision < 0 or not base.branch:
            raise invalid("base", "is no position: send back the one of the last answer, whole")
        match relate(base, current):
            case Relation.CURRENT:
                return None
            case Relation.FORKED if record.action is not None:
                raise _owner_changed(record.invocation_id, current)
            case Relation.FENCED:
                raise _owner_changed(record.invocation_id, current)
            case Relation.AHEAD | Relation.FORKED:
                # A fork of an invocation that has made no step here is one that went on elsewhere.
                await self._store.drop(key)
                raise PlannerdError(
                    Reason.REPLICA_BEHIND,
                    "This replica has an older copy of the invocation and dropped it. Continue here with "
                    "Init(resume) from your last execution state.",
                    metadata=current.metadata(),
                )
            case Relation.PREVIOUS if (
                record.reply is not None and record.reply.request_digest == digest and record.reply.base == base
            ):
                return record.reply.encoded
            case _:
                raise PlannerdError(
                    Reason.STALE_REVISION,
                    f"The base is revision {base.revision}, but the invocation is at {current.revision}: another "
                    "request made that step. Ask ExecutionState where it stands.",
                    metadata=current.metadata(),
                )

    # ---- replies -----------------------------------------------------------------------------------

    def _init_reply(self, record: Record, *, started: bool = True) -> InitReply:
        planner = record.definition.planner
        return InitReply(
            position=record.position if started else None,
            topology=planner.topology,
            warnings=record.warnings,
            reads=planner.reads,
            beliefs=record.definition.beliefs,
            durable=self._store.durable,
            model=record.options.model,
        )

    def _reply(self, record: Record, explanation: Explanation, warnings: tuple[Warn, ...]) -> StepReply:
        if record.action is None:
            raise RuntimeError("a step without an action")
        return StepReply(
            definition=record.definition,
            position=record.position,
            action=record.action,
            calls=record.calls,
            state=dump_state(record),
            explanation=explanation,
            warnings=warnings,
            traceparent=record.traceparent,
            level=record.options.explain,
            include_input=record.options.include_input,
        )

    def _fit(self, record: Record, reply: StepReply) -> bytes:
        """The encoded reply; if it is too large, without its explanation; if it still is, an error."""
        limit = min(record.options.max_reply_bytes or self.limits.max_reply_bytes, self.limits.max_reply_bytes)
        encoded = self._encode(reply)
        if len(encoded) > limit:
            encoded = self._encode(replace(reply, level=ExplainLevel.NONE, shortened=True))
        if len(encoded) > limit:
            raise PlannerdError(
                Reason.REPLY_TOO_LARGE,
                f"The reply would have {len(encoded)} bytes, more than the limit of {limit}. The step did not "
                "happen; raise max_reply_bytes at Init, or the server's limit.",
                metadata={"limit": "max_reply_bytes", "allowed": str(limit), "requested": str(len(encoded))},
            )
        return encoded

    # ---- definitions -------------------------------------------------------------------------------

    def _define(self, command: InitCommand) -> Definition:
        known = self._definitions.get(command.configuration_key)
        if known is not None:
            self._definitions.move_to_end(command.configuration_key)
            return known
        planner, kind, digest = self.planners.compile(command.planner, command.planner_agent, command.agents)
        definition = Definition(planner, kind, digest, belief_names(planner), command.configuration_size + 1024)
        self._definitions[command.configuration_key] = definition
        self._definition_bytes += definition.size
        while self._definition_bytes > self.limits.definition_bytes:
            _, dropped = self._definitions.popitem(last=False)
            self._definition_bytes -= dropped.size
        return definition

    def _model(self, planner: Planner[object], name: str) -> NamedModel | None:
        """The decision model of that name, known to take as many questions as the planner may ask."""
        asks = planner.asks
        if asks is None:
            return None
        named = self._models.get(name or None)
        limits = named.model.limits
        for limit, requested, allowed in (
            ("questions", asks.questions, limits.questions),
            ("options", asks.options, limits.options),
            ("levels", asks.levels, limits.levels),
        ):
            if allowed is not None and requested > allowed:
                raise PlannerdError(
                    Reason.DECISION_MODEL_LIMIT,
                    f"The decision model '{named.name}' takes at most {allowed} {limit} in one request, but this "
                    f"planner may need {requested}. Use another model, or fewer.",
                    metadata={
                        "limit": limit,
                        "allowed": str(allowed),
                        "requested": str(requested),
                        "model": named.name,
                    },
                )
        return named


def _check_beliefs(definition: Definition, beliefs: Beliefs) -> None:
    missing = [name for name in definition.beliefs if name not in beliefs]
    if missing:
        raise PlannerdError(
            Reason.MISSING_BELIEF,
            f"beliefs: {', '.join(missing)} must be sent with every step; InitResponse.beliefs names them all.",
            violations=[Violation(f"beliefs[{name}]", "is missing") for name in missing],
            metadata={"beliefs": ",".join(missing)},
        )


def _ended(invocation_id: str) -> PlannerdError:
    return PlannerdError(
        Reason.INVOCATION_ENDED,
        f"The invocation '{invocation_id}' was ended. Start another one under a new id.",
        metadata={"invocation_id": invocation_id},
    )


def _owner_changed(invocation_id: str, current: Position) -> PlannerdError:
    return PlannerdError(
        Reason.OWNER_CHANGED,
        f"Somebody took the invocation '{invocation_id}' over, or this is another fork of it. Stop.",
        metadata=current.metadata(),
    )
