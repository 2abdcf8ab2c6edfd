"""One plannerd that asks another one for its decisions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest
import yaml

from plannerd_client import Client, PlannerdError, Router, agent
from plannerd_protos.planner.v1 import decision_pb2, step_pb2, value_pb2
from tests.support.servers import ServerProcess, running_server

SCRIPT = {
    "model": "scripted-1",
    "rules": {
        "no": {"refuse": "not today"},
        "bad": 1.5,
        "down": {"error": "DECISION_MODEL_UNAVAILABLE", "message": "tangerine"},
        "full": {"error": "DECISION_QUEUE_FULL", "message": "tangerine", "retry_after": 3600},
    },
    "defaults": {"yes_no": 0.25, "choice": "billing", "scale": 1},
    "limits": {"options": 3},
}


def remote(target: str, **settings: Any) -> dict[str, Any]:
    """The settings of a model behind another server."""
    return {"provider": "grpc", "target": target, "retries": 1, **settings}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose models are those of another server: `sparrow` behind `small`, a script behind `scripted`."""
    file = tmp_path_factory.mktemp("chain") / "script.yaml"
    file.write_text(yaml.safe_dump(SCRIPT), "utf-8")
    with ExitStack() as stack:
        models = {"sparrow": {"provider": "sparrow"}, "script": {"provider": "fixed", "file": str(file)}}
        back = stack.enter_context(running_server(config={"decisions": {"models": models}}))
        chain = {
            "small": remote(back.target, model="sparrow"),
            "scripted": remote(back.target, model="script"),
            "nobody": remote(back.target, model="missing"),
            "undecided": remote(back.target),
            "direct": {"provider": "sparrow"},
        }
        yield stack.enter_context(running_server(config={"decisions": {"models": chain, "default": "small"}}))


def decide(server: ServerProcess, model: str, *questions: decision_pb2.Question) -> decision_pb2.DecideResponse:
    """Ask a model of the server."""
    text = value_pb2.Value(string_value="My parcel has not arrived, where is it? " * 200)
    request = decision_pb2.DecideRequest(
        model=model, input=[decision_pb2.InputField(name="request", value=text)], questions=questions
    )
    with Client(server.target) as client:
        return client.decide(request, timeout=60)


def yes_no(name: str) -> decision_pb2.Question:
    return decision_pb2.Question(name=name, text="Is it about a parcel?", yes_no=decision_pb2.YesNoQuestion())


def choice(*options: str) -> decision_pb2.Question:
    offered = [decision_pb2.ChoiceOption(name=option, description=f"about {option}") for option in options]
    return decision_pb2.Question(name="pick", text="Which?", choice=decision_pb2.ChoiceQuestion(options=offered))


def scale(*levels: str) -> decision_pb2.Question:
    return decision_pb2.Question(name="rate", text="How?", scale=decision_pb2.ScaleQuestion(levels=levels))


def test_a_chain_changes_no_answer(front: ServerProcess) -> None:
    """A model behind two servers answers as it does behind one: numbers, name, what was cut."""
    questions = (yes_no("q"), choice("parcels", "invoices"), scale("low", "mid", "high"))
    direct, chained = decide(front, "direct", *questions), decide(front, "small", *questions)
    assert direct.truncation.used_chars < direct.truncation.original_chars
    for response in (direct, chained):
        response.ClearField("latency")
    assert chained == direct


def test_a_refusal_is_an_answer(front: ServerProcess) -> None:
    """Decide hands a refusal on, through both servers, beside the other answers."""
    response = decide(front, "scripted", yes_no("no"), yes_no("yes"))
    assert response.model == "scripted-1"
    assert response.answers[0].refusal.message == "not today"
    assert response.answers[1].yes_no.probability == 0.25


@pytest.mark.parametrize(
    ("model", "question", "code", "reason", "metadata"),
    [
        ("scripted", yes_no("bad"), "INTERNAL", "DECISION_INVALID_ANSWER", {}),
        ("scripted", yes_no("down"), "UNAVAILABLE", "DECISION_MODEL_UNAVAILABLE", {"retries_spent": "true"}),
        ("scripted", yes_no("full"), "UNAVAILABLE", "DECISION_MODEL_UNAVAILABLE", {}),
        ("scripted", choice("a", "b", "c", "d"), "FAILED_PRECONDITION", "DECISION_MODEL_LIMIT", {"limit": "options"}),
        ("nobody", yes_no("q"), "INTERNAL", "DECISION_MODEL_REJECTED", {"status": "NOT_FOUND"}),
        ("undecided", yes_no("q"), "INTERNAL", "DECISION_MODEL_REJECTED", {"status": "NOT_FOUND"}),
    ],
    ids=["bad", "down", "full", "limit", "nobody", "undecided"],
)
def test_failures_come_through(
    front: ServerProcess,
    model: str,
    question: decision_pb2.Question,
    code: str,
    reason: str,
    metadata: dict[str, str],
) -> None:
    """What fails at the model behind the other server has a reason here that says what a client can do."""
    with pytest.raises(PlannerdError) as raised:
        decide(front, model, question)
    assert (raised.value.code, raised.value.reason) == (getattr(grpc.StatusCode, code), reason)
    assert metadata.items() <= raised.value.metadata.items()
    assert "tangerine" not in str(raised.value)


def test_a_planner_decides_by_the_chain(front: ServerProcess) -> None:
    """A router's decision comes from the model behind the other server, and its explanation says so."""

    @agent
    def billing(request: str) -> str:
        """Answers questions about invoices, payments and refunds."""
        return "billed"

    @agent
    def shipping(request: str) -> str:
        """Answers questions about parcels and deliveries."""
        return "shipped"

    with Client(front.target) as client:
        run = client.run(Router(), [billing, shipping], {"request": "Where is my parcel?"}, explain="full")
    assert run.result == "shipped"
    record: step_pb2.DecisionRecord = run.steps[0].message.explanation.decisions[0]
    assert (record.model, record.provider, record.resolved_model) == ("small", "grpc", "sparrow-nano-general-v1.1")


@contextmanager
def mirror(**settings: Any) -> Iterator[ServerProcess]:
    """A server whose only model is itself."""
    with running_server() as placeholder:
        port = placeholder.port
    models = {"mirror": remote(f"127.0.0.1:{port}", **settings)}
    with running_server("--port", str(port), config={"decisions": {"models": models}}) as server:
        yield server


def test_servers_that_ask_themselves_find_out() -> None:
    """A server whose model is itself answers with an error that says so, without trying again at every turn."""
    with mirror() as server:
        with pytest.raises(PlannerdError) as raised:
            decide(server, "mirror", yes_no("q"))
        assert raised.value.reason == "DECISION_MODEL_LIMIT"
        assert raised.value.metadata["limit"] == "hops"
        assert "in a circle" in str(raised.value)
        calls = [event for event in server.events() if event["event"] == "call"]
        assert len(calls) <= 10


def test_a_circle_with_one_place_ends_too() -> None:
    """Where the question waits for itself, because there is one place alone, time-outs end it and free the place."""
    with mirror(max_concurrent=1, attempt_timeout_seconds=0.5) as server:
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(PlannerdError) as raised:
                decide(server, "mirror", yes_no("q"))
            assert raised.value.reason == "DECISION_MODEL_UNAVAILABLE"
            assert time.monotonic() - started < 20
