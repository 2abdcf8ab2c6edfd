"""The options of a run, the same for both clients."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypedDict

from plannerd_client._agents import AnyAgent
from plannerd_client._conditions import BeliefFunction
from plannerd_client._definition import (
    DecisionOptions,
    Definition,
    ExplainLevel,
    ParentCall,
    PlannerAgent,
    define,
    planner_agent_of,
)
from plannerd_client._link import Environment
from plannerd_client._planners import Planner
from plannerd_client._recovery import ErrorHandler
from plannerd_client._results import Step
from plannerd_client._retries import RetryPolicy
from plannerd_client._runner import Runner, Settings
from plannerd_client._signatures import output_type_of
from plannerd_client._snapshot import Snapshot

ENVIRONMENT: Final = Environment(clock=time.monotonic, wall_clock=time.time, chance=random.random)


class RunOptions(TypedDict, total=False):
    """The keyword arguments of `run`. All of them may be left out.

    The planner agent:
        name: its name, for traces.
        output_key: the scope key of its result; a result that the planner does not give is read there.
        output_type: the type of its result as an annotation (`dict`, `str`, ...). Default: anything.

    The scope:
        scope: more keys, which are no arguments: agents can read them, decision models don't see them.
        beliefs: functions for the conditions made by `belief(name)`.

    Decisions:
        model: the name of a decision model of the server, or `DecisionOptions`. Default: the server's default.
        explain: how detailed explanations are: "none", "summary" (the default) or "full".
        include_input: repeat the input of each decision in its explanation.

    Failures:
        on_error: `handler(context, exception)` returns `Retry()`, `Recover(value)`, or None to give up.
        cancel_siblings: when the run fails, don't wait for agents that still run.
        retry: how often and how long a failed request is sent again. Default: the client's.
        timeout: seconds that the run may take in all. Default: no limit.

    Watching:
        on_step: is called with each `Step`.
        on_snapshot: is called with a `Snapshot` whenever there is more to lose: when a step was answered, and when
            outputs are about to be reported. Persist it and no crash loses anything.
        record: is called with each line of a recording, which `plannerd replay` runs again: pass the `write` of an open
            file. Sets `explain` to "full" unless it is given. A recording has the scope in it.
        traceparent: the W3C trace context that the run belongs to.
        parent: the call of another invocation that the run serves.

    Going on:
        invocation_id: the id of the invocation. Default: a new UUID, or the snapshot's.
        resume: the snapshot to continue. `arguments` and `scope` then change the scope; the planner agent is the
            snapshot's.
        answers: answers of humans, by response id.
        take_over: with `resume`: fence whoever else works on this invocation.
    """

    name: str
    output_key: str
    output_type: Any
    scope: Mapping[str, Any]
    beliefs: Mapping[str, BeliefFunction]
    model: str | DecisionOptions
    explain: ExplainLevel
    include_input: bool
    on_error: ErrorHandler
    cancel_siblings: bool
    retry: RetryPolicy
    timeout: float | None
    on_step: Callable[[Step], Any]
    on_snapshot: Callable[[Snapshot], Any]
    record: Callable[[str], Any]
    traceparent: str
    parent: ParentCall
    invocation_id: str
    resume: Snapshot | None
    answers: Mapping[str, Any]
    take_over: bool


def prepare(
    planner: Planner,
    agents: Iterable[AnyAgent | Callable[..., Any]],
    arguments: Mapping[str, Any] | None,
    options: RunOptions,
    *,
    policy: RetryPolicy,
    rpc_timeout: float | None,
    max_reply_bytes: int,
    environment: Environment = ENVIRONMENT,
) -> Runner:
    """The program of a run.

    Args:
        planner: the planner.
        agents: the agents, in order.
        arguments: the arguments of the planner agent, by name, in order.
        options: see `RunOptions`.
        policy: the client's own retries.
        rpc_timeout: seconds that one attempt of a request may take.
        max_reply_bytes: the largest reply that the client takes; 0 for the server's limit.
        environment: clocks and chance.

    Raises:
        TypeError, ValueError, UnsupportedValue: something can't be described.
    """
    unknown = sorted(set(options) - set(RunOptions.__annotations__))
    if unknown:
        known = ", ".join(sorted(RunOptions.__annotations__))
        raise TypeError(f"run() has no option {unknown[0]!r}; there are {known}")
    resume = options.get("resume")
    if resume is not None and options.get("invocation_id", resume.invocation_id) != resume.invocation_id:
        raise ValueError(f"the snapshot is of the invocation {resume.invocation_id!r}, and continues only that one")
    definition = _define(planner, agents, _planner_agent(arguments, resume, options), options, max_reply_bytes)
    settings = Settings(
        invocation_id=resume.invocation_id if resume else options.get("invocation_id") or uuid.uuid4().hex,
        values={**options.get("scope", {}), **(arguments or {})},
        resume=resume,
        answers=options.get("answers", {}),
        take_over=options.get("take_over", False),
        on_error=options.get("on_error"),
        on_step=options.get("on_step"),
        on_snapshot=options.get("on_snapshot"),
        record=options.get("record"),
        policy=options.get("retry", policy),
        rpc_timeout=rpc_timeout,
        timeout=options.get("timeout"),
        cancel_siblings=options.get("cancel_siblings", False),
    )
    return Runner(definition, settings, environment)


def _define(
    planner: Planner,
    agents: Iterable[AnyAgent | Callable[..., Any]],
    planner_agent: PlannerAgent,
    options: RunOptions,
    max_reply_bytes: int,
) -> Definition:
    return define(
        planner,
        agents,
        planner_agent,
        beliefs=options.get("beliefs", {}),
        model=options.get("model", ""),
        explain=options.get("explain", "full" if options.get("record") else "summary"),
        include_input=options.get("include_input", False),
        max_reply_bytes=max_reply_bytes,
        parent=options.get("parent"),
    )


def _planner_agent(arguments: Mapping[str, Any] | None, resume: Snapshot | None, options: RunOptions) -> PlannerAgent:
    if resume is None:
        return planner_agent_of(
            options.get("name", ""),
            arguments or {},
            options.get("output_key", ""),
            options.get("output_type", Any),
        )
    agent = resume.planner_agent
    if "output_type" in options:
        agent = replace(agent, output_type=output_type_of(options["output_type"]))
    return replace(agent, name=options.get("name", agent.name), output_key=options.get("output_key", agent.output_key))
