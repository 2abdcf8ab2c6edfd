"""What a host of System One is sent, over which connections, and how many requests at once."""

from __future__ import annotations

import asyncio
import email
import email.policy
import gzip
import json
import ssl
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
import trustme

from plannerd_protos.planner.v1 import decision_pb2_grpc, step_pb2, value_pb2
from tests.support.errors import SeenError
from tests.support.hosts import MODEL, Behaviour, FaultyHost, Request, answer, host, raw, response_to, status
from tests.support.servers import running_server
from tests.support.systemone import HANGS, QUICK, Asking, asking, until, yes_or_no

SECRET: Final = "sk-tangerine-1"
UNAVAILABLE: Final = "DECISION_MODEL_UNAVAILABLE"
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def test_connections_are_kept_and_replaced() -> None:
    """One connection serves one request after the other; one that the host closed in the meantime is replaced."""
    async with host() as there, asking(there.url) as plannerd:
        for _ in range(5):
            await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
        assert there.opened == 1
        there.script.append(raw(OK + b"Content-Length: 3\r\n\r\n{} ", close=True))
        await plannerd.failing(yes_or_no())
        await until(lambda: there.connections == 0)
        reply = await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
        assert (reply.retries, there.opened) == (0, 2)


async def test_too_many_requests_are_shed() -> None:
    """As many requests as allowed are under way, as many wait as may, the others are refused with a time to wait."""
    let_go = asyncio.Event()

    async def gated(exchange: Any) -> None:
        await let_go.wait()
        await answer()(exchange)

    async with host(always=gated) as there, asking(there.url, max_concurrent=2, max_queue=3) as plannerd:
        calls = [plannerd.decisions.Decide(yes_or_no(), timeout=HANGS) for _ in range(9)]
        await until(lambda: len(there.requests) == 2)
        await until(lambda: sum(call.done() for call in calls) == 4)
        let_go.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
        assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(refused) == 4
        assert there.opened == 2
        error = await _full(plannerd, there, let_go)
        assert error.reason == "DECISION_QUEUE_FULL"
        assert error.retry_after is not None
        assert error.retry_after > 0


async def _full(plannerd: Asking, there: FaultyHost, let_go: asyncio.Event) -> SeenError:
    """The error of one more request than there is room for."""
    let_go.clear()
    calls = [plannerd.decisions.Decide(yes_or_no(), timeout=HANGS) for _ in range(5)]
    served = len(there.requests)
    await until(lambda: len(there.requests) == served + 2)
    await asyncio.sleep(0.2)  # for those that wait to be there
    error = await plannerd.failing(yes_or_no())
    let_go.set()
    await asyncio.gather(*calls)
    return error


async def test_nothing_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proxies nor the client's own variables change where a request goes or what goes with it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1")  # the test's own channel is no part of this
    monkeypatch.setenv("TYPESAFE_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TYPESAFE_API_KEY", SECRET)
    monkeypatch.setenv("TYPESAFE_DEFAULT_MODEL", "other")
    async with host() as there, asking(there.url) as plannerd:
        await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
        [request] = there.requests
        assert request.json["model"] == "jev-latest"
        assert "authorization" not in request.headers


async def test_what_is_sent(tmp_path: Path) -> None:
    """A request goes to one path, with the key of the moment, the questions and the input, and no cookies."""
    file = tmp_path / "key"
    file.write_text(SECRET)

    def with_cookie(request: Request) -> Behaviour:
        body = json.dumps(response_to(request.json)).encode()
        return status(200, body, Set_Cookie="session=1; Path=/")

    async def behave(exchange: Any) -> None:
        await with_cookie(exchange.request)(exchange)

    async with host(always=behave) as there, asking(f"{there.url}/api/", api_key_file=str(file)) as plannerd:
        await plannerd.decisions.Decide(yes_or_no("a-b"), timeout=HANGS)
        file.write_text("sk-other-22")
        await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
        first, second = there.requests
        assert (first.method, first.path) == ("POST", "/api/v1/systemone")
        assert first.json == {
            "state": {"request": "kumquat"},
            "model": "jev-latest",
            "questions": {"a_b": {"type": "noul", "instructions": "Reached?"}},
        }
        assert first.headers["authorization"] == f"Bearer {SECRET}"
        assert first.headers["accept-encoding"] == "identity"
        assert second.headers["authorization"] == "Bearer sk-other-22"
        assert "cookie" not in second.headers


async def test_a_key_that_a_host_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that repeats the key in the model's name and in a refusal tells it to no client."""
    monkeypatch.setenv("JEV_KEY", SECRET)

    def repeating(request: Request) -> Any:
        refusal = {"type": "refusal", "message": f"not for {SECRET}"}
        return {"model": f"jev {SECRET}", "answers": {"goal": refusal}}

    async with host(always=answer(repeating)) as there, asking(there.url, api_key_env="JEV_KEY") as plannerd:
        reply = await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)
    assert reply.model == "jev ***"
    assert reply.answers[0].refusal.message == "not for ***"


async def test_images_travel_beside_the_text() -> None:
    """An image is a part of its own, named where it stood; without `images` an input with one is refused at once."""
    photo = b"\x89PNG\r\n\x1a\n\x00\xffphoto"
    request = yes_or_no()
    image = value_pb2.Content(image=value_pb2.ImageContent(media_type="image/png", data=photo))
    request.input.add(name="photo").value.content.CopyFrom(image)

    async def behave(exchange: Any) -> None:
        parts = parts_of(exchange.request)
        seen.append(parts)
        await exchange.respond(200, json.dumps(response_to(json.loads(parts["request"]))).encode())

    seen: list[dict[str, bytes]] = []
    async with host(always=behave) as there, asking(there.url, images=True) as plannerd:
        assert (await plannerd.decisions.Decide(request, timeout=HANGS)).answers[0].yes_no.probability == 0.9
    [parts] = seen
    body = json.loads(parts.pop("request"))
    reference = body["state"]["photo"]
    assert body["assets"] == {reference: {"type": "image", "part": "asset-0"}}
    assert parts == {"asset-0": photo}
    async with host() as there, asking(there.url) as plannerd:
        error = await plannerd.failing(request)
        assert (error.reason, error.metadata["limit"], error.metadata["key"]) == (
            "DECISION_MODEL_LIMIT",
            "images",
            "photo",
        )
        assert there.opened == 0


def parts_of(request: Request) -> dict[str, bytes]:
    """The parts of a multipart request by their names."""
    raw = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode() + request.body
    message = email.message_from_bytes(raw, policy=email.policy.HTTP)
    found = {}
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(part.get_param("name", header="content-disposition"))] = content
    return found


async def test_nothing_is_logged(tmp_path: Path) -> None:
    """However talkative the libraries are told to be, the log of a server has no input, no address and no key."""
    file = tmp_path / "key"
    file.write_text(SECRET)
    async with host(status(503), raw(b"x"), always=answer()) as there:
        model = {"provider": "systemone", "base_url": there.url, "model": "jev-latest", "api_key_file": str(file)}
        config = {"decisions": {"models": {"jev": model}}, "log": {"level": "debug", "error_messages": True}}
        environment = {"TYPESAFE_LOG_LEVEL": "debug"}

        def ask() -> str:
            with (
                running_server(config=config, environment=environment) as server,
                grpc.insecure_channel(server.target) as channel,
            ):
                decide = decision_pb2_grpc.DecisionModelServiceStub(channel).Decide
                assert decide(yes_or_no(), timeout=HANGS).retries == 2
                server.stop()
                return server.log()

        log = await asyncio.to_thread(ask)
    assert "key_unencrypted" in log
    for secret in (SECRET, there.url.partition("//")[2], "kumquat", "tangerine", "jev-latest"):
        assert secret not in log


async def test_a_cut_input_is_said() -> None:
    """An input that is cut gives a warning, with sizes in the explanation, and the model sees no more than allowed."""
    async with host() as there, asking(there.url, max_input_bytes=1024) as plannerd:
        step = await plannerd.routing()
        step.scope.set["ticket"].string_value = "word " * 2000
        answered = (await plannerd.planner.FirstAction(step, timeout=HANGS)).step
        [request] = there.requests
    state = request.json["state"]
    assert len(json.dumps(state, separators=(",", ":"))) <= 1024
    assert state["ticket"].endswith("...")
    assert [warning.code for warning in answered.warnings] == [step_pb2.WARNING_CODE_INPUT_TRUNCATED]
    truncation = answered.explanation.decisions[0].truncation
    assert truncation.original_chars > 10_000
    assert 900 < truncation.used_chars <= 1024


async def test_tls(tmp_path: Path) -> None:
    """With https the host must show a certificate that is trusted: by the system, or by `ca_file`."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    async with host(tls=context) as there:
        async with asking(there.url, ca_file=str(bundle)) as plannerd:
            assert (await plannerd.decisions.Decide(yes_or_no(), timeout=HANGS)).model == MODEL
        async with asking(there.url, **QUICK) as plannerd:
            assert (await plannerd.failing(yes_or_no())).text == "decision model 'jev' can't be reached (3 attempts)"
        assert len(there.requests) == 1


@pytest.mark.parametrize("encoding", ["gzip", "br", "x-none, gzip"])
async def test_compressed_responses_are_not_unpacked(encoding: str) -> None:
    """A response that is compressed, though that was not asked for, is refused unread: it could be of any size."""
    packed = gzip.compress(json.dumps({"answers": {}}).encode())
    async with host(always=status(200, packed, Content_Encoding=encoding)) as there, asking(there.url) as plannerd:
        error = await plannerd.failing(yes_or_no())
    assert error.reason == "DECISION_INVALID_ANSWER"
    assert error.text == "the response of decision model 'jev' is compressed, which it was not asked to be"
