"""The reference host of jevcompat with each of its faults: the same decision, or an error with a reason.

The table is jevcompat_faults.yaml; docs/decision-model-faults.md shows it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
import pytest
import yaml
from google.protobuf.json_format import MessageToDict
from jevcompat.mock import MockConfig, make_server  # type: ignore[import-untyped]

from plannerd_protos.planner.v1 import agent_pb2, decision_pb2, planner_pb2, step_pb2
from tests.docs.markdown import ROOT
from tests.support.builders import Scope, agent, cascade, output, router, scheduler, scope_update
from tests.support.errors import seen
from tests.support.systemone import HANGS, Asking, asking, asking_all, yes_or_no

TABLE: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("jevcompat_faults.yaml").read_text("utf-8")
)
PAGE: Final = ROOT / "docs" / "decision-model-faults.md"

SCOPE: Final[Scope] = {"ticket": "I was charged twice für den Kessel", "verdict": "none"}
NAMES: Final = ("Billing", "größe", "support")
RIGHT: Final = "sk-right"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request: the error's reason; or the decision, with what it was made on and the warnings."""

    reason: str = ""
    decided: str = ""
    answers: str = ""
    warnings: tuple[str, ...] = ()


Asked: TypeAlias = Callable[[Asking], Awaitable[Outcome]]


def agents(count: int = 3) -> list[agent_pb2.Agent]:
    names = NAMES if count == len(NAMES) else [f"agent {number}" for number in range(count)]
    return [agent(name, "ticket", writes=f"out{i}", text=f"Knows all of {name}") for i, name in enumerate(names)]


def planning(name: str, request: Callable[[], planner_pb2.InitRequest], model: str = "jev") -> Asked:
    """The first step of a planner that decides at once."""

    async def ask(plannerd: Asking) -> Outcome:
        made = request()
        made.decision.model = model
        begun = await plannerd.init(made, name)
        step = planner_pb2.FirstActionRequest(invocation_id=name, base=begun.position, scope=scope_update(SCOPE))
        return decided((await plannerd.planner.FirstAction(step, timeout=HANGS)).step)

    return ask


async def grading(plannerd: Asking) -> Outcome:
    """The step of a cascade that grades the answer of the first tier."""
    request = cascade(*agents(2), threshold=0.5, acceptance_criterion="The answer is polite")
    begun = await plannerd.init(request, "cascade")
    first = planner_pb2.FirstActionRequest(
        invocation_id="cascade", base=begun.position, scope=scope_update({"ticket": SCOPE["ticket"]})
    )
    step = (await plannerd.planner.FirstAction(first, timeout=HANGS)).step
    report = planner_pb2.NextActionRequest(
        invocation_id="cascade", base=step.position, results=[output(step.calls[0].id, "Sorry, it is refunded")]
    )
    return decided((await plannerd.planner.NextAction(report, timeout=HANGS)).step)


async def all_kinds(plannerd: Asking) -> Outcome:
    """One question of each kind, with options that have no description, and all sides of a yes/no question."""
    return answered(await plannerd.decisions.Decide(every_kind(), timeout=HANGS))


def every_kind() -> decision_pb2.DecideRequest:
    request = yes_or_no()
    request.questions[0].yes_no.yes_when = "it is over"
    request.questions[0].yes_no.no_when = "it goes on"
    choice = request.questions.add(name="route", text="Who?").choice
    choice.options.add(name="Anna")
    choice.options.add(name="Björn", description="knows it")
    request.questions.add(name="urgency", text="How urgent?").scale.levels.extend(["later", "soon", "now"])
    return request


def asking_model(model: str) -> Asked:
    """One question to another of the configured models."""

    async def ask(plannerd: Asking) -> Outcome:
        request = yes_or_no()
        request.model = model
        return answered(await plannerd.decisions.Decide(request, timeout=HANGS))

    return ask


LEVELS: Final = [f"level {number}" for number in range(12)]

# What is asked of each host. The last ones are asked of it under other names, or with other keys.
REQUESTS: Final[dict[str, Asked]] = {
    "scheduler": planning("scheduler", lambda: scheduler(*agents(), output_key="verdict", goal_threshold=0.99)),
    "scheduler with 8 levels": planning("scheduler 8", lambda: scheduler(*agents(), usefulness_levels=LEVELS[:8])),
    "scheduler with 12 levels": planning("scheduler 12", lambda: scheduler(*agents(), usefulness_levels=LEVELS)),
    "router": planning("router", lambda: router(*agents(), threshold=None)),
    "router of 70 agents": planning("router 70", lambda: router(*agents(70), threshold=None)),
    "router with a threshold": planning("router t", lambda: router(*agents(), threshold=0.5)),
    "cascade": grading,
    "Decide": all_kinds,
    "model jev-latest": asking_model("latest"),
    "unknown model": asking_model("unknown"),
    "needless key": asking_model("needless-key"),
    "right key": asking_model("right-key"),
    "wrong key": asking_model("wrong-key"),
    "no key": asking_model("no-key"),
}


def decided(step: step_pb2.Step) -> Outcome:
    """What a step came to. Its decision must be the one that follows from the answers that it was made on."""
    [record] = step.explanation.decisions
    assert record.model == "jev"
    assert record.resolved_model == "jevcompat-mock-0.1"
    called = [step.explanation.agents[position].agent_id for position in _follow(step, record)]
    assert [call.agent_id for call in step.calls] == called
    return Outcome(
        decided=f"{step.action.WhichOneof('kind')} {called}",
        answers=_without_confidence(record.answers),
        warnings=tuple(step_pb2.WarningCode.Name(warning.code) for warning in step.warnings),
    )


def _follow(step: step_pb2.Step, record: step_pb2.DecisionRecord) -> list[int]:
    """The positions of the agents that the answers choose, by the rules of the planner that asked."""
    answers = list(record.answers)
    kinds = [answer.WhichOneof("kind") for answer in answers]
    if kinds == ["choice"]:
        options = [option.name for option in record.questions[0].choice.options]
        return [options.index(answers[0].choice.value)]
    if "scale" in kinds:
        means = [answer.scale.mean for answer in answers if answer.HasField("scale")]
        top = len(record.questions[0].scale.levels) - 1
        best = means.index(max(means))
        goals = [answer.yes_no.probability for answer in answers if answer.HasField("yes_no")]
        reached = bool(goals) and goals[0] >= step.explanation.goal.threshold
        return [] if reached or means[best] / top < 0.5 else [best]
    if step.position.revision > 1:  # the cascade
        return [] if answers[0].yes_no.probability >= 0.5 else [1]
    return [position for position, answer in enumerate(answers) if answer.yes_no.probability >= 0.5]


def answered(reply: decision_pb2.DecideResponse) -> Outcome:
    assert reply.model == "jevcompat-mock-0.1"
    assert reply.retries == 0
    chosen = [answer.choice.value for answer in reply.answers if answer.HasField("choice")]
    return Outcome(decided=f"answered {chosen}", answers=_without_confidence(reply.answers))


def _without_confidence(answers: Any) -> str:
    """Answers as text. A confidence decides nothing, and is recorded as it comes."""
    found = [MessageToDict(answer) for answer in answers]
    for answer in found:
        for kind in answer.values():
            if isinstance(kind, dict):
                kind.pop("confidence", None)
    return json.dumps(found, sort_keys=True)


@contextmanager
def mock(config: MockConfig) -> Iterator[str]:
    """The host of jevcompat, in threads of this process; its address."""
    server = make_server(config)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def mocks(*faults: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Two hosts with these faults, one without a key and one with; the models of a plannerd that ask them."""
    with (
        mock(MockConfig(faults=frozenset(faults))) as open_,
        mock(MockConfig(faults=frozenset(faults), key=RIGHT)) as locked,
    ):
        here, there = {"base_url": open_, "model": "mock"}, {"base_url": locked, "model": "mock"}
        models: dict[str, dict[str, Any]] = {
            "jev": here | {"max_levels": None},
            "latest": here | {"model": "jev-latest"},
            "unknown": here | {"model": "nobody"},
            "needless-key": here | {"api_key_env": "RIGHT_KEY"},
            "right-key": there | {"api_key_env": "RIGHT_KEY"},
            "wrong-key": there | {"api_key_env": "WRONG_KEY"},
            "no-key": there,
        }
        # The mock accepts few connections at a time; whoever it drops in the crowd is retried soon.
        yield {name: model | {"retry_wait_seconds": 0.02, "max_concurrent": 2} for name, model in models.items()}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT_KEY", RIGHT)
    monkeypatch.setenv("WRONG_KEY", "sk-wrong")


async def outcomes(*faults: str) -> dict[str, Outcome]:
    """What comes of each request to hosts with these faults."""

    async def outcome(plannerd: Asking, ask: Asked) -> Outcome:
        try:
            return await ask(plannerd)
        except grpc.aio.AioRpcError as error:
            return Outcome(reason=seen(error).reason or f"no reason: {error}")

    with mocks(*faults) as models:
        async with asking_all(models) as plannerd:
            found = await asyncio.gather(*(outcome(plannerd, ask) for ask in REQUESTS.values()))
            assert not plannerd.serving.events("unexpected_error")
    return dict(zip(REQUESTS, found, strict=True))


_CLEAN: Final[dict[str, Outcome]] = {}


async def without_faults() -> Mapping[str, Outcome]:
    """What comes of each request to hosts without faults."""
    if not _CLEAN:
        _CLEAN.update(await outcomes())
    return _CLEAN


def compared(clean: Outcome, faulty: Outcome) -> str:
    """In the words of the table: what a fault changes."""
    if faulty == clean:
        return "same"
    if faulty.reason:
        return faulty.reason
    if faulty.warnings:
        return "warns " + ", ".join(code.removeprefix("WARNING_CODE_") for code in faulty.warnings)
    return "follows" if faulty.decided != clean.decided else "numbers"


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    """The faults of the installed version, as the tool lists them, and what it says that they do."""
    listed = subprocess.run(
        [Path(sys.executable).with_name("jevcompat"), "mock", "--list-faults"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split(maxsplit=3) for line in listed.splitlines()]
    assert all(row[1] == "breaks" for row in rows)
    return {row[0]: row[3] for row in rows}


def expected(fault: str, clean: Mapping[str, Outcome]) -> dict[str, str]:
    """What the table says about each request."""
    row = TABLE[fault]
    everything = row.get("all", "same")
    return {name: row.get(name, "same" if clean[name].reason else everything) for name in REQUESTS}


def test_the_table_has_every_fault(faults: dict[str, str]) -> None:
    """Each fault that the installed jevcompat knows is in the table, and nothing else."""
    assert set(TABLE) == set(faults)
    assert {request for row in TABLE.values() for request in row} <= {*REQUESTS, "all"}


async def test_without_a_fault() -> None:
    """A host without faults leads to a decision, unless it has no such model, key or number of levels."""
    clean = await without_faults()
    assert {name: outcome.reason for name, outcome in clean.items() if outcome.reason} == {
        "scheduler with 12 levels": "DECISION_MODEL_REJECTED",
        "unknown model": "DECISION_MODEL_REJECTED",
        "wrong key": "DECISION_MODEL_CREDENTIALS",
        "no key": "DECISION_MODEL_CREDENTIALS",
    }
    assert not any(outcome.warnings for outcome in clean.values())


@pytest.mark.parametrize("fault", TABLE)
async def test_each_fault(fault: str) -> None:
    """A fault leads to what the table says: the same decision, or an error with a reason; never to a wrong one."""
    clean, faulty = await without_faults(), await outcomes(fault)
    wanted = expected(fault, clean)
    found = {name: compared(clean[name], faulty[name]) for name in REQUESTS}
    # Other answers may lead to the same decision by chance.
    found |= {name: "follows" for name, word in found.items() if word == "numbers" and wanted[name] == "follows"}
    assert found == wanted


@pytest.mark.parametrize("fault", ["", *(fault for fault, row in TABLE.items() if "follows" in row.values())])
async def test_answers_are_those_of_the_host(fault: str) -> None:
    """What a decision is made on is what the host answered, digit by digit."""
    question = {"type": "noul", "instructions": "Reached?"}
    body = {"model": "mock", "state": {"request": "kumquat"}, "questions": {"goal": question}}
    with mock(MockConfig(faults=frozenset([fault] if fault else []))) as url:
        raw = await asyncio.to_thread(_post, f"{url}/v1/systemone", body)
        async with asking(url, model="mock") as plannerd:
            reply = await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
    assert reply.answers[0].yes_no.probability == raw["answers"]["goal"]["noul"]
    assert reply.usage.input_tokens == raw["usage"]["input_tokens"]
    assert reply.usage.output_tokens == raw["usage"]["output_tokens"]


def _post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


async def test_a_busy_host() -> None:
    """A host that refuses every third request for being busy fails none of ours."""
    with mock(MockConfig(busy_every=3)) as url:
        async with asking(url, model="mock", retry_wait_seconds=0) as plannerd:
            replies = [await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS) for _ in range(9)]
            assert sum(reply.retries for reply in replies) == 4
            assert len({reply.answers[0].yes_no.probability for reply in replies}) == 1


@pytest.mark.parametrize(
    ("fault", "limit", "request_"),
    [
        ("cap-64", {"max_options": 64}, router(*agents(65), threshold=None)),
        ("cap-5-levels", {"max_levels": 5}, scheduler(*agents(), usefulness_levels=LEVELS[:6])),
    ],
)
async def test_limits_that_are_known_are_found_at_init(
    fault: str, limit: dict[str, int], request_: planner_pb2.InitRequest
) -> None:
    """Where a host's limit is configured, a planner that exceeds it is refused at Init, and nothing is sent."""
    config = MockConfig(faults=frozenset([fault]))
    with mock(config) as url:
        async with asking(url, model="mock", **limit) as plannerd:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await plannerd.init(request_)
        error = seen(caught.value)
        assert error.reason == "DECISION_MODEL_LIMIT"
        assert (error.metadata["allowed"], error.metadata["model"]) == (str(next(iter(limit.values()))), "jev")
        assert config.requests == 0


def rendered(faults: Mapping[str, str]) -> str:
    """The table as the page shows it."""
    lines = ["| fault | the host | plannerd |", "| --- | --- | --- |"]
    for fault, does in faults.items():
        row = dict(TABLE[fault])
        everything = row.pop("all", "same")
        results = [result for result in dict.fromkeys(row.values()) if result != everything]
        cells = [f"{_listed(name for name in row if row[name] == result)}: {_said(result)}" for result in results]
        if not cells:
            cells = [_said(everything)]
        elif everything != "same":
            cells.append(f"else {_said(everything)}")
        lines.append(f"| `{fault}` | {does} | {'; '.join(cells)} |")
    return "\n".join(lines)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


_WORDS: Final = {
    "same": "as ever",
    "numbers": "as ever, on other numbers",
    "follows": "goes by what the host answers",
}


def _said(result: str) -> str:
    if result.startswith("warns "):
        return f"{_WORDS['follows']}, with the warning `{result.removeprefix('warns ')}`"
    return _WORDS.get(result, f"`{result}`")


def test_the_page_shows_the_table(faults: dict[str, str]) -> None:
    """The page about faults has the table as it is tested."""
    assert rendered(faults) in PAGE.read_text("utf-8"), f"{PAGE.name} must have this:\n\n{rendered(faults)}"
