"""The engine: every request of a client, against the state table of the contract.

Calls for one invocation are serialised; different invocations never wait for each other. A step is
committed by one `Store.put`, with its encoded reply; whatever fails before that leaves the invocation as
it was.

Where the store is shared, what this process remembers of an invocation may be behind. Steps begin from it
all the same, since writing over what is not the latest fails. Whatever else could be told from an old record,
an error or the reply of a repeat, is told after a look at the latest.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from plannerd.decisions.models import DecisionModels, NamedModel
from plannerd.errors import STORE_FAILED, PlannerdError, Reason, check_limit
from plannerd.invocations.commands import (
    EndCommand,
    FirstActionCommand,
    InitCommand,
    InitReply,
    NextActionCommand,
    StepEvent,
    StepReply,
)
from plannerd.invocations.decider import Decider, check_fits
from plannerd.invocations.definitions import Definitions
from plannerd.invocations.explanation import ExplainLevel, Explanation
from plannerd.invocations.locks import KeyedLocks
from plannerd.invocations.observer import UNOBSERVED, Observer, StepCommand
from plannerd.invocations.placing import check_beliefs, ended, live, owner_changed, place
from plannerd.invocations.position import Position, Relation, relate
from plannerd.invocations.record import Ending, InvocationOptions, Record, Reply, SuspendCalls, Tombstone
from plannerd.invocations.resume import check_replaceable, init_digest, resumed, taken_over
from plannerd.invocations.scope import ScopeLimits
from plannerd.invocations.state_format import dump_state
from plannerd.invocations.stores import Kept, Key, OutdatedError, Store
from plannerd.invocations.transition import Transition
from plannerd.planners.moves import Outcome, Warn
from plannerd.planners.planner import Planner

Encode: TypeAlias = Callable[[StepReply], bytes]
"""Turns a reply into the bytes that are sent, stored and repeated."""

Stepped: TypeAlias = tuple[Record, Explanation, tuple[Warn, ...]]
Step: TypeAlias = Callable[[Record, Transition], Awaitable[Stepped]]

_NOT_OWNER: Final = (Relation.FENCED, Relation.FORKED)
_ANOTHER_MAY_END: Final = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The bounds of one invocation.

    Attributes:
        max_reply_bytes: bytes of one reply.
        scope: how much scope is kept.
        decision_timeout: seconds for one request to a decision model where the client sets none.
        max_questions: that a planner may ask in one request.
        parts_at_once: how many parts of a decision that is split are asked side by side.
    """

    max_reply_bytes: int = 4 << 20
    scope: ScopeLimits = field(default_factory=ScopeLimits)
    decision_timeout: float = 30.0
    max_questions: int = 201
    parts_at_once: int = 4


class Engine:
    """Runs invocations.

    Args:
        models: the decision models.
        store: where invocations are kept.
        encode: encodes a reply.
        limits: bounds.
        definitions: compiles configurations; default: with the planners of the contract.
        clock: monotonic seconds.
        new_branch: makes the random part of a position.
        observe: hears of every committed step.
        state_format: the version of the execution states that are written; default: the newest.
        observer: hears of everything, for telemetry.
        wall_clock: seconds since the epoch.
        keep_messages: keep what clients say when they end an invocation, for operators.
    """

    def __init__(
        self,
        models: DecisionModels,
        store: Store,
        encode: Encode,
        limits: EngineLimits = EngineLimits(),
        *,
        definitions: Definitions | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_branch: Callable[[], str] = lambda: secrets.token_hex(5),
        observe: Callable[[StepEvent], None] = lambda event: None,
        state_format: int | None = None,
        observer: Observer = UNOBSERVED,
        wall_clock: Callable[[], float] = time.time,
        keep_messages: bool = False,
    ) -> None:
        self.limits = limits
        self._definitions = definitions or Definitions()
        self.planners = self._definitions.planners
        self._models = models
        self._store = store
        self._encode = encode
        self._clock = clock
        self._new_branch = new_branch
        self._observe = observe
        self._state_format = state_format
        self._observer = observer
        self._wall_clock = wall_clock
        self._keep_messages = keep_messages
        self._locks = KeyedLocks()

    # ---- requests ----------------------------------------------------------------------------------

    async def init(self, identity: str, command: InitCommand) -> InitReply:
        """Start or continue an invocation (rows 3 to 8b)."""
        now = self._wall_clock()
        definition = self._definitions.define(command.configuration)
        asks = definition.planner.asks
        if asks is not None:
            check_limit("max_questions", "The questions about agents", asks.questions, self.limits.max_questions)
        named = self._model(definition.planner, command.options)
        options = replace(command.options, model=named.name if named else "")
        fresh = Record(
            invocation_id=command.invocation_id,
            definition=definition,
            options=options,
            position=Position(1, 0, self._new_branch()),
            init_digest=init_digest(command, definition),
            planner_state=definition.planner.initial(),
            traceparent=command.traceparent,
            began=now,
            changed=now,
        )
        record = resumed(fresh, command)
        record = replace(record, traceparent=self._observer.begun(command, record.traceparent))
        if command.validate_only:
            return self._init_reply(record, started=False)
        key = (identity, command.invocation_id)
        async with self._locks.hold(key):
            while True:
                kept = await self._store.get(key, fresh=True)
                existing = kept.content if kept is not None else None
                if isinstance(existing, Tombstone):
                    raise ended(command.invocation_id, existing)
                if existing is not None and not command.take_over:
                    if existing.init_digest == record.init_digest and existing.reply is None:
                        return self._init_reply(existing)
                    check_replaceable(existing, command)
                if existing is None and not await self._store.admits(key):
                    raise _too_many()
                begun = taken_over(record, existing, self._new_branch()) if command.take_over else record
                if await self._store.put(key, begun, kept):
                    return self._init_reply(begun)

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
        record = live(await self._store.get((identity, invocation_id), fresh=True), invocation_id)
        self._observer.found(record)
        if record.action is None:
            raise PlannerdError(
                Reason.OUT_OF_ORDER, "This invocation has not begun: call FirstAction first, there is no step yet."
            )
        if record.reply is not None and not self._omits_state(record):
            return record.reply.encoded
        explanation = Explanation(Outcome.RESUMED, "Restored from an execution state; no step was made since.")
        reply = replace(self._reply(record, explanation, record.warnings), state=dump_state(record, self._state_format))
        return self._fit(record, replace(reply, stored=record.reply.encoded) if record.reply is not None else reply)

    async def end(self, identity: str, command: EndCommand) -> None:
        """Release an invocation (row 28)."""
        key = (identity, command.invocation_id)
        async with self._locks.hold(key):
            while True:
                kept = await self._store.get(key, fresh=True)
                if kept is None:
                    return
                existing = kept.content
                if isinstance(existing, Record):
                    self._observer.found(existing)
                if command.base is not None and relate(command.base, existing.position) in _NOT_OWNER:
                    raise owner_changed(command.invocation_id, existing.position)
                if isinstance(existing, Tombstone):
                    return
                tombstone = Tombstone(existing.position, self._ending(existing, command))
                if await self._store.end(key, tombstone, kept):
                    return

    def _ending(self, record: Record, command: EndCommand) -> Ending:
        by_operator = command.operator is not None
        return Ending(
            outcome=command.outcome,
            message=command.message if by_operator or self._keep_messages else "",
            by_operator=by_operator,
            operator=command.operator or "",
            planner=record.definition.kind,
            model=record.options.model,
            began=record.began,
            at=self._wall_clock(),
        )

    # ---- the step as a transaction -----------------------------------------------------------------

    async def _step(self, identity: str, command: StepCommand, digest: bytes, step: Step) -> bytes:
        key = (identity, command.invocation_id)
        try:
            async with self._locks.hold(key):
                encoded, reply = await self._made(key, command, digest, step)
        except BaseException as error:
            self._observer.failed(command, error)
            raise
        if reply is not None:
            self._observe(StepEvent(identity, command.invocation_id, reply))
        return encoded

    async def _made(self, key: Key, command: StepCommand, digest: bytes, step: Step) -> tuple[bytes, StepReply | None]:
        """Make the step on top of what is remembered, and of the latest where that is not it."""
        kept = await self._store.get(key)
        while True:
            failed: PlannerdError | None = None
            try:
                made = await self._attempt(key, kept, command, digest, step)
                if made is not None:
                    return made
            except OutdatedError:
                pass
            except PlannerdError as error:
                if error.reason in STORE_FAILED:
                    raise
                failed = error
            latest = await self._store.get(key, fresh=True)
            if failed is not None and (latest is kept or (latest is not None and latest.is_same(kept))):
                if failed.reason is Reason.REPLICA_BEHIND and kept is not None:
                    await self._store.drop(key, kept)
                raise failed
            kept = latest

    async def _attempt(
        self, key: Key, kept: Kept | None, command: StepCommand, digest: bytes, step: Step
    ) -> tuple[bytes, StepReply | None] | None:
        """Make the step on top of `kept`.

        Returns:
            The encoded reply, and the reply unless it is a repeated one; None where `kept` is not the latest.
        """
        record = live(kept, command.invocation_id)
        self._observer.found(record)
        repeated = place(record, command.base, digest)
        if repeated is not None:
            latest = await self._store.get(key, fresh=True)
            if latest is None or not latest.is_same(kept):
                return None
            self._observer.repeated(record)
            return repeated, None
        if record.terminal:
            raise PlannerdError(
                Reason.INVOCATION_FINISHED,
                "This invocation is finished; its last answer says how. Start another one under a new id.",
                metadata={"invocation_id": command.invocation_id},
            )
        check_beliefs(record.definition, command.beliefs)
        self._observer.stepping(record)
        started = self._clock()
        # That the model takes what the planner asks was checked when the record was made.
        named = self._models.get(record.options.model) if record.definition.planner.asks else None
        async with AsyncExitStack() as claims:
            claim = None
            if kept is not None and named is not None and not named.model.repeatable:
                claim = partial(claims.enter_async_context, self._store.claim(key, kept))
            decider = Decider(
                self._models,
                named,
                record.options,
                self.limits.decision_timeout,
                self._clock,
                claim,
                parts_at_once=self.limits.parts_at_once,
                model=record.model,
                observer=self._observer,
            )
            transition = Transition(record, command.beliefs, decider.ask, self.limits.scope)
            after, explanation, warnings = await step(record, transition)
            explanation = replace(explanation, decisions=tuple(decider.records), seconds=self._clock() - started)
            after = replace(after, model=decider.model, changed=self._wall_clock())
            reply = self._reply(after, explanation, (*warnings, *decider.warnings))
            encoded = self._fit(after, reply)
            if after.position != record.position:
                after = replace(after, reply=Reply(encoded, command.base, digest))
            if not await self._store.put(key, after, kept, reply.state):
                return None
            self._observer.stepped(command, record, reply)
            return encoded, reply

    # ---- replies -----------------------------------------------------------------------------------

    def _init_reply(self, record: Record, *, started: bool = True) -> InitReply:
        planner = record.definition.planner
        return InitReply(
            position=record.position if started else None,
            topology=self.planners.topology(record.definition.kind),
            warnings=record.warnings,
            reads=planner.reads_at(record.planner_state),
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
            state=None if self._omits_state(record) else dump_state(record, self._state_format),
            explanation=explanation,
            warnings=warnings,
            traceparent=record.traceparent,
            level=record.options.explain,
            include_input=record.options.include_input,
        )

    def _omits_state(self, record: Record) -> bool:
        """Whether its replies have no state: a client that is sent away for long gets one in any case."""
        return record.options.omit_state and self._store.durable and not isinstance(record.action, SuspendCalls)

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

    # ---- models ------------------------------------------------------------------------------------

    def _model(self, planner: Planner[object], options: InvocationOptions) -> NamedModel | None:
        """The decision model that was asked for, known to take as much as the planner may ask."""
        if planner.asks is None:
            return None
        named = self._models.get(options.model or None)
        check_fits(planner.asks, named, options)
        return named


def _too_many() -> PlannerdError:
    """One more invocation would be more than its caller may have; waiting helps, as others end or expire."""
    return PlannerdError(
        Reason.TOO_MANY_INVOCATIONS,
        "You have as many invocations as this server keeps for one caller (limits.max_invocations_per_identity). End "
        "those that are over, or wait until others are.",
        metadata={"limit": "max_invocations_per_identity"},
        retry_after=_ANOTHER_MAY_END,
    )
