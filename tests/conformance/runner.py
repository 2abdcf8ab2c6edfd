"""Runs a case: a client that does what the case says, and looks at every reply."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from google.protobuf import json_format
from google.protobuf.message import Message

from plannerd_protos.planner.v1 import planner_pb2, planners_pb2, step_pb2, value_pb2
from tests.conformance import wire
from tests.conformance.cases import TERMINAL, Case, agent_ids, decisions_of, kind_of, with_config
from tests.conformance.scripts import Mode, Place, places
from tests.conformance.targets import RefusedError, Session, Target

ACTIONS: Final = ("start", "await", "suspend", "done", "give_up", "no_op")
TOLERANCE: Final = 1e-9
LONG: Final = 10
"""From this length on a text of the scope is looked for where it must not be."""
MISSING: Final = object()


class MismatchError(AssertionError):
    """A reply that is not what the case says."""


async def run(case: Case, target: Target, mode: Mode) -> None:
    """Run a case against a target.

    Raises:
        MismatchError: a reply differs from what the case says; the message has the case, the step and the reply.
    """
    session = target.open(case, mode)
    try:
        await _Run(case, session, mode).run()
    finally:
        session.close()


@dataclass(slots=True)
class _Client:
    """What a client knows of its invocation."""

    planner: Mapping[str, Any]
    planner_agent: Mapping[str, Any]
    agents: Sequence[Mapping[str, Any]]
    scope: dict[str, Any]
    beliefs: dict[str, Any]
    invocation_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    init: planner_pb2.InitResponse = field(default_factory=planner_pb2.InitResponse)
    step: step_pb2.Step | None = None
    # Keys that the client itself changed since the last step that was answered.
    changed: set[str] = field(default_factory=set)
    # Call ids: by alias, the latest by agent id; and what is known of every call.
    aliases: dict[str, str] = field(default_factory=dict)
    latest: dict[str, str] = field(default_factory=dict)
    calls: dict[str, step_pb2.Call] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    warned: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return agent_ids(self.agents)

    def agent_id(self, reference: str) -> str | None:
        """The id of the agent with this id, or of the only one with this name."""
        if reference in self.ids:
            return reference
        named = [
            agent_id for agent_id, agent in zip(self.ids, self.agents, strict=True) if agent.get("name") == reference
        ]
        return named[0] if len(named) == 1 else None

    def call_id(self, reference: str) -> str:
        """The id of the call with this alias, or of the latest one of this agent."""
        if reference in self.aliases:
            return self.aliases[reference]
        agent_id = self.agent_id(reference)
        if agent_id is None:
            raise ValueError(f"'{reference}' is neither an alias nor an agent, or several agents have the name")
        return self.latest.get(agent_id, f"(no call of {agent_id} yet)")

    def output_key(self, call_id: str) -> str:
        """The key that the output of a call is written to; empty where there is none."""
        call = self.calls.get(call_id)
        if call is None or call.agent_id not in self.ids:
            return ""
        return str(self.agents[self.ids.index(call.agent_id)].get("output_key", ""))


class _Run:
    def __init__(self, case: Case, session: Session, mode: Mode) -> None:
        self._case = case
        self._session = session
        self._mode = mode
        self._where = "init"
        self._reply: Message | None = None
        self._instance = 0
        self._last: tuple[str, Message, bytes] | None = None
        data = case.data
        self._client = _Client(
            planner=data["planner"],
            planner_agent=data.get("planner_agent", {}),
            agents=data.get("agents", []),
            scope=dict(data.get("scope", {})),
            beliefs=dict(data.get("beliefs", {})),
        )

    async def run(self) -> None:
        expected = self._case.data.get("init", {})
        if not await self._init(expected, {}):
            return
        for number, (step, place) in enumerate(
            zip(self._case.steps, places(self._case, self._mode), strict=True), start=1
        ):
            self._where = f"step {number} ({kind_of(step)})"
            self._reply = None
            await self._step(step, place)

    # ---- steps -------------------------------------------------------------------------------------

    async def _step(self, step: Mapping[str, Any], place: Place) -> None:
        if place.moves:
            await self._hand_over(place.instance)
        self._instance = place.instance
        self._change(step)
        asked = self._session.asked
        match kind_of(step):
            case "restore":
                await self._restore(step["restore"], step.get("expect", {}))
            case "resend":
                await self._resend()
            case "end":
                await self._end(step["end"])
            case kind:
                await self._request(kind, step)
        if asked is not None:
            wanted = len(decisions_of(step))
            made = (self._session.asked or 0) - asked
            if made != wanted:
                self._fail(f"the decision model was asked {made} times, not {wanted}")

    def _change(self, step: Mapping[str, Any]) -> None:
        client = self._client
        changes = step.get("scope", {})
        for key, written in changes.get("set", {}).items():
            client.scope[key] = written
            client.changed.add(key)
        for key in changes.get("removed", ()):
            client.scope.pop(key, None)
            client.changed.add(key)
        client.beliefs.update(step.get("beliefs", {}))

    async def _request(self, kind: str, step: Mapping[str, Any]) -> None:
        expected = step["expect"]
        request: Message
        match kind:
            case "first_action":
                method, request = "FirstAction", self._first_action()
            case "next_action":
                method, request = "NextAction", self._next_action(step["next_action"]["results"])
            case _:
                method = "ExecutionState"
                request = planner_pb2.ExecutionStateRequest(invocation_id=self._client.invocation_id)
        reply = await self._send(method, request, expected)
        if reply is None:
            return
        self._last = (method, request, reply)
        message = planner_pb2.NextActionResponse.FromString(reply)
        self._reply = message
        if kind != "execution_state":
            self._check_position(message.step)
            self._acknowledge(step.get("next_action", {}).get("results", ()), message.step)
        self._check_always(message.step)
        self._check_step(message.step, expected)
        if kind != "execution_state":
            self._check_decisions(message.step, decisions_of(step))

    async def _send(self, method: str, request: Message, expected: Mapping[str, Any]) -> bytes | None:
        """The reply; None after an error that was expected."""
        try:
            reply = await self._session.call(self._instance, method, request)
        except RefusedError as error:
            if "error" not in expected:
                self._fail(f"refused: {error}")
            self._check_error(error, expected["error"])
            return None
        if "error" in expected:
            self._reply = planner_pb2.NextActionResponse.FromString(reply) if method != "Init" else None
            self._fail(f"not refused; expected {expected['error']['reason']}")
        return reply

    async def _resend(self) -> None:
        if self._last is None:
            raise ValueError("there is no request to send again")
        method, request, before = self._last
        reply = await self._send(method, request, {})
        if reply != before:
            self._reply = planner_pb2.NextActionResponse.FromString(reply or b"")
            self._fail("the same request got another answer")

    async def _end(self, written: Mapping[str, Any]) -> None:
        request = planner_pb2.EndRequest(invocation_id=self._client.invocation_id)
        if self._client.step is not None:
            request.base.CopyFrom(self._client.step.position)
        if "outcome" in written:
            request.outcome = planner_pb2.EndOutcome.Value(f"END_OUTCOME_{written['outcome']}")
        await self._send("End", request, {})

    # ---- Init --------------------------------------------------------------------------------------

    async def _init(self, expected: Mapping[str, Any], resume: Mapping[str, Message]) -> bool:
        """Whether there is an invocation to go on with."""
        client = self._client
        request = wire.init_request(
            client.planner, client.planner_agent, client.agents, self._case.data.get("options", {})
        )
        request.invocation_id = client.invocation_id
        request.explain = planner_pb2.EXPLAIN_LEVEL_FULL
        request.include_input = True
        if self._session.model and not request.decision.model:
            request.decision.model = self._session.model
        for name, message in resume.items():
            getattr(request, name).CopyFrom(message)
        reply = await self._send("Init", request, expected)
        if reply is None:
            return False
        client.init = planner_pb2.InitResponse.FromString(reply)
        client.step = None
        client.warned = _warnings(client.init.warnings)
        self._reply = client.init
        self._check_init(client.init, expected)
        return True

    async def _restore(self, written: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        client = self._client
        step = self._need_step()
        references = {client.agent_id(reference): agent for reference, agent in self._by_reference().items()}
        if "order" in written:
            client.agents = [references[client.agent_id(reference)] for reference in written["order"]]
        client.agents = written.get("agents", client.agents)
        client.planner = with_config(written.get("planner", client.planner), written.get("config", {}))
        client.planner_agent = written.get("planner_agent", client.planner_agent)
        client.latest = {}
        if written["from"] == "state":
            await self._init(expected, {"state": step.state})
            return
        # The bare map knows no calls, so the client forgets them, and it starts an invocation of its own.
        plain_map = written.get("map", json.loads(step.state.data)["planner"])
        client.invocation_id = str(uuid.uuid4())
        client.scope = {key: item for key, item in client.scope.items() if item != wire.PENDING}
        client.aliases, client.calls = {}, {}
        await self._init(expected, {"planner_map": wire.planner_map(plain_map)})

    def _by_reference(self) -> dict[str, Mapping[str, Any]]:
        return dict(zip(self._client.ids, self._client.agents, strict=True))

    async def _hand_over(self, instance: int) -> None:
        """Go on from the last state on another instance: the same calls, nothing decided."""
        before, asked = self._need_step(), self._session.asked
        where, self._where = self._where, f"before {self._where}, handed over"
        self._instance = instance
        warned = self._client.warned
        await self._init({}, {"state": before.state})
        self._client.warned = warned + self._client.warned
        beliefs = {name: True if outcome is None else outcome for name, outcome in self._client.beliefs.items()}
        request = self._first_action(beliefs)
        reply = await self._send("FirstAction", request, {}) or b""
        after = planner_pb2.NextActionResponse.FromString(reply).step
        self._reply = after
        self._check_position(after)
        self._acknowledge((), after)
        self._check_always(after)
        if _calls(before) != _calls(after):
            self._fail(f"other calls are live: {_calls(after)}, not {_calls(before)}")
        kinds = {step.action.WhichOneof("kind") for step in (before, after)}
        if kinds != {"no_op", "start"} and before.action != after.action:
            self._fail("another action is current")
        if after.explanation.decisions or self._session.asked != asked:
            self._fail("attaching asked the decision model")
        self._where = where

    # ---- requests ----------------------------------------------------------------------------------

    def _first_action(self, beliefs: Mapping[str, Any] | None = None) -> planner_pb2.FirstActionRequest:
        client = self._client
        request = planner_pb2.FirstActionRequest(
            invocation_id=client.invocation_id,
            base=client.init.position if client.step is None else client.step.position,
            beliefs=wire.beliefs(client.beliefs if beliefs is None else beliefs, client.init.beliefs),
        )
        for key, written in client.scope.items():
            self._set(request.scope, key, written)
        return request

    def _next_action(self, results: Sequence[Mapping[str, Any]]) -> planner_pb2.NextActionRequest:
        client = self._client
        request = planner_pb2.NextActionRequest(
            invocation_id=client.invocation_id,
            base=client.init.position if client.step is None else client.step.position,
            beliefs=wire.beliefs(client.beliefs, client.init.beliefs),
            results=[self._result(written) for written in results],
        )
        for key in sorted(client.changed):
            if key in client.scope:
                self._set(request.scope, key, client.scope[key])
            elif not self._mode.minimal or key in client.init.reads:
                request.scope.removed.append(key)
        return request

    def _set(self, scope: value_pb2.ScopeUpdate, key: str, written: Any) -> None:
        need = self._client.init.reads.get(key)
        if self._mode.minimal and need is None:
            return
        if self._mode.minimal and need == value_pb2.NEED_PRESENCE and wire.can_be_opaque(written):
            scope.set[key].opaque.tag = wire.tag_of(written)
        else:
            scope.set[key].CopyFrom(wire.value(written))

    def _result(self, written: Mapping[str, Any]) -> planner_pb2.AgentResult:
        call_id = self._reported(written)
        result = planner_pb2.AgentResult(call_id=call_id, recovered=written.get("recovered", False))
        if "output" in written:
            result.output.CopyFrom(self._output(call_id, written["output"]))
        elif "skipped" in written:
            result.skipped.SetInParent()
        elif "pending" in written:
            result.pending.CopyFrom(planner_pb2.PendingOutput(**written["pending"]))
        elif "suspended" in written:
            result.suspended.response_id = written["suspended"]
        else:
            result.failed.CopyFrom(planner_pb2.Failure(**written["failed"]))
        return result

    def _reported(self, written: Mapping[str, Any]) -> str:
        if "call_id" in written:
            return str(written["call_id"])
        return self._client.call_id(written.get("call", written.get("agent")))

    def _output(self, call_id: str, written: Any) -> planner_pb2.Output:
        if wire.is_tagged(written, "$opaque"):
            return planner_pb2.Output(opaque=wire.opaque(written["$opaque"]))
        call = self._client.calls.get(call_id)
        need = call.output_need if call is not None and self._mode.minimal else value_pb2.NEED_VALUE
        if need == value_pb2.NEED_NONE:
            return planner_pb2.Output(withheld=planner_pb2.Withheld())
        if need == value_pb2.NEED_PRESENCE and wire.can_be_opaque(written):
            return planner_pb2.Output(opaque=value_pb2.Opaque(tag=wire.tag_of(written)))
        return planner_pb2.Output(value=wire.value(written))

    def _acknowledge(self, results: Sequence[Mapping[str, Any]], step: step_pb2.Step) -> None:
        """Take in a step that happened: outputs are in the scope, calls are known, changes are sent."""
        client = self._client
        for written in results:
            call_id = self._reported(written)
            key = client.output_key(call_id)
            if "output" in written:
                client.outputs[call_id] = written["output"]
                if key and written["output"] is None:
                    client.scope.pop(key, None)
                elif key:
                    client.scope[key] = written["output"]
            elif key and ("pending" in written or "suspended" in written):
                client.scope[key] = dict(wire.PENDING)
        client.changed.clear()
        client.step = step
        client.warned += _warnings(step.warnings)
        for call in step.calls:
            client.calls[call.id] = call
            client.latest[call.agent_id] = call.id

    # ---- what is expected --------------------------------------------------------------------------

    def _check_error(self, error: RefusedError, expected: Mapping[str, Any]) -> None:
        reasons = expected["reason"] if isinstance(expected["reason"], list) else [expected["reason"]]
        if error.reason not in reasons or error.code != expected["code"]:
            self._fail(f"refused with {error}; expected {expected['code']} {' or '.join(reasons)}")
        if error.code == "INVALID_ARGUMENT" and not error.fields:
            self._fail(f"refused with {error}, which names no field")
        wanted = expected.get("field")
        if wanted is not None and not any(re.match(re.escape(wanted) + r"(?![^.\[])", path) for path in error.fields):
            self._fail(f"refused with {error}; expected the field {wanted}")
        for text in expected.get("mentions", ()):
            if text not in error.message:
                self._fail(f"the message does not mention '{text}': {error.message}")

    def _check_init(self, reply: planner_pb2.InitResponse, expected: Mapping[str, Any]) -> None:
        if "reads" in expected:
            reads = {key: wire.name_of(value_pb2.Need, need, "NEED") for key, need in reply.reads.items()}
            self._same("reads", reads, expected["reads"])
        if "beliefs" in expected:
            self._same("beliefs", sorted(reply.beliefs), sorted(expected["beliefs"]))
        if "topology" in expected:
            topology = wire.name_of(planners_pb2.Topology, reply.topology, "TOPOLOGY")
            self._same("topology", topology, expected["topology"])
        if "warnings" in expected:
            self._same("warnings", sorted(_warnings(reply.warnings)), sorted(expected["warnings"]))

    def _check_step(self, step: step_pb2.Step, expected: Mapping[str, Any]) -> None:
        self._check_action(step, expected)
        self._check_explanation(step.explanation, expected)
        if "calls" in expected:
            self._check_calls(step, expected["calls"])
        if "warnings" in expected:
            self._same("warnings", sorted(_warnings(step.warnings)), sorted(expected["warnings"]))
        for code in expected.get("warned", ()):
            if code not in self._client.warned:
                self._fail(f"there was no warning {code}")
        if "planner_map" in expected:
            found = json.loads(step.state.data)["planner"]
            if not expected["planner_map"]:
                self._same("planner map", found, {})
            for name, wanted in expected["planner_map"].items():
                self._same(f"planner map: {name}", found.get(name, MISSING), wanted)

    def _check_position(self, step: step_pb2.Step) -> None:
        """What holds for the position of every step that happened: one further, unless a client only attached."""
        before = self._client.init.position if self._client.step is None else self._client.step.position
        self._same("branch", step.position.branch, before.branch)
        self._same("epoch", step.position.epoch, before.epoch)
        attached = step.explanation.outcome == step_pb2.STEP_OUTCOME_ATTACHED
        self._same("revision", step.position.revision, before.revision + (0 if attached else 1))

    def _check_always(self, step: step_pb2.Step) -> None:
        """What holds for every step."""
        client, explanation = self._client, step.explanation
        if not explanation.summary:
            self._fail("the explanation has no summary")
        if explanation.shortened:
            self._fail("the explanation was shortened, without need")
        assessed = [item.agent_id for item in explanation.agents]
        if assessed != [agent_id for agent_id in client.ids if agent_id in assessed]:
            self._fail(f"the explanation is not in the order of declaration: {assessed}")
        for call in step.calls:
            if call.agent_id not in client.ids:
                self._fail(f"the call {call.id} is of no agent: {call.agent_id}")
            if not re.fullmatch(r"[^.]+\.\d+\.\d+", call.id):
                self._fail(f"the call {call.id} is not named after branch, revision and index")
        for warning in step.warnings:
            if not warning.message:
                self._fail("there is a warning without a message")
        if "omit_state" not in self._case.data.get("options", {}):
            self._check_state(step)

    def _check_state(self, step: step_pb2.Step) -> None:
        """What holds for every execution state: it fits the step, and has nothing of the scope in it."""
        client = self._client
        if not step.HasField("state"):
            self._fail("there is no execution state")
        self._same("planner of the state", step.state.planner, self._case.planner)
        self._same("invocation of the state", step.state.invocation_id, client.invocation_id)
        if step.state.position != step.position:
            self._fail("the state is of another position")
        definition = json.dumps([client.planner, client.planner_agent, client.agents])
        for text in _texts([client.scope, client.outputs]):
            if len(text) >= LONG and text not in definition and text.encode() in step.state.data:
                self._fail(f"the state has a value of the scope: {text}")

    def _check_action(self, step: step_pb2.Step, expected: Mapping[str, Any]) -> None:
        client = self._client
        kind = next(name for name in ACTIONS if name in expected)
        wanted = expected[kind]
        if step.action.WhichOneof("kind") != kind:
            self._fail(f"the action is {step.action.WhichOneof('kind')}, not {kind}")
        if kind == "start":
            self._check_start(step, wanted)
        elif kind == "await":
            found = getattr(step.action, "await")
            if "keys" in wanted:
                self._same("keys to wait for", sorted(found.keys), sorted(wanted["keys"]))
            if "calls" in wanted:
                calls = sorted(client.call_id(reference) for reference in wanted["calls"])
                self._same("calls to wait for", sorted(found.call_ids), calls)
        elif kind == "suspend":
            calls = sorted(client.call_id(reference) for reference in wanted)
            self._same("suspended calls", sorted(step.action.suspend.call_ids), calls)
        elif kind == "give_up":
            found = step.action.give_up
            self._same("reason", wire.name_of(step_pb2.GiveUpReason, found.reason, "GIVE_UP_REASON"), wanted)
            if not found.message:
                self._fail("it gives up without a message")
            for text in expected.get("mentions", ()):
                if text not in found.message:
                    self._fail(f"the message does not mention '{text}': {found.message}")
        elif kind == "done":
            self._check_done(step.action.done, expected)
        if kind in TERMINAL and step.calls:
            pending = [call for call in step.calls if call.status != step_pb2.CALL_STATUS_PENDING]
            if pending:
                self._fail("it is over, and calls are live")

    def _check_start(self, step: step_pb2.Step, wanted: Sequence[Any]) -> None:
        client = self._client
        live = {call.id: call for call in step.calls}
        started = list(step.action.start.call_ids)
        if unknown := [call_id for call_id in started if call_id not in live]:
            self._fail(f"calls are started that are not among the live ones: {unknown}")
        found = [live[call_id].agent_id for call_id in started]
        if len(started) != len(wanted):
            self._fail(f"it starts {found}, not {wanted}")
        for call_id, item in zip(started, wanted, strict=True):
            reference = item["agent"] if isinstance(item, dict) else item
            if not isinstance(item, dict) and reference in client.aliases:
                self._same(f"the call {reference}", call_id, client.aliases[reference])
            elif live[call_id].agent_id != client.agent_id(reference):
                self._fail(f"it starts {found}, not {wanted}")
            if isinstance(item, dict):
                client.aliases[item["as"]] = call_id

    def _check_done(self, done: step_pb2.Done, expected: Mapping[str, Any]) -> None:
        client = self._client
        form, wanted = done.result.WhichOneof("kind"), expected["done"]
        if wanted == "scope":
            if form is not None:
                self._fail(f"the result is {form}, not what the scope holds")
        elif isinstance(wanted, dict):
            ((name, source),) = wanted.items()
            self._same("form of the result", form, name)
            if name == "value":
                self._same("value", wire.plain(done.result.value), wire.plain(wire.value(source)))
            elif name == "output_of":
                self._same("call of the result", done.result.output_of, client.call_id(source))
            elif name == "scope_key":
                self._same("key of the result", done.result.scope_key, source)
            else:
                self._same("outputs", *self._named_outputs(done.result.outputs, source))
        if "result" in expected:
            self._same("result", _comparable(self._result_of(done)), _comparable(expected["result"]))

    def _named_outputs(self, outputs: step_pb2.NamedOutputs, wanted: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        found: list[dict[str, Any]] = []
        for output in outputs.outputs:
            match output.WhichOneof("source"):
                case "call_id":
                    found.append({output.name: output.call_id})
                case "scope_key":
                    found.append({output.name: {"scope_key": output.scope_key}})
                case _:
                    found.append({output.name: None})
        expected = [
            {name: self._client.call_id(source) if isinstance(source, str) else source}
            for item in wanted
            for name, source in item.items()
        ]
        return found, expected

    def _result_of(self, done: step_pb2.Done) -> Any:
        """What the caller of this client gets."""
        client = self._client
        match done.result.WhichOneof("kind"):
            case None:
                return client.scope.get(client.planner_agent.get("output_key", ""))
            case "value":
                return wire.plain(done.result.value)
            case "output_of":
                return client.outputs.get(done.result.output_of)
            case "scope_key":
                return client.scope.get(done.result.scope_key)
        result = {}
        for output in done.result.outputs.outputs:
            source = output.WhichOneof("source")
            if source == "call_id":
                result[output.name] = client.outputs.get(output.call_id)
            else:
                result[output.name] = client.scope.get(output.scope_key) if source else None
        return result

    def _check_explanation(self, explanation: step_pb2.Explanation, expected: Mapping[str, Any]) -> None:
        client = self._client
        if "outcome" in expected:
            outcome = wire.name_of(step_pb2.StepOutcome, explanation.outcome, "STEP_OUTCOME")
            self._same("outcome", outcome, expected["outcome"])
        found = {item.agent_id: wire.assessment(item) for item in explanation.agents}
        for reference, wanted in expected.get("agents", {}).items():
            agent_id = client.agent_id(reference)
            if agent_id not in found:
                self._fail(f"the explanation says nothing of {reference}")
            parts = {"status": wanted} if isinstance(wanted, str) else wanted
            self._partly(f"agent {reference}", found[agent_id], parts)
        if "goal" in expected:
            goal = wire.goal(explanation.goal) if explanation.HasField("goal") else None
            if goal is None or expected["goal"] is None:
                self._same("goal", goal, expected["goal"])
            else:
                self._partly("goal", goal, expected["goal"])
        conditions = {item.subject: item.holds for item in explanation.conditions}
        for reference, wanted in expected.get("conditions", {}).items():
            # The subject of a condition may be called by its id or by its name.
            holds = conditions.get(reference, conditions.get(client.agent_id(reference) or "", MISSING))
            self._same(f"condition of {reference}", holds, wanted)

    def _check_calls(self, step: step_pb2.Step, wanted: Sequence[Mapping[str, Any]]) -> None:
        client = self._client
        rest = list(step.calls)
        for item in wanted:
            found = next((call for call in rest if self._is_call(call, item)), None)
            if found is None:
                self._fail(f"no live call is {item}")
            rest.remove(found)
        if rest:
            names = [client.calls[call.id].agent_id for call in rest]
            self._fail(f"more calls are live: {names}")

    def _is_call(self, call: step_pb2.Call, wanted: Mapping[str, Any]) -> bool:
        client = self._client
        found = {
            "status": wire.name_of(step_pb2.CallStatus, call.status, "CALL_STATUS"),
            "output_need": wire.name_of(value_pb2.Need, call.output_need, "NEED"),
            "response_id": call.response_id,
            "external": call.external,
            "final": call.final,
        }
        if "call" in wanted and call.id != client.call_id(wanted["call"]):
            return False
        if "agent" in wanted and call.agent_id != client.agent_id(wanted["agent"]):
            return False
        return all(found[name] == wanted[name] for name in wanted if name in found)

    def _check_decisions(self, step: step_pb2.Step, wanted: Sequence[Mapping[str, Any]]) -> None:
        decisions = step.explanation.decisions
        if len(decisions) != len(wanted):
            self._fail(f"the explanation has {len(decisions)} decisions, not {len(wanted)}")
        several = len(wanted) > 1
        for number, (found, item) in enumerate(zip(decisions, wanted, strict=True), start=1):
            self._same("part", (found.part, found.parts), (number, len(wanted)) if several else (0, 0))
            self._check_decision(found, item)

    def _check_decision(self, found: step_pb2.DecisionRecord, wanted: Mapping[str, Any]) -> None:
        if not found.provider or not found.resolved_model or not found.input_digest:
            self._fail("the decision does not say by which model it was made, or on which input")
        self._same("decision model", found.model, self._client.init.model)
        if "model" in wanted:
            self._same("resolved model", found.resolved_model, wanted["model"])
        asked, answered = [item.name for item in found.questions], [item.question for item in found.answers]
        self._same("answers", answered, asked)
        if "questions" in wanted:
            questions = [wire.question(item) for item in found.questions]
            self._same("questions", [item["name"] for item in questions], [_name(item) for item in wanted["questions"]])
            for question, item in zip(questions, wanted["questions"], strict=True):
                if isinstance(item, dict):
                    self._check_question(question, item)
        if "input" in wanted:
            found_input = [(item.name, wire.plain(item.value)) for item in found.input]
            expected = [(name, _comparable(written)) for item in wanted["input"] for name, written in item.items()]
            self._same("input", found_input, expected)

    def _check_question(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        for part in wanted.keys() - {"choice"}:
            self._same(f"question {found['name']}, {part}", _part(found, part, wanted[part]), wanted[part])
        if "choice" in wanted:
            options = found.get("choice", [])
            self._same("options", [item["name"] for item in options], [_name(item) for item in wanted["choice"]])
            for option, item in zip(options, wanted["choice"], strict=True):
                if isinstance(item, dict):
                    self._partly(f"option {option['name']}", option, item)

    # ---- saying what is wrong ----------------------------------------------------------------------

    def _need_step(self) -> step_pb2.Step:
        if self._client.step is None:
            raise ValueError(f"{self._case.id}: there is no step to go on from")
        return self._client.step

    def _partly(self, what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        for name, item in wanted.items():
            self._same(f"{what}: {name}", found.get(name, MISSING), item)

    def _same(self, what: str, found: Any, wanted: Any) -> None:
        if _number(found) and _number(wanted):
            same = math.isclose(found, wanted, rel_tol=0, abs_tol=TOLERANCE)
        else:
            same = type(found) is type(wanted) and found == wanted
        if not same:
            self._fail(f"{what}: {_show(found)}, not {_show(wanted)}")

    def _fail(self, problem: str) -> NoReturn:
        reply = "" if self._reply is None else f"\nreply: {json_format.MessageToJson(self._reply, indent=1)}"
        says = self._case.data["says"]
        raise MismatchError(f"{self._case.id}, {self._where}, {self._mode.name}: {problem}\n({says}){reply}")


def _calls(step: step_pb2.Step) -> list[tuple[str, str, str, bool]]:
    statuses = step_pb2.CallStatus
    return sorted((call.id, statuses.Name(call.status), call.response_id, call.external) for call in step.calls)


def _warnings(warnings: Sequence[step_pb2.Warning]) -> list[str]:
    return [wire.name_of(step_pb2.WarningCode, warning.code, "WARNING_CODE") for warning in warnings]


def _texts(written: Any) -> Iterator[str]:
    """Every text inside a value as a case writes it."""
    if isinstance(written, str):
        yield written
    elif isinstance(written, dict | list):
        for item in written.values() if isinstance(written, dict) else written:
            yield from _texts(item)


def _name(item: Any) -> Any:
    return item["name"] if isinstance(item, dict) else item


def _part(found: Mapping[str, Any], part: str, wanted: Any) -> Any:
    """A part of a question, as far as the case cares."""
    if part == "yes_no" and "yes_no" in found:
        return {name: found["yes_no"][name] for name in wanted}
    return found.get(part, MISSING)


def _comparable(written: Any) -> Any:
    return wire.plain(wire.value(written))


def _number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _show(item: Any) -> str:
    return "nothing" if item is MISSING else repr(item)


__all__ = ["MismatchError", "run"]
