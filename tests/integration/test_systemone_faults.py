"""Hosts of System One that are slow, hang, close, send garbage, never end, redirect and flap."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from plannerd.decisions.retries import RETRIES_SPENT
from plannerd_client import AsyncClient, Router, agent
from plannerd_client.errors import DecisionModelUnavailable
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.hosts import (
    MODEL,
    NEVER,
    Behaviour,
    answer,
    drip,
    endless,
    half,
    half_closed,
    half_hanging,
    hang,
    host,
    in_turn,
    raw,
    reset,
    response_to,
    slow,
    status,
)
from tests.support.systemone import HANGS, PATIENCE, QUICK, Asking, asking, until, yes_or_no

SECRET: Final = "sk-tangerine-1"
UNAVAILABLE: Final = "DECISION_MODEL_UNAVAILABLE"
INVALID: Final = "DECISION_INVALID_ANSWER"
REJECTED: Final = "DECISION_MODEL_REJECTED"
CREDENTIALS: Final = "DECISION_MODEL_CREDENTIALS"

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BOMB: Final = gzip.compress(b" " * (8 << 20))


def json_of(**fields: Any) -> Behaviour:
    """A response with some fields in place of the right ones."""
    return answer(lambda request: response_to(request.json) | fields)


@dataclass(frozen=True, slots=True)
class Fault:
    """What a host does, and what plannerd makes of it.

    Attributes:
        name: for the report.
        does: to a request.
        reason: of the error when it goes on; where it may pass, requests are retried.
        slow: attempts end by their time-out alone.
    """

    name: str
    does: Behaviour
    reason: str = UNAVAILABLE
    slow: bool = False

    @property
    def passes(self) -> bool:
        """Whether another attempt is made."""
        return self.reason == UNAVAILABLE


FAULTS: Final = [
    # The way there.
    Fault("hangs", hang, slow=True),
    Fault("answers too late", slow(NEVER), slow=True),
    Fault("closes at once", raw(b"")),
    Fault("resets", reset),
    Fault("closes in the head", raw(b"HTTP/1.1 200 OK\r\nContent-Le")),
    Fault("closes its side in the head", half_closed),
    Fault("closes in the body", half),
    Fault("hangs in the body", half_hanging, slow=True),
    Fault("drips", drip(0.05), slow=True),
    # Not HTTP, or too much of it.
    Fault("sends garbage", raw(bytes(range(256)) * 64)),
    Fault("speaks another protocol", raw(b"220 mail.example ESMTP\r\n", close=False), slow=True),
    Fault("never ends its head", endless(b"X-A: b\r\n", b"HTTP/1.1 200 OK\r\n")),
    Fault(
        "sends interim responses for ever", endless(b"HTTP/1.1 102 Processing\r\n\r\n", b"", at_once=2048), slow=True
    ),
    Fault("never ends its body", endless(b"1000\r\n" + b" " * 4096 + b"\r\n"), INVALID),
    Fault("sends a huge body", endless(b" " * 65536, OK + b"Content-Length: 99999999999\r\n\r\n"), INVALID),
    Fault(
        "never ends an error",
        endless(b"1000\r\n" + b" " * 4096 + b"\r\n", b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ),
    Fault("contradicts its length", raw(OK + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n{}")),
    Fault(
        "sends a bomb", raw(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB), INVALID
    ),
    # Statuses.
    Fault("400", status(400), REJECTED),
    Fault("401", status(401), CREDENTIALS),
    Fault("402", status(402), CREDENTIALS),
    Fault("403", status(403), CREDENTIALS),
    Fault("404", status(404), REJECTED),
    Fault("408", status(408)),
    Fault("413", status(413), "DECISION_MODEL_LIMIT"),
    Fault("422", status(422), REJECTED),
    Fault("429", status(429)),
    Fault("500", status(500)),
    Fault("503", status(503)),
    Fault("529", status(529)),
    Fault("599 in plain text", status(599, b"oh no", Content_Type="text/plain")),
    Fault("an error without a body", status(503, b"")),
    # Answers that are none.
    Fault("204", status(204, b""), INVALID),
    Fault("200 without a body", raw(OK + b"Content-Length: 0\r\n\r\n", close=False), INVALID),
    Fault("200 with a page", status(200, b"<html>tangerine</html>", Content_Type="text/html"), INVALID),
    Fault("200 with half of the JSON", status(200, b'{"model": "m", "answers": {'), INVALID),
    Fault("200 with a list", status(200, b"[1, 2]"), INVALID),
    Fault("200 with deep JSON", status(200, b"[" * 100_000), INVALID),
    Fault("200 in no encoding", status(200, b'{"answers": "\xff\xfe"}'), INVALID),
    Fault("no answers", json_of(answers=None), INVALID),
    Fault("answers to other questions", json_of(answers={"other": {"type": "noul", "noul": 1}}), INVALID),
    Fault("an answer of another kind", json_of(answers={"decision_agent": {"type": "noul", "noul": 1}}), INVALID),
    Fault(
        "an agent that is none", json_of(answers={"decision_agent": {"type": "choice", "choice": "tangerine"}}), INVALID
    ),
    Fault("a refusal", json_of(answers={"decision_agent": {"type": "refusal", "message": "no"}}), "DECISION_REFUSED"),
]

OVERSHOOTS: Final[dict[str, float]] = {}


@pytest.fixture(scope="module", autouse=True)
def _overshoots(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints by how much deadlines were missed, where somebody looks (`-s`)."""
    yield
    if OVERSHOOTS:
        late = sorted(OVERSHOOTS.values())
        worst = max(OVERSHOOTS, key=OVERSHOOTS.__getitem__)
        print(
            f"\nbeyond the deadline, over {len(late)} faults: median {statistics.median(late) * 1000:.0f} ms, "
            f"worst {late[-1] * 1000:.0f} ms ({worst})"
        )


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The variable with the key."""
    monkeypatch.setenv("JEV_KEY", SECRET)
    return "JEV_KEY"


def started(response: planner_pb2.FirstActionResponse) -> list[str]:
    """The agents that a step called."""
    return [call.agent_id for call in response.step.calls]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.passes], ids=lambda fault: fault.name)
async def test_what_passes_is_retried(fault: Fault, key: str) -> None:
    """After an attempt that failed in passing the step succeeds, with the same decision, and counts its retries."""
    # With a short time, any attempt may take too long on a busy machine.
    settings = {**QUICK, "retries": 10} if fault.slow else {**QUICK, "attempt_timeout_seconds": HANGS}
    async with host(fault.does) as there, asking(there.url, api_key_env=key, **settings) as plannerd:
        answered = await plannerd.planner.FirstAction(await plannerd.routing(), timeout=HANGS)
        assert started(answered) == ["billing$0"]
        [record] = answered.step.explanation.decisions
        assert record.resolved_model == MODEL
        assert 1 <= record.retries <= (10 if fault.slow else 1)
        assert (record.usage.input_tokens, record.usage.output_tokens) == (7, 2)
        assert len(there.requests) == 1 + record.retries
        seen = answered.SerializeToString() + plannerd.serving.log().encode()
    for secret in (SECRET, there.url.partition("//")[2], "tangerine"):
        assert secret.encode() not in seen
    await until(lambda: there.connections == 0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_what_lasts_fails_the_step_in_time(fault: Fault, key: str) -> None:
    """A host that does not recover fails the step with a reason, before its time is over, and leaves it as it was."""
    timeout = 0.6 if fault.slow else HANGS  # what does not wait for it must not meet it on a busy machine either
    settings = {"attempt_timeout_seconds": 60, "retry_wait_seconds": 0.01}
    async with host(always=fault.does) as there, asking(there.url, api_key_env=key, **settings) as plannerd:
        step = await plannerd.routing(timeout)
        begun = time.perf_counter()
        error = await plannerd.failing(step)
        took = time.perf_counter() - begun
        assert took < timeout + PATIENCE
        assert error.reason == fault.reason
        attempts = len(there.requests)
        if fault.slow:
            OVERSHOOTS[fault.name] = max(0.0, took - timeout)
            assert took >= timeout - 0.05
            assert attempts <= 1
        elif fault.passes:
            assert attempts == 3
            assert (error.metadata["attempts"], error.metadata[RETRIES_SPENT]) == ("3", "true")
        else:
            assert attempts == 1
            assert RETRIES_SPENT not in error.metadata
        assert error.metadata.get("model", "jev") == "jev"
        there.always = answer()
        answered = await repeated(plannerd, step)
        assert started(answered) == ["billing$0"]
        assert answered.step.position.revision == 1
        log = plannerd.serving.log()
        seen = f"{error} {log}".encode() + answered.SerializeToString()
    assert "kumquat" not in log
    for secret in (SECRET, there.url.partition("//")[2], "tangerine"):
        assert secret.encode() not in seen
    assert not [line for line in plannerd.serving.all_events() if line["event"] == "unexpected_error"]
    await until(lambda: there.connections == 0)


async def repeated(plannerd: Asking, step: planner_pb2.FirstActionRequest) -> planner_pb2.FirstActionResponse:
    """The answer to a step that failed: its short time may be over again where the machine is busy."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await plannerd.planner.FirstAction(step, timeout=HANGS)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise


async def test_nobody_there(key: str) -> None:
    """A host that is not there at all is unavailable."""
    async with host() as there:
        url = there.url
    async with asking(url, api_key_env=key, **QUICK) as plannerd:
        error = await plannerd.failing(await plannerd.routing())
    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, UNAVAILABLE)
    assert error.text == "decision model 'jev' can't be reached (3 attempts)"


async def test_the_deadline_of_the_call_holds() -> None:
    """When the call's own deadline passes, or its client hangs up, the request to the host ends with it."""
    async with host(always=hang) as there, asking(there.url) as plannerd:
        step = await plannerd.routing()
        # Whoever notices first says so, the client or the server.
        error = await plannerd.failing(step, timeout=0.3)
        assert error.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        await until(lambda: there.connections == 0)
        call = plannerd.planner.FirstAction(step)
        await until(lambda: there.connections == 1)
        call.cancel()
        await until(lambda: there.connections == 0)
        there.always = answer()
        assert started(await plannerd.planner.FirstAction(step, timeout=HANGS)) == ["billing$0"]


@pytest.mark.parametrize(("asked", "least"), [("30", 30.0), (formatdate(time.time() + 3000, usegmt=True), 2000.0)])
async def test_a_wait_that_does_not_fit_is_told_at_once(asked: str, least: float) -> None:
    """If the host wants a longer pause than the call has time, the step fails now, and says how long to wait."""
    async with host(always=status(429, Retry_After=asked)) as there, asking(there.url) as plannerd:
        step = await plannerd.routing()
        begun = time.perf_counter()
        error = await plannerd.failing(step, timeout=20)
        assert time.perf_counter() - begun < 10
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, UNAVAILABLE)
        assert error.retry_after is not None
        assert error.retry_after >= least
        assert RETRIES_SPENT not in error.metadata
        assert len(there.requests) == 1


async def test_a_wait_that_fits_is_waited() -> None:
    """A pause that the host asks for is kept."""
    async with host(status(503, Retry_After="1")) as there, asking(there.url, retry_wait_seconds=0) as plannerd:
        begun = time.perf_counter()
        answered = await plannerd.planner.FirstAction(await plannerd.routing(), timeout=HANGS)
        assert time.perf_counter() - begun >= 1
        assert answered.step.explanation.decisions[0].retries == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(code: int, key: str) -> None:
    """A redirect is not followed, so no key and no input go anywhere else."""
    async with host() as elsewhere:
        redirect = status(code, Location=f"{elsewhere.url}/v1/systemone")
        async with host(always=redirect) as there, asking(there.url, api_key_env=key, **QUICK) as plannerd:
            error = await plannerd.failing(await plannerd.routing())
            assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, REJECTED)
            assert error.metadata == {"model": "jev", "http_status": str(code)}
            assert len(there.requests) == 1
        assert elsewhere.opened == 0


async def test_flapping() -> None:
    """A host that fails every other request, each time in another way, fails none of ours."""
    flapping = in_turn(status(503), answer(), reset, answer(), half, answer(), raw(b"x" * 99), answer())
    async with host(always=flapping) as there, asking(there.url, **QUICK) as plannerd:
        replies = [await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS) for _ in range(20)]
        assert [reply.answers[0].yes_no.probability for reply in replies] == [0.9] * 20
        assert [reply.retries for reply in replies] == [1] * 20
        assert len(there.requests) == 40


async def test_clients_do_not_multiply_spent_retries() -> None:
    """When the server has tried as often as it may, the official client ends the run; what may pass it sends again."""

    @agent
    def billing(ticket: str) -> str:
        return ticket

    @agent
    def support(ticket: str) -> str:
        return ticket

    agents, ticket = [billing, support], {"ticket": "kumquat"}
    async with host(always=status(503)) as there, asking(there.url, **QUICK) as plannerd:
        [target] = plannerd.serving.server.targets
        async with AsyncClient(target) as client:
            with pytest.raises(DecisionModelUnavailable) as caught:
                await client.run(Router(), agents, ticket)
        assert caught.value.metadata[RETRIES_SPENT] == "true"
        assert len(there.requests) == 3
        # A pause that does not fit into one call may fit into the client's patience.
        there.script.append(status(429, Retry_After="2"))
        there.always = answer()
        begun = time.perf_counter()
        async with AsyncClient(target, timeout=1.5) as client:
            assert (await client.run(Router(), agents, ticket)).result == "kumquat"
        assert time.perf_counter() - begun >= 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("seconds", [0.4, 60.0])
async def test_clients_do_not_multiply_the_time_of_a_decision(streams: bool, seconds: float) -> None:
    """When all the time of a decision went by the official client ends the run, over calls and streams alike."""

    @agent
    def billing(ticket: str) -> str:
        return ticket

    @agent
    def support(ticket: str) -> str:
        return ticket

    settings = {"attempt_timeout_seconds": seconds, "retry_wait_seconds": 0.01}
    async with host(always=hang) as there, asking(there.url, decision_timeout=1, **settings) as plannerd:
        [target] = plannerd.serving.server.targets
        async with AsyncClient(target, stream=streams) as client:
            with pytest.raises(DecisionModelUnavailable) as caught:
                await client.run(Router(), [billing, support], {"ticket": "kumquat"})
        assert caught.value.metadata[RETRIES_SPENT] == "true"
        assert len(there.requests) <= 3


async def test_a_storm_of_cancelled_calls() -> None:
    """Calls that are cancelled at any moment leave no place taken, no connection open and no line of an error."""
    chance = random.Random(7)
    slowly = in_turn(answer(), slow(0.02), hang, half_hanging, status(503), reset)
    async with host(always=slowly) as there, asking(there.url, **QUICK, max_concurrent=4, max_queue=64) as plannerd:

        async def one() -> None:
            call = plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
            await asyncio.sleep(chance.random() * 0.3)
            call.cancel()
            await asyncio.wait([asyncio.ensure_future(_outcome(call))])

        for _ in range(4):
            await asyncio.gather(*(one() for _ in range(75)))
        there.always = answer()
        replies = [plannerd.decisions.Decide(yes_or_no(), timeout=HANGS) for _ in range(4 + 64)]
        assert {(await reply).model for reply in replies} == {MODEL}
        await until(lambda: there.connections <= 4)
    assert not plannerd.serving.events("unexpected_error")
    await until(lambda: there.connections == 0)


async def _outcome(call: Any) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        await call
