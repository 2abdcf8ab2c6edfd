"""A server in this process, and clients that speak the contract to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

import pytest

from plannerd.decisions.model import DecisionModel
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import DecisionRequest
from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.commands import StepEvent
from plannerd.invocations.definitions import Definitions
from plannerd.invocations.engine import Engine, EngineLimits
from plannerd.invocations.stores import MemoryBounds, MemoryStore, Store
from plannerd.planners.plugin import PlannerPlugin
from plannerd.planners.registry import Registry
from plannerd.services.codec.configuration import InitLimits
from plannerd.services.codec.replies import encode_step
from plannerd.services.context import CallContext
from plannerd.services.planner_service import PlannerService
from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.support.builders import Beliefs, Scope, beliefs_of, scope_update
from tests.support.models import answering


class RecordingModel(DecisionModel, Protocol):
    """A decision model that remembers what it was asked."""

    @property
    def asked(self) -> Sequence[DecisionRequest]:
        """The requests so far."""


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


StoreMaker: TypeAlias = Callable[[MemoryBounds, Clock, Definitions], Store]

STORE_MAKER: ContextVar[StoreMaker | None] = ContextVar("STORE_MAKER", default=None)
"""Makes the store of every server; None: each has a memory store. Set by the tests that every store must pass."""

_BRANCHES = itertools.count(1)


def _new_branch() -> str:
    return f"b{next(_BRANCHES)}"


class Server:
    """One replica: an engine with a store of its own, and the service before it."""

    def __init__(
        self,
        model: RecordingModel | None = None,
        *,
        bounds: MemoryBounds | None = None,
        limits: EngineLimits | None = None,
        init_limits: InitLimits | None = None,
        new_branch: Callable[[], str] = _new_branch,
        plugins: Iterable[PlannerPlugin[Any]] = (),
        definition_bytes: int = 64 << 20,
        observe: Callable[[StepEvent], None] = lambda event: None,
        state_format: int | None = None,
    ) -> None:
        self.model: RecordingModel = model or answering()
        self.clock = Clock()
        make = STORE_MAKER.get()
        definitions = Definitions(Registry(plugins), max_bytes=definition_bytes, keep_source=make is not None)
        bounds = bounds or MemoryBounds()
        self.store = MemoryStore(bounds, self.clock) if make is None else make(bounds, self.clock, definitions)
        self.engine = Engine(
            DecisionModels({"test": self.model}),
            self.store,
            encode_step,
            limits or EngineLimits(),
            clock=self.clock,
            new_branch=new_branch,
            definitions=definitions,
            observe=observe,
            state_format=state_format,
        )
        self.service = PlannerService(
            self.engine, init_limits, version="1.2.3", max_request_bytes=4 << 20, retained_seconds=60.0
        )

    @property
    def memory(self) -> MemoryStore:
        """The store, where it is a memory store."""
        assert isinstance(self.store, MemoryStore)
        return self.store

    @property
    def decisions(self) -> int:
        """How often the decision model was asked."""
        return len(self.model.asked)

    def client(self, request: planner_pb2.InitRequest, invocation_id: str = "i1", identity: str = "me") -> Client:
        """A client of one invocation."""
        return Client(self, request, invocation_id, identity)

    async def started(
        self, request: planner_pb2.InitRequest, scope: Scope | None = None, invocation_id: str = "i1"
    ) -> Client:
        """A client that has its first action; the scope is a ticket where none is given."""
        client = self.client(request, invocation_id)
        await client.init()
        await client.first({"ticket": "t1"} if scope is None else scope)
        return client


class Client:
    """A client of one invocation: keeps its last step, and sends each request from there unless told otherwise."""

    def __init__(self, server: Server, request: planner_pb2.InitRequest, invocation_id: str, identity: str) -> None:
        self.server = server
        self.request = request
        self.invocation_id = invocation_id
        self.identity = identity
        self.position = step_pb2.Position()
        self.step = step_pb2.Step()
        self.reply = b""
        self.sent: planner_pb2.FirstActionRequest | planner_pb2.NextActionRequest | None = None

    # ---- what it knows

    @property
    def state(self) -> step_pb2.ExecutionState:
        """The last execution state."""
        return self.step.state

    @property
    def kind(self) -> str:
        """The kind of the last action."""
        return str(self.step.action.WhichOneof("kind"))

    @property
    def agents(self) -> dict[str, str]:
        """The names of the agents that the last action names calls of, with the status of each call."""
        return {self.agent_of(call_id): self.status(call_id) for call_id in self.named}

    @property
    def named(self) -> list[str]:
        """The ids of the calls that the last action names."""
        action = self.step.action
        match self.kind:
            case "start":
                return list(action.start.call_ids)
            case "await":
                return list(getattr(action, "await").call_ids)
            case "suspend":
                return list(action.suspend.call_ids)
            case _:
                return []

    @property
    def live(self) -> dict[str, str]:
        """The agents of the live calls, with the status of each."""
        return {self.agent_of(call.id): self.status(call.id) for call in self.step.calls}

    def call(self, name: str) -> str:
        """The id of the live call of an agent."""
        (found,) = (call.id for call in self.step.calls if self.agent_of(call.id) == name)
        return found

    def agent_of(self, call_id: str) -> str:
        """The name of a live call's agent, or its id where several agents have that name."""
        (agent_id,) = (call.agent_id for call in self.step.calls if call.id == call_id)
        agents = self.request.agents
        names = {agent.id or f"{agent.name}${at}": agent.name for at, agent in enumerate(agents)}
        name = names[agent_id]
        return name if sum(agent.name == name for agent in agents) == 1 else agent_id

    def status(self, call_id: str) -> str:
        """The status of a live call in lower case."""
        (status,) = (call.status for call in self.step.calls if call.id == call_id)
        return step_pb2.CallStatus.Name(status).removeprefix("CALL_STATUS_").lower()

    # ---- what it sends

    def at(self, server: Server) -> Client:
        """The same client, connected to another replica."""
        other = Client(server, self.request, self.invocation_id, self.identity)
        other.position.CopyFrom(self.position)
        other.step.CopyFrom(self.step)
        other.reply, other.sent = self.reply, self.sent
        return other

    def init_request(self, state: step_pb2.ExecutionState | None = None, **fields: Any) -> planner_pb2.InitRequest:
        """Its Init, perhaps with a state to resume from and with further fields."""
        made = planner_pb2.InitRequest(invocation_id=self.invocation_id, state=state, **fields)
        made.MergeFrom(self.request)
        return made

    async def init(self, state: step_pb2.ExecutionState | None = None, **fields: Any) -> planner_pb2.InitResponse:
        """Start, or resume from `state`."""
        reply = await self.server.service.Init(self.init_request(state, **fields), self._context)
        self.position.CopyFrom(reply.position)
        return reply

    async def resume(
        self,
        scope: Scope,
        *,
        state: step_pb2.ExecutionState | None = None,
        beliefs: Beliefs | None = None,
        take_over: bool = False,
    ) -> step_pb2.Step:
        """Init from its last state (or another one), and attach with a snapshot."""
        await self.init(state or self.state, take_over=take_over)
        return await self.first(scope, beliefs=beliefs)

    async def first(
        self, scope: Scope | None = None, *, base: step_pb2.Position | None = None, beliefs: Beliefs | None = None
    ) -> step_pb2.Step:
        """FirstAction."""
        return await self.send(
            planner_pb2.FirstActionRequest(
                invocation_id=self.invocation_id,
                base=base or self.position,
                scope=scope_update(scope),
                beliefs=beliefs_of(beliefs),
            )
        )

    async def next(
        self,
        *results: planner_pb2.AgentResult,
        scope: Scope | None = None,
        removed: tuple[str, ...] = (),
        base: step_pb2.Position | None = None,
        beliefs: Beliefs | None = None,
    ) -> step_pb2.Step:
        """NextAction."""
        return await self.send(
            planner_pb2.NextActionRequest(
                invocation_id=self.invocation_id,
                base=base or self.position,
                scope=scope_update(scope, removed),
                beliefs=beliefs_of(beliefs),
                results=results,
            )
        )

    async def send(self, request: planner_pb2.FirstActionRequest | planner_pb2.NextActionRequest) -> step_pb2.Step:
        """Send a request; the answer is kept as the last step, if there is one."""
        self.sent = request
        self.reply = await self.send_raw(request)
        self.step = planner_pb2.NextActionResponse.FromString(self.reply).step
        self.position.CopyFrom(self.step.position)
        return self.step

    async def send_raw(self, request: planner_pb2.FirstActionRequest | planner_pb2.NextActionRequest | None) -> bytes:
        """Send a request and return the answer's bytes; nothing is kept."""
        assert request is not None
        if isinstance(request, planner_pb2.FirstActionRequest):
            return await self.server.service.FirstAction(request, self._context)
        return await self.server.service.NextAction(request, self._context)

    async def where(self) -> step_pb2.Step:
        """ExecutionState."""
        request = planner_pb2.ExecutionStateRequest(invocation_id=self.invocation_id)
        reply = await self.server.service.ExecutionState(request, self._context)
        return planner_pb2.ExecutionStateResponse.FromString(reply).step

    async def end(self, base: step_pb2.Position | None = None) -> None:
        """End."""
        request = planner_pb2.EndRequest(invocation_id=self.invocation_id, base=base)
        await self.server.service.End(request, self._context)

    @property
    def _context(self) -> CallContext:
        return CallContext(identity=self.identity)


class Refused:
    """What `refused` caught."""

    error: PlannerdError

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the error."""
        return self.error.metadata

    @property
    def fields(self) -> list[str]:
        """The paths of the bad fields."""
        return [violation.field for violation in self.error.violations]


@contextmanager
def refused(*reasons: Reason) -> Iterator[Refused]:
    """What is inside fails for one of these reasons."""
    caught = Refused()
    with pytest.raises(PlannerdError) as raised:
        yield caught
    caught.error = raised.value
    assert raised.value.reason in reasons, raised.value
