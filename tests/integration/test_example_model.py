"""The template of a decision model server, installed the way a user would, behind a real plannerd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd_client import Client, PlannerdError, RetryPolicy, Router, agent
from plannerd_client.errors import DecisionModelUnavailable
from plannerd_protos.planner.v1 import decision_pb2, value_pb2
from tests.support.servers import ROOT, STOP_SECONDS, ServerProcess, running_server

TOKEN = "tangerine"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, installed by pip."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(ROOT / "examples" / "decision-model")], check=True)
    return target


@contextmanager
def model_server(site: Path) -> Iterator[str]:
    """The example, running; where it listens. It must end well when it is told to."""
    environment = {**os.environ, "PYTHONPATH": str(site), "MODEL_TOKEN": TOKEN}
    command = [sys.executable, "-m", "decision_model", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().removeprefix("listening on ")
        finally:
            process.terminate()
            code = process.wait(STOP_SECONDS)
    assert code == 0


@pytest.fixture(scope="module")
def target(site: Path) -> Iterator[str]:
    with model_server(site) as where:
        yield where


@pytest.fixture(scope="module")
def server(target: str) -> Iterator[ServerProcess]:
    """plannerd, with the example as its model, and with two that can't work."""
    authorization = {"authorization": {"env": "MODEL_TOKEN", "prefix": "Bearer "}}
    mine: dict[str, Any] = {"provider": "grpc", "target": target, "metadata": authorization}
    models = {
        "mine": mine,
        "stranger": {**mine, "metadata": {}},
        "other": {**mine, "model": "other"},
    }
    config = {"decisions": {"models": models, "default": "mine"}}
    with running_server(config=config, environment={"MODEL_TOKEN": TOKEN}) as running:
        yield running


@agent
def billing(request: str) -> str:
    """Answers questions about invoices, payments and refunds."""
    return "billed"


@agent
def shipping(request: str) -> str:
    """Answers questions about parcels and deliveries."""
    return "shipped"


def test_a_router_decides_by_the_template(server: ServerProcess) -> None:
    """A run is decided by the function of the template, and the explanation names its model."""
    with Client(server.target) as client:
        run = client.run(Router(), [billing, shipping], {"request": "where are my parcels?"}, explain="full")
    assert run.result == "shipped"
    record = run.steps[0].message.explanation.decisions[0]
    assert (record.model, record.provider, record.resolved_model) == ("mine", "grpc", "word-overlap-1")
    assert TOKEN not in server.log()


def test_every_kind_of_question_is_answered(server: ServerProcess) -> None:
    """Yes/no, choice and scale questions get answers that plannerd's check lets pass, whatever the input."""
    questions = [
        decision_pb2.Question(name="a", text="Is it about parcels?", yes_no=decision_pb2.YesNoQuestion()),
        decision_pb2.Question(
            name="b",
            text="Which?",
            choice=decision_pb2.ChoiceQuestion(options=[decision_pb2.ChoiceOption(name=name) for name in "xyz"]),
        ),
        decision_pb2.Question(name="c", text="How?", scale=decision_pb2.ScaleQuestion(levels=["low", "mid", "high"])),
    ]
    values = [
        value_pb2.Value(string_value="parcels"),
        value_pb2.Value(int_value=3),
        value_pb2.Value(content=value_pb2.Content(text=value_pb2.TextContent(text="x"))),
        value_pb2.Value(
            content=value_pb2.Content(image=value_pb2.ImageContent(media_type="image/png", data=b"\x89PNG"))
        ),
    ]
    with Client(server.target) as client:
        for value in values:
            fields = [decision_pb2.InputField(name="input", value=value)]
            response = client.decide(decision_pb2.DecideRequest(input=fields, questions=questions))
            assert [answer.WhichOneof("kind") for answer in response.answers] == ["yes_no", "choice", "scale"]


@pytest.mark.parametrize(
    ("model", "reason"), [("stranger", "DECISION_MODEL_CREDENTIALS"), ("other", "DECISION_MODEL_REJECTED")]
)
def test_the_template_refuses_whom_it_must(server: ServerProcess, model: str, reason: str) -> None:
    """Without the token, or for a model that it is not, the template answers with the right status."""
    with Client(server.target) as client, pytest.raises(PlannerdError) as raised:
        client.run(Router(), [billing, shipping], {"request": "hi"}, model=model, retry=RetryPolicy(attempts=1))
    assert raised.value.reason == reason


def test_the_template_serves_health(target: str) -> None:
    """Orchestrators can ask whether it serves."""
    with grpc.insecure_channel(target) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="planner.v1.DecisionModelService"), timeout=30
        )
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_a_template_that_stopped_is_unavailable(site: Path) -> None:
    """When the model server has gone, a run ends with an error that says so, after plannerd's own retries."""
    with model_server(site) as where:
        pass
    config = {"decisions": {"models": {"mine": {"provider": "grpc", "target": where}}}}
    with (
        running_server(config=config) as server,
        Client(server.target, retry=RetryPolicy(attempts=1)) as client,
        pytest.raises(DecisionModelUnavailable) as raised,
    ):
        client.run(Router(), [billing, shipping], {"request": "hi"})
    assert raised.value.metadata["retries_spent"] == "true"
