"""A world for the logic of a run: a scripted server, agents that run one after the other, and a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from plannerd_client import PlannerdError, RetryPolicy, RunResult, Scheduler
from plannerd_client._agents import AnyAgent
from plannerd_client._effects import Abandon, Collect, Effect, Invoke, Launch, Outcome, Pause, Program, Send
from plannerd_client._link import Environment
from plannerd_client._options import RunOptions, prepare
from plannerd_client.errors import ServerUnreachable
from plannerd_protos.planner.v1 import planner_pb2, step_pb2, value_pb2

T = TypeVar("T")
Reply: TypeAlias = "step_pb2.Step | PlannerdError | Callable[[Any], step_pb2.Step | PlannerdError]"

PLANNER = Scheduler(goal="an answer", goal_threshold=0.5, activation_threshold=0.5)
BRANCH = "b"
VALUE, PRESENCE, NONE = value_pb2.NEED_VALUE, value_pb2.NEED_PRESENCE, value_pb2.NEED_NONE


def position(revision: int, epoch: int = 1) -> step_pb2.Position:
    return step_pb2.Position(epoch=epoch, revision=revision, branch=BRANCH)


def call(call_id: str, agent_id: str, status: str = "OUTSTANDING", **fields: Any) -> step_pb2.Call:
    need = fields.pop("output_need", VALUE)
    return step_pb2.Call(
        id=call_id,
        agent_id=agent_id,
        status=step_pb2.CallStatus.Value(f"CALL_STATUS_{status}"),
        output_need=need,
        **fields,
    )


def step(revision: int, action: step_pb2.Action, *calls: step_pb2.Call, **fields: Any) -> step_pb2.Step:
    state = step_pb2.ExecutionState(
        planner="scheduler", format_version=1, invocation_id="inv", position=position(revision), data=b"{}"
    )
    return step_pb2.Step(position=position(revision), action=action, calls=calls, state=state, **fields)


def start(*call_ids: str) -> step_pb2.Action:
    return step_pb2.Action(start=step_pb2.Start(call_ids=call_ids))


def wait_for(*call_ids: str) -> step_pb2.Action:
    return step_pb2.Action(**{"await": step_pb2.Await(call_ids=call_ids)})  # type: ignore[arg-type]


def suspend(*call_ids: str) -> step_pb2.Action:
    return step_pb2.Action(suspend=step_pb2.Suspend(call_ids=call_ids))


def done(result: step_pb2.Result | None = None) -> step_pb2.Action:
    return step_pb2.Action(done=step_pb2.Done(result=result))


def no_op() -> step_pb2.Action:
    return step_pb2.Action(no_op=step_pb2.NoOp())


def failure(reason: str, code: grpc.StatusCode = grpc.StatusCode.ABORTED, **fields: Any) -> PlannerdError:
    return PlannerdError.by_reason.get(reason, PlannerdError)(reason.lower(), reason=reason, code=code, **fields)


def unreachable() -> PlannerdError:
    return ServerUnreachable("connection refused", code=grpc.StatusCode.UNAVAILABLE)


class Server:
    """Answers FirstAction and NextAction from a script, Init and End by itself.

    `requests` has everything that was sent, as copies.
    """

    def __init__(
        self, *script: Reply, reads: Mapping[str, value_pb2.Need.ValueType] | None = None, beliefs: Iterable[str] = ()
    ) -> None:
        self.script: list[Reply] = list(script)
        self.inits: list[PlannerdError | None] = []
        self.requests: list[tuple[str, Any]] = []
        self._reads = dict(reads or {})
        self._beliefs = list(beliefs)

    def answer(self, method: str, request: Message) -> Message:
        copy = type(request)()
        copy.CopyFrom(request)
        self.requests.append((method, copy))
        if method == "Init":
            return self._init(request)
        if method == "End":
            return planner_pb2.EndResponse()
        reply = self.script.pop(0)
        if callable(reply):
            reply = reply(copy)
        if isinstance(reply, PlannerdError):
            raise reply
        return planner_pb2.NextActionResponse(step=reply)

    def _init(self, request: Any) -> Message:
        if self.inits and (error := self.inits.pop(0)) is not None:
            raise error
        at = request.state.position if request.HasField("state") else position(0)
        return planner_pb2.InitResponse(position=at, reads=self._reads, beliefs=self._beliefs)

    def sent(self, method: str) -> list[Any]:
        return [request for name, request in self.requests if name == method]

    @property
    def methods(self) -> list[str]:
        return [name for name, _ in self.requests]


@dataclass
class World:
    """Performs effects. Agents run when somebody collects, one at a time unless `batch`; those in `stuck` never end."""

    server: Server
    batch: bool = False
    stuck: set[str] = field(default_factory=set)
    now: float = 1000.0
    paused: list[float] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    _running: dict[int, Launch] = field(default_factory=dict)

    @property
    def environment(self) -> Environment:
        return Environment(clock=lambda: self.now, wall_clock=lambda: self.now, chance=lambda: 0.0)

    def run(
        self,
        agents: Iterable[AnyAgent | Callable[..., Any]],
        arguments: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RunResult:
        planner = options.pop("planner", PLANNER)
        settings: RunOptions = {"retry": RetryPolicy(attempts=5, total=60.0, jitter=0.0), **options}  # type: ignore[typeddict-item]
        runner = prepare(
            planner,
            agents,
            {"request": "hello"} if arguments is None and "resume" not in options else arguments,
            settings,
            policy=RetryPolicy(),
            rpc_timeout=10.0,
            max_reply_bytes=0,
            environment=self.environment,
        )
        return self.perform(runner.run())

    def perform(self, program: Program[T]) -> T:
        value: Any = None
        error: Exception | None = None
        while True:
            try:
                effect = program.send(value) if error is None else program.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            value, error = None, None
            try:
                value = self._perform(effect)
            except Exception as raised:  # noqa: BLE001 -- as a driver does
                error = raised

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send(method, request, _):
                return self.server.answer(method, request)
            case Pause(seconds):
                self.paused.append(seconds)
                self.now += seconds
            case Launch():
                self.launched.append(effect.agent.name)
                self._running[effect.token] = effect
            case Collect(seconds):
                return self._collect(seconds)
            case Abandon(token):
                self.abandoned.append(self._running.pop(token).agent.name)
            case Invoke(function, arguments):
                return function(*arguments)
        return None

    def _collect(self, seconds: float | None) -> list[Outcome]:
        able = [launch for launch in self._running.values() if launch.agent.name not in self.stuck]
        if not able:
            assert seconds is not None, "nothing will ever happen"
            self.now += seconds
            return []
        chosen = able if self.batch else able[:1]
        return [self._outcome(self._running.pop(launch.token)) for launch in chosen]

    @staticmethod
    def _outcome(launch: Launch) -> Outcome:
        try:
            value = launch.function()
            return Outcome(launch.token, asyncio.run(value) if launch.agent.is_coroutine else value)
        except Exception as error:  # noqa: BLE001 -- as a driver does
            return Outcome(launch.token, error=error)
