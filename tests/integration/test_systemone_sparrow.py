"""A real System One server: `sparrow-decider serve`, asked over HTTP by a plannerd in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from plannerd_client import Cascade, Client, Router, RunResult, Scheduler, agent
from plannerd_protos.planner.v1 import decision_pb2
from tests.support.builders import wire
from tests.support.servers import START_SECONDS, ServerProcess, running_server

TICKET = "I was charged twice for my order, please refund one of the payments to my credit card"


@pytest.fixture(scope="module")
def sparrow() -> Iterator[str]:
    """The address of a `sparrow-decider serve`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("sparrow-decider")), "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        assert process.poll() is None, "sparrow-decider serve ended"
        try:
            with urllib.request.urlopen(url) as response:
                assert response.status == 200
                return
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError("sparrow-decider serve does not answer")


@pytest.fixture(scope="module")
def server(sparrow: str) -> Iterator[ServerProcess]:
    """A plannerd with that model, asked with text and with JSON, and with the same model embedded."""
    there = {"provider": "systemone", "base_url": sparrow, "model": "sparrow", "max_input_bytes": 2000}
    models = {
        "remote": there | {"input_format": "text"},
        "as-json": there,
        "embedded": {"provider": "sparrow"},
    }
    with running_server(config={"decisions": {"models": models, "default": "remote"}}) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as made:
        yield made


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out which kind of ticket it is: refund, delivery or something else"""
    return "refund"


@agent(output_key="reply")
def draft(ticket: str, category: str) -> str:
    """Writes the reply to the customer about the refund"""
    return f"About your {category}: the second payment goes back to your credit card today."


@agent
def billing(ticket: str) -> str:
    """Invoices, charges, payments, refunds, credit cards"""
    return "billed"


@agent
def shipping(ticket: str) -> str:
    """Parcels, delivery dates, tracking numbers, addresses"""
    return "shipped"


@agent
def password(ticket: str) -> str:
    """Passwords, login, locked accounts"""
    return "reset"


def explained(result: RunResult) -> list[tuple[str, str, int]]:
    """Of each decision the provider, the model that answered, and the retries."""
    return [
        (decision.provider, decision.resolved_model, decision.retries)
        for step in result.steps
        for decision in step.explanation.decisions
    ]


def path(result: RunResult) -> list[tuple[str, tuple[str, ...]]]:
    """What was done, step by step."""
    return [(step.action, tuple(name for _, name in step.started)) for step in result.steps]


def test_a_scheduler(client: Client) -> None:
    """A scheduler runs to its end over HTTP, on the same path as with the model embedded."""
    planner = Scheduler(goal="The customer has a reply", goal_threshold=0.9, activation_threshold=0.2)
    runs = [
        client.run(planner, [classify, draft], {"ticket": TICKET}, output_key="reply", model=model, explain="full")
        for model in ("remote", "embedded")
    ]
    assert runs[0].result == "About your refund: the second payment goes back to your credit card today."
    assert path(runs[0]) == path(runs[1])
    assert len(explained(runs[0])) == len(explained(runs[1])) >= 2
    assert set(explained(runs[0])) == {("systemone", "sparrow-nano-general-v1.1", 0)}


def test_a_router(client: Client) -> None:
    """A router without a threshold runs the one agent that fits, whichever way it is asked."""
    for model in ("remote", "as-json", "embedded"):
        result = client.run(Router(), [shipping, billing, password], {"ticket": TICKET}, model=model, explain="full")
        assert result.result == "billed"
    assert explained(client.run(Router(), [shipping, billing], {"ticket": TICKET}, explain="full")) == [
        ("systemone", "sparrow-nano-general-v1.1", 0)
    ]


def test_a_router_with_a_threshold(client: Client) -> None:
    """A router with a threshold runs all agents that reach it, the same ones as with the model embedded."""
    for threshold in (0.001, 0.5, 0.999):
        results = [
            client.run(
                Router(activation_threshold=threshold), [shipping, billing, password], {"ticket": TICKET}, model=model
            )
            for model in ("remote", "embedded")
        ]
        assert results[0].result == results[1].result
        if threshold < 0.01:
            assert set(results[0].result) == {"shipping", "billing", "password"}


def test_a_cascade(client: Client) -> None:
    """A cascade grades each tier over HTTP, and stops at the same one as with the model embedded."""

    @agent
    def small(ticket: str) -> str:
        return "no idea"

    @agent
    def large(ticket: str) -> str:
        return "One of the two payments goes back to your credit card."

    for threshold in (0.001, 0.999):
        results = [
            client.run(
                Cascade(acceptance_threshold=threshold), [small, large], {"ticket": TICKET}, model=model, explain="full"
            )
            for model in ("remote", "embedded")
        ]
        assert path(results[0]) == path(results[1])
        assert results[0].result == results[1].result
        assert results[0].result == (
            "no idea" if threshold < 0.01 else "One of the two payments goes back to your credit card."
        )
        assert explained(results[0]) == [("systemone", "sparrow-nano-general-v1.1", 0)]


def test_the_same_numbers(client: Client) -> None:
    """The answers of each kind are those of the embedded model, up to rounding."""
    request = decision_pb2.DecideRequest(input=[decision_pb2.InputField(name="ticket", value=wire(TICKET))])
    request.questions.add(name="money", text="Is this about money?").yes_no.yes_when = "it is about a payment"
    options = request.questions.add(name="team", text="Which team?").choice.options
    options.add(name="billing", description="payments and refunds")
    options.add(name="shipping")
    request.questions.add(name="urgency", text="How urgent?").scale.levels.extend(["later", "soon", "now"])
    replies = []
    for model in ("remote", "embedded"):
        request.model = model
        replies.append(client.decide(request))
    there, here = replies
    assert there.model == here.model
    money, team, urgency = there.answers
    assert money.yes_no.probability == pytest.approx(here.answers[0].yes_no.probability, abs=0.001)
    assert team.choice.value == here.answers[1].choice.value
    for name, probability in here.answers[1].choice.probabilities.items():
        assert team.choice.probabilities[name] == pytest.approx(probability, abs=0.001)
    assert urgency.scale.mean == pytest.approx(here.answers[2].scale.mean, abs=0.005)
    assert (there.usage.input_tokens, there.usage.output_tokens) == (0, 0)
