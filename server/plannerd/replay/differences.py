"""What differs between a recorded step and the same step replayed, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from plannerd.decisions.questions import Question
from plannerd.decisions.wire import encode_question
from plannerd_protos.planner.v1 import decision_pb2, planner_pb2, step_pb2, value_pb2

_TOLERANCE: Final = 1e-9
_SHOWN: Final = 300


def action_of(step: step_pb2.Step) -> str:
    """What a step does, by agents rather than by calls: `start draft$1, review$2`."""
    agents = {call.id: call.agent_id for call in step.calls}
    action = step.action
    match action.WhichOneof("kind"):
        case "start":
            return f"start {_list(agents.get(call, call) for call in action.start.call_ids)}"
        case "await":
            return f"await {_list(getattr(action, 'await').keys)}"
        case "suspend":
            return f"suspend for {_list(agents.get(call, call) for call in action.suspend.call_ids)}"
        case "done":
            return f"done{_result(action.done)}"
        case "give_up":
            return f"give up: {step_pb2.GiveUpReason.Name(action.give_up.reason).removeprefix('GIVE_UP_REASON_')}"
        case kind:
            return "go on" if kind == "no_op" else "nothing"


def outcome_of(step: step_pb2.Step) -> str:
    """The outcome of a step in a word."""
    return step_pb2.StepOutcome.Name(step.explanation.outcome).removeprefix("STEP_OUTCOME_")


def init_differences(was: planner_pb2.InitResponse, now: planner_pb2.InitResponse) -> Iterator[str]:
    """What differs in the answers to an Init."""
    for key in sorted(now.reads.keys() | was.reads.keys()):
        if key not in was.reads:
            yield f"reads '{key}', which was not read: the recording has no value of it"
        elif key not in now.reads:
            yield f"does not read '{key}', which was read"
    yield from _changed("beliefs", _list(was.beliefs), _list(now.beliefs))
    yield from _changed("warnings", _warnings(was.warnings), _warnings(now.warnings))


def step_differences(was: step_pb2.Step, now: step_pb2.Step) -> Iterator[str]:
    """What differs in two steps, apart from times, texts and the state."""
    yield from _changed("action", action_of(was), action_of(now))
    yield from _changed("outcome", outcome_of(was), outcome_of(now))
    yield from _changed("calls", _calls(was), _calls(now))
    yield from _agents(was.explanation.agents, now.explanation.agents)
    yield from _goal(was.explanation, now.explanation)
    yield from _conditions(was.explanation, now.explanation)
    yield from _decisions(was.explanation, now.explanation)
    yield from _changed("warnings", _warnings(was.warnings), _warnings(now.warnings))
    if was.writes != now.writes:
        yield "writes differ"


def by_name(questions: Iterable[Question]) -> dict[str, decision_pb2.Question]:
    """Questions by their names, as `questions_differ` takes them."""
    return {question.name: encode_question(question) for question in questions}


def _agents(was: Iterable[step_pb2.AgentAssessment], now: Iterable[step_pb2.AgentAssessment]) -> Iterator[str]:
    before, after = {agent.agent_id: agent for agent in was}, {agent.agent_id: agent for agent in now}
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            yield f"agent {name}: was {'not ' if name not in before else ''}looked at"
            continue
        old, new = before[name], after[name]
        yield from _changed(f"agent {name}: status", _status(old), _status(new))
        for field in ("score", "threshold"):
            yield from _changed(f"agent {name}: {field}", _optional(old, field), _optional(new, field))
        yield from _changed(f"agent {name}: called", "yes" if old.called else "no", "yes" if new.called else "no")
        yield from _changed(f"agent {name}: missing keys", _list(old.missing_keys), _list(new.missing_keys))


def _goal(was: step_pb2.Explanation, now: step_pb2.Explanation) -> Iterator[str]:
    if was.HasField("goal") != now.HasField("goal"):
        yield f"goal: was {'' if was.HasField('goal') else 'not '}looked at"
        return
    yield from _changed("goal: probability", _optional(was.goal, "probability"), _optional(now.goal, "probability"))
    yield from _changed("goal: threshold", was.goal.threshold, now.goal.threshold)
    yield from _changed("goal: result missing", str(was.goal.result_missing), str(now.goal.result_missing))


def _conditions(was: step_pb2.Explanation, now: step_pb2.Explanation) -> Iterator[str]:
    before = {(found.subject, found.condition): found.holds for found in was.conditions}
    after = {(found.subject, found.condition): found.holds for found in now.conditions}
    for key in dict.fromkeys([*before, *after]):
        subject, condition = key
        yield from _changed(f"condition of {subject} ({_cut(condition)})", _held(before, key), _held(after, key))


def _decisions(was: step_pb2.Explanation, now: step_pb2.Explanation) -> Iterator[str]:
    yield from questions_differ(_questions(was.decisions), _questions(now.decisions))
    before = {record.input_digest for record in was.decisions}
    after = {record.input_digest for record in now.decisions}
    if before != after and was.decisions and now.decisions:
        yield "the input of the decision differs: the recorded answers were given to another one"


def questions_differ(
    was: Mapping[str, decision_pb2.Question], now: Mapping[str, decision_pb2.Question]
) -> Iterator[str]:
    """What differs in the questions that were asked."""
    for name in dict.fromkeys([*was, *now]):
        if name not in now:
            yield f"question '{name}' is not asked"
        elif name not in was:
            yield f"question '{name}' was not asked"
        elif was[name] != now[name]:
            yield f"question '{name}' was: {_shown(was[name])}"
            yield f"question '{name}' is: {_shown(now[name])}"


def _questions(records: Iterable[step_pb2.DecisionRecord]) -> dict[str, decision_pb2.Question]:
    return {question.name: question for record in records for question in record.questions}


def _shown(question: decision_pb2.Question) -> str:
    kind = question.WhichOneof("kind")
    if kind == "choice":
        return f"{_cut(question.text)} With the options {_list(option.name for option in question.choice.options)}"
    if kind == "scale":
        return f"{_cut(question.text)} On {len(question.scale.levels)} levels"
    return _cut(question.text)


def _result(done: step_pb2.Done) -> str:
    result = done.result
    match result.WhichOneof("kind") if done.HasField("result") else None:
        case None:
            return ""
        case "value":
            return f" with the value {_cut(str(result.value).strip())}"
        case "output_of":
            return f" with the output of call {_place(result.output_of)}"
        case "outputs":
            return f" with the outputs of {_list(output.name for output in result.outputs.outputs)}"
        case _:
            return f" with '{result.scope_key}'"


def _calls(step: step_pb2.Step) -> str:
    return _list(
        f"{call.agent_id} ({step_pb2.CallStatus.Name(call.status).removeprefix('CALL_STATUS_').lower()}"
        f"{', final' if call.final else ''}, {value_pb2.Need.Name(call.output_need).removeprefix('NEED_').lower()})"
        for call in step.calls
    )


def _place(call_id: str) -> str:
    """A call by its step and place there, without the random part of its id."""
    return call_id.partition(".")[2]


def _status(agent: step_pb2.AgentAssessment) -> str:
    return step_pb2.AgentStatus.Name(agent.status).removeprefix("AGENT_STATUS_").lower()


def _warnings(warnings: Iterable[step_pb2.Warning]) -> str:
    return _list(
        step_pb2.WarningCode.Name(warning.code).removeprefix("WARNING_CODE_")
        + (f" {warning.agent_id}" if warning.agent_id else "")
        for warning in warnings
    )


def _held(outcomes: Mapping[tuple[str, str], bool], key: tuple[str, str]) -> str:
    return "not evaluated" if key not in outcomes else "held" if outcomes[key] else "did not hold"


def _optional(message: Message, field: str) -> float | str:
    return float(getattr(message, field)) if message.HasField(field) else "none"


def _changed(what: str, was: Any, now: Any) -> Iterator[str]:
    if isinstance(was, float) and isinstance(now, float):
        if abs(was - now) > _TOLERANCE:
            yield f"{what}: was {was:.6g}, is {now:.6g}"
    elif was != now:
        yield f"{what}: was {_text(was)}, is {_text(now)}"


def _text(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value or "none"


def _list(items: Iterable[str]) -> str:
    return ", ".join(items)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
