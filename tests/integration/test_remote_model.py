"""The provider `grpc` against real servers: what travels, what is tried again, what each failure becomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from plannerd.decisions.answers import ChoiceAnswer, Refusal, ScaleAnswer, Truncation, Usage, YesNoAnswer
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Scale, YesNo
from plannerd.decisions.remote import Entry, RemoteModel, RemoteOptions
from plannerd.decisions.retries import RetryRules
from plannerd.decisions.wire import decode_request
from plannerd.errors import PlannerdError, Reason
from plannerd.values import Image, Text
from plannerd_client import Client, RetryPolicy, Router, RunResult, agent
from plannerd_protos.planner.v1 import decision_pb2
from tests.support.decision_servers import Answer, DecisionServer, Failing, decision_server, reply, socket_server, until
from tests.support.servers import running_server

ASKED = DecisionRequest((Field("text", "hello"),), (YesNo("q", "Is it?"),))
QUICK = RetryRules(retries=2, attempt_seconds=30.0, first_wait=0.01, longest_wait=0.05)
OK = reply(q=0.75)
UNAVAILABLE = Failing(grpc.StatusCode.UNAVAILABLE)
PATIENCE = 60.0  # only what hangs needs it


@asynccontextmanager
async def asking(target: str, **options: Any) -> AsyncIterator[RemoteModel]:
    """A model that asks the service at `target`."""
    model = RemoteModel("mine", RemoteOptions(target, **({"retries": QUICK} | options)))
    try:
        yield model
    finally:
        await model.close()


async def failure(target: str, timeout: float | None = PATIENCE, **options: Any) -> PlannerdError:
    """The error of a request to `target`."""
    async with asking(target, **options) as model:
        with pytest.raises(PlannerdError) as raised:
            await model.decide(ASKED, timeout)
    return raised.value


async def outcome(*answers: Answer, **options: Any) -> tuple[PlannerdError, DecisionServer]:
    """The error of a request to a server that gives `answers`, and the server."""
    async with decision_server(*answers) as server:
        return await failure(server.target, **options), server


# --- what travels


async def test_questions_and_answers_of_all_kinds_travel() -> None:
    """Names, texts, options, levels, values and images arrive; answers, usage, retries and truncation come back."""
    request = DecisionRequest(
        (
            Field("order", {"id": 7, "lines": [1.5, None, True, "x"]}),
            Field("photo", Image("image/png", b"\x89PNG")),
            Field("note", Text("n")),
        ),
        (
            YesNo("yes", "Is it?", "if so", "if not"),
            Choice("pick", "Which?", (Option("a", "the first"), Option("b"))),
            Scale("rate", "How?", ("low", "mid", "high")),
            YesNo("no", "May I?"),
        ),
    )
    answer = decision_pb2.DecideResponse(
        answers=[
            decision_pb2.Answer(question="no", refusal=decision_pb2.RefusalAnswer(message="never")),
            decision_pb2.Answer(
                question="rate", scale=decision_pb2.ScaleAnswer(mean=1.5, probabilities=[0, 0.5, 0.5], confidence=0.2)
            ),
            decision_pb2.Answer(
                question="pick", choice=decision_pb2.ChoiceAnswer(value="b", probabilities={"a": 0.25, "b": 0.75})
            ),
            decision_pb2.Answer(question="yes", yes_no=decision_pb2.YesNoAnswer(probability=0.5, confidence=-3)),
        ],
        model="theirs-2",
        usage=decision_pb2.Usage(input_tokens=12),
        retries=3,
        truncation=decision_pb2.Truncation(original_chars=90, used_chars=80),
    )
    async with decision_server(answer) as server, asking(server.target, model="big") as model:
        response = await model.decide(request, PATIENCE)
    [seen] = server.seen
    assert seen.request.model == "big"
    assert decode_request(seen.request) == request
    assert response.answers == {
        "yes": YesNoAnswer(0.5, -3),
        "pick": ChoiceAnswer("b", {"a": 0.25, "b": 0.75}),
        "rate": ScaleAnswer(1.5, (0, 0.5, 0.5), 0.2),
        "no": Refusal("never"),
    }
    assert (response.model, response.usage, response.retries) == ("theirs-2", Usage(12), 3)
    assert response.truncation == Truncation(90, 80)


async def test_metadata_travels_and_files_are_read_again(tmp_path: Path) -> None:
    """Each request has the metadata of the settings; a file that changed is read again, so that tokens can rotate."""
    token = tmp_path / "token"
    token.write_text("first\n", "utf-8")
    metadata = (Entry("x-tenant", "acme"), Entry("authorization", file=token, prefix="Bearer "))
    async with decision_server(OK) as server, asking(server.target, metadata=metadata) as model:
        await model.decide(ASKED)
        token.write_text("second one\n", "utf-8")
        await model.decide(ASKED)
    assert [seen.metadata["authorization"] for seen in server.seen] == ["Bearer first", "Bearer second one"]
    assert {seen.metadata["x-tenant"] for seen in server.seen} == {"acme"}


async def test_a_token_that_vanished_is_a_matter_of_credentials(tmp_path: Path) -> None:
    """A file that can no longer be read fails the request without a word about where it was or what it held."""
    token = tmp_path / "token"
    token.write_text("tangerine", "utf-8")
    async with (
        decision_server(OK) as server,
        asking(server.target, metadata=(Entry("authorization", file=token),)) as model,
    ):
        token.unlink()
        with pytest.raises(PlannerdError) as raised:
            await model.decide(ASKED)
    assert raised.value.reason is Reason.DECISION_MODEL_CREDENTIALS
    assert "token" not in raised.value.message
    assert server.seen == []


@pytest.mark.parametrize(
    "entry",
    [
        Entry("Upper", "tangerine"),
        Entry("grpc-timeout", "tangerine"),
        Entry("data-bin", "tangerine"),
        Entry("a b", "tangerine"),
        Entry("key", "tangerine\nx-evil: 1"),
        Entry("key", "tängerine"),
        Entry("key", "tangerine "),
        Entry("key", "tangerine" * 1000),
    ],
)
def test_metadata_that_can_not_be_sent_stops_the_start(entry: Entry) -> None:
    """Keys and values that gRPC can't send are refused with the key, and the value is never shown."""
    with pytest.raises(ValueError, match=f"metadata '{entry.key}'") as raised:
        RemoteModel("mine", RemoteOptions("127.0.0.1:1", metadata=(entry,)))
    assert "ngerine" not in str(raised.value)
    assert "ngerine" not in repr(entry)


async def test_the_answers_are_checked() -> None:
    """Whatever the service answers is held against the questions, and nonsense is not asked for again."""
    async with decision_server(reply(q=1.5)) as server, asking(server.target) as model:
        models = DecisionModels({"mine": model})
        with pytest.raises(PlannerdError) as raised:
            await models.ask(models.get(), ASKED)
    assert raised.value.reason is Reason.DECISION_INVALID_ANSWER
    assert len(server.seen) == 1


async def test_what_it_says_of_itself_is_checked_too() -> None:
    """A usage that can't be counts as unknown, and a name is cut and cleaned like that of any other model."""
    message = decision_pb2.DecideResponse(
        answers=OK.answers, model="m" * 5000, usage=decision_pb2.Usage(input_tokens=-1, output_tokens=3)
    )
    async with decision_server(message) as server, asking(server.target) as model:
        models = DecisionModels({"mine": model})
        response = await models.ask(models.get(), ASKED)
    assert response.usage == Usage(None, 3)
    assert 0 < len(response.model) < 1000


# --- what is tried again


@pytest.mark.parametrize(
    "first",
    [
        UNAVAILABLE,
        Failing(grpc.StatusCode.DEADLINE_EXCEEDED),
        Failing(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.02),
        Failing(grpc.StatusCode.UNAVAILABLE, reason="DRAINING"),
        Failing(grpc.StatusCode.UNAVAILABLE, details=b"\xff\xff no status"),
    ],
    ids=["unavailable", "slow", "busy", "draining", "unreadable details"],
)
async def test_what_may_pass_is_tried_again(first: Failing) -> None:
    """An unavailable, slow or busy service is asked again, and the response says how often."""
    async with decision_server(first, first, replace_retries(OK, 1)) as server, asking(server.target) as model:
        response = await model.decide(ASKED, PATIENCE)
    assert response.answers["q"] == YesNoAnswer(0.75)
    assert response.retries == 2 + 1
    assert len(server.seen) == 3


def replace_retries(message: decision_pb2.DecideResponse, retries: int) -> decision_pb2.DecideResponse:
    copy = decision_pb2.DecideResponse()
    copy.CopyFrom(message)
    copy.retries = retries
    return copy


async def test_spent_retries_are_said() -> None:
    """When no retry is left the error says so, so that clients don't multiply them."""
    error, server = await outcome(UNAVAILABLE)
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert error.metadata == {"model": "mine", "attempts": "3", "retries_spent": "true"}
    assert len(server.seen) == 3


async def test_retries_of_another_plannerd_are_not_multiplied() -> None:
    """A service that has spent its own retries is not asked again, and the error goes on saying so."""
    spent = Failing(
        grpc.StatusCode.UNAVAILABLE, reason="DECISION_MODEL_UNAVAILABLE", metadata={"retries_spent": "true"}
    )
    error, server = await outcome(spent)
    assert error.metadata["retries_spent"] == "true"
    assert len(server.seen) == 1


async def test_a_wait_that_does_not_fit_is_not_begun() -> None:
    """A service that wants more time than the request has fails it at once, with what it asked for."""
    started = time.monotonic()
    error, server = await outcome(Failing(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=3600.0))
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert error.retry_after == 3600.0
    assert len(server.seen) == 1
    assert time.monotonic() - started < PATIENCE


async def test_an_attempt_has_its_own_time() -> None:
    """An attempt that hangs is given up so that another one can succeed, and the service knows its deadline."""
    async with (
        decision_server(3600.0, OK) as server,
        asking(server.target, retries=replace(QUICK, attempt_seconds=0.5)) as model,
    ):
        server.answers = [3600.0, OK]
        first = asyncio.create_task(model.decide(ASKED, PATIENCE))
        await until(lambda: bool(server.seen))
        server.answers = [OK]
        response = await first
    assert response.retries == 1
    assert server.seen[0].seconds is not None
    assert server.seen[0].seconds <= 0.5


async def test_everything_fits_into_the_time_of_the_request() -> None:
    """A service that always hangs costs no more than the request's time, not attempts times it."""
    started = time.monotonic()
    error, _ = await outcome(3600.0, timeout=0.6, retries=replace(QUICK, retries=10, attempt_seconds=0.25))
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert time.monotonic() - started < 10


# --- what failures become


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (Failing(grpc.StatusCode.UNAUTHENTICATED, "tangerine"), "DECISION_MODEL_CREDENTIALS", "rejects the cred"),
        (Failing(grpc.StatusCode.PERMISSION_DENIED, "tangerine"), "DECISION_MODEL_CREDENTIALS", "rejects the cred"),
        (Failing(grpc.StatusCode.NOT_FOUND, "tangerine"), "DECISION_MODEL_REJECTED", "a model 'big'"),
        (Failing(grpc.StatusCode.UNIMPLEMENTED, "tangerine"), "DECISION_MODEL_REJECTED", "no DecisionModelService"),
        (Failing(grpc.StatusCode.INTERNAL, "tangerine"), "DECISION_MODEL_UNAVAILABLE", "failed with INTERNAL"),
        (Failing(grpc.StatusCode.UNKNOWN, "tangerine"), "DECISION_MODEL_UNAVAILABLE", "failed with UNKNOWN"),
        (Failing(grpc.StatusCode.CANCELLED, "tangerine"), "DECISION_MODEL_UNAVAILABLE", "failed with CANCELLED"),
        (Failing(grpc.StatusCode.ABORTED, "tangerine"), "DECISION_MODEL_UNAVAILABLE", "failed with ABORTED"),
        (Failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "tangerine"), "DECISION_MODEL_UNAVAILABLE", "is busy"),
        (Failing(grpc.StatusCode.INVALID_ARGUMENT, "no\n images"), "DECISION_MODEL_LIMIT", "request: no images"),
        (Failing(grpc.StatusCode.FAILED_PRECONDITION, ""), "DECISION_MODEL_LIMIT", "does not say why"),
        (Failing(grpc.StatusCode.OUT_OF_RANGE, "x" * 999), "DECISION_MODEL_LIMIT", "x" * 300 + "..."),
        (
            Failing(grpc.StatusCode.FAILED_PRECONDITION, "5 at most", "DECISION_MODEL_LIMIT", {"limit": "questions"}),
            "DECISION_MODEL_LIMIT",
            "5 at most",
        ),
        (
            Failing(grpc.StatusCode.INVALID_ARGUMENT, "'a' is bytes", "UNSUPPORTED_INPUT", {"key": "a"}),
            "UNSUPPORTED_INPUT",
            "'a' is bytes",
        ),
        (
            Failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "too big", "LIMIT_EXCEEDED", {"limit": "max_request_bytes"}),
            "DECISION_MODEL_LIMIT",
            "too big",
        ),
        (
            Failing(grpc.StatusCode.INTERNAL, "tangerine", "DECISION_INVALID_ANSWER"),
            "DECISION_INVALID_ANSWER",
            "no valid answer",
        ),
        (
            Failing(grpc.StatusCode.INTERNAL, "tangerine", "DECISION_MODEL_CREDENTIALS"),
            "DECISION_MODEL_CREDENTIALS",
            "rejects its credentials",
        ),
        (
            Failing(grpc.StatusCode.INTERNAL, "tangerine", "DECISION_INVALID_ANSWER", domain="example.com"),
            "DECISION_MODEL_UNAVAILABLE",
            "failed with INTERNAL",
        ),
        (b"\xff\xff\xff", "DECISION_INVALID_ANSWER", "no DecideResponse"),
    ],
    ids=lambda value: f"{value.code.name}-{value.domain}" if isinstance(value, Failing) else None,
)
async def test_each_failure_has_its_reason(answer: Answer, reason: str, said: str) -> None:
    """A failure that won't pass is not tried again; what the service says is shown only about the request itself."""
    error, server = await outcome(answer, model="big")
    assert error.reason.value == reason
    assert said in error.message
    assert "tangerine" not in error.message
    assert error.metadata["model"] == "mine"
    assert len(server.seen) == 1


TOKEN = "tangerine-secret"


@pytest.mark.parametrize(
    "answer",
    [
        Failing(grpc.StatusCode.INVALID_ARGUMENT, f"'Bearer {TOKEN}' may not ask"),
        Failing(grpc.StatusCode.OUT_OF_RANGE, "x" * 290 + TOKEN),
        Failing(grpc.StatusCode.FAILED_PRECONDITION, f"no {TOKEN}", "UNSUPPORTED_INPUT", {TOKEN: TOKEN}),
        Failing(grpc.StatusCode.RESOURCE_EXHAUSTED, TOKEN, "LIMIT_EXCEEDED", {"limit": TOKEN}),
    ],
    ids=["about the request", "at the cut", "another plannerd", "a limit"],
)
async def test_secrets_that_a_service_repeats_in_errors(answer: Failing) -> None:
    """What a service says about a request reaches a client without the token that it was sent, whole or in part."""
    metadata = (Entry("authorization", TOKEN, prefix="Bearer "),)
    async with decision_server(answer) as server, asking(server.target, metadata=metadata) as model:
        models = DecisionModels({"mine": model})
        with pytest.raises(PlannerdError) as raised:
            await models.ask(models.get(), ASKED)
    error = raised.value
    assert "tanger" not in f"{error} {error.message} {error.metadata}"
    assert "***" in error.message


async def test_secrets_that_a_service_repeats_in_answers(tmp_path: Path) -> None:
    """A model's name and its refusal come without the token, also one that was replaced; plain values may be named."""
    file = tmp_path / "token"
    file.write_text(TOKEN, "utf-8")
    metadata = (Entry("authorization", file=file), Entry("x-tenant", "acme", secret=False))
    answers = [decision_pb2.Answer(question="q", refusal=decision_pb2.RefusalAnswer(message=f"I saw {TOKEN}"))]
    message = decision_pb2.DecideResponse(answers=answers, model=f"acme {TOKEN} tangelo-2")
    async with decision_server(message) as server, asking(server.target, metadata=metadata) as model:
        models = DecisionModels({"mine": model})
        await models.ask(models.get(), ASKED)
        file.write_text("tangelo-2", "utf-8")
        response = await models.ask(models.get(), ASKED)
    assert response.model == "acme *** ***"
    assert response.answers == {"q": Refusal("I saw ***")}


async def test_messages_that_are_too_large() -> None:
    """Too large a request is not sent, or refused as a limit of the model; too large a reply is no valid answer."""
    request = DecisionRequest((Field("text", "x" * 5000),), ASKED.questions)
    for options, server_options, limit in (
        ({"max_request_bytes": 4000}, [], "4000"),
        ({}, [("grpc.max_receive_message_length", 4000)], None),
    ):
        async with decision_server(OK, options=server_options) as server, asking(server.target, **options) as model:
            with pytest.raises(PlannerdError) as raised:
                await model.decide(request, PATIENCE)
        assert raised.value.reason is Reason.DECISION_MODEL_LIMIT
        assert raised.value.metadata["limit"] == "bytes"
        assert raised.value.metadata.get("allowed") == limit
        assert server.seen == []
    large = reply(q=0.5)
    large.answers.add(question="other", refusal=decision_pb2.RefusalAnswer(message="x" * 5000))
    error, server = await outcome(large, max_reply_bytes=4000)
    assert error.reason is Reason.DECISION_INVALID_ANSWER
    assert "max_reply_bytes" in error.message
    assert len(server.seen) == 1


async def test_limits_are_checked_before_sending() -> None:
    """What the settings say that the model can't take never reaches the service."""
    scale = DecisionRequest(ASKED.input, (Scale("s", "How?", ("a", "b", "c")),))
    async with decision_server(OK) as server, asking(server.target, limits=ModelLimits(levels=2)) as model:
        models = DecisionModels({"mine": model})
        with pytest.raises(PlannerdError) as raised:
            await models.ask(models.get(), scale)
    assert raised.value.reason is Reason.DECISION_MODEL_LIMIT
    assert raised.value.metadata["limit"] == "levels"
    assert server.seen == []


async def test_another_service_at_the_address() -> None:
    """A gRPC server without a DecisionModelService is told apart from one that is down."""
    async with decision_server(OK, service="some.Other") as server:
        error = await failure(server.target)
    assert error.reason is Reason.DECISION_MODEL_REJECTED
    assert "no DecisionModelService" in error.message


# --- connections


async def test_nobody_there() -> None:
    """An address where nobody listens is unavailable, and the error has no address."""
    async with socket_server(lambda reader, writer: asyncio.sleep(0)) as target:
        pass
    error = await failure(target)
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert target not in f"{error.message}{error.metadata}"


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n" * 100)
    await writer.drain()
    await reader.read()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(24)


async def half_closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    await reader.read()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    await asyncio.sleep(3600)


@pytest.mark.parametrize("talk", [garbage, closing, half_closing, silent], ids=lambda talk: str(talk.__name__))
async def test_servers_that_are_none(talk: Any) -> None:
    """Garbage, a connection that closes or half closes, and one that says nothing are unavailable, within the time."""
    started = time.monotonic()
    async with socket_server(talk) as target:
        error = await failure(target, 1.5, retries=replace(QUICK, attempt_seconds=0.5))
    assert error.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert time.monotonic() - started < 20


async def test_a_server_that_comes_back_is_found() -> None:
    """While the service is restarted, a request waits for it and is answered by its successor."""
    rules = RetryRules(retries=10, attempt_seconds=10.0, first_wait=0.2, longest_wait=0.5)
    async with AsyncExitStack() as stack:
        async with decision_server(OK) as first:
            model = await stack.enter_async_context(asking(first.target, retries=rules))
            await model.decide(ASKED, PATIENCE)
        waiting = asyncio.create_task(model.decide(ASKED, PATIENCE))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        second = await stack.enter_async_context(decision_server(OK, port=int(first.target.rpartition(":")[2])))
        assert (await waiting).retries > 0
        assert len(second.seen) == 1


async def test_proxies_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names is not asked: only the settings say where requests go."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    async with decision_server(OK) as server, asking(server.target) as model:
        assert (await model.decide(ASKED, PATIENCE)).answers["q"] == YesNoAnswer(0.75)


async def test_a_flapping_service_behind_a_planner() -> None:
    """A service that fails and comes back, again and again, costs the run time and nothing else."""
    down = Failing(grpc.StatusCode.UNAVAILABLE, retry_after=0.0)
    picked = decision_pb2.DecideResponse(model="theirs")
    picked.answers.add(question="decision-agent", choice=decision_pb2.ChoiceAnswer(value="one"))

    @agent
    def one(request: str) -> str:
        """The first."""
        return "1"

    @agent
    def two(request: str) -> str:
        """The second."""
        return "2"

    def run(target: str) -> RunResult:
        config = {"decisions": {"models": {"mine": {"provider": "grpc", "target": target, "retry_wait_seconds": 0.0}}}}
        policy = RetryPolicy(attempts=5)
        with running_server(config=config) as running, Client(running.target, retry=policy) as client:
            return client.run(Router(), [one, two], {"request": "hi"}, explain="full")

    async with decision_server(down, down, picked) as server:
        result = await asyncio.to_thread(run, server.target)
    assert result.result == "1"
    assert result.steps[0].explanation.decisions[0].retries == 2
    assert len(server.seen) == 3


async def test_a_full_queue_is_refused() -> None:
    """Beyond the requests at once and those that may wait, one more is refused with a time to come back."""
    async with decision_server(OK) as server, asking(server.target, concurrent=2, queue=1) as model:
        server.gate = asyncio.Event()
        tasks = [asyncio.create_task(model.decide(ASKED, PATIENCE)) for _ in range(3)]
        await until(lambda: server.inside == 2)
        with pytest.raises(PlannerdError) as raised:
            await model.decide(ASKED, PATIENCE)
        assert raised.value.reason is Reason.DECISION_QUEUE_FULL
        assert raised.value.retry_after is not None
        assert server.inside == 2
        server.gate.set()
        assert [(await task).answers["q"] for task in tasks] == [YesNoAnswer(0.75)] * 3


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_cancelled_requests_leave_nothing() -> None:
    """Requests that are cancelled end at the service too, and leave no task, file or place in the queue behind."""
    async with decision_server(OK) as server, asking(server.target, concurrent=8) as model:
        await model.decide(ASKED)  # the connection is made
        server.gate = asyncio.Event()
        before = len(asyncio.all_tasks()), open_files()
        for _ in range(5):
            tasks = [asyncio.create_task(model.decide(ASKED)) for _ in range(20)]
            await until(lambda: server.inside == 8)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            await until(lambda: server.inside == 0)
        server.gate = None
        assert (await model.decide(ASKED)).answers["q"] == YesNoAnswer(0.75)
        async with asyncio.timeout(30):  # the service's own task ends a little after its answer has arrived
            await until(lambda: len(asyncio.all_tasks()) <= before[0] and open_files() <= before[1])
