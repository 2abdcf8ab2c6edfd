"""Who may call, over real connections: tokens and certificates, by unary calls and by streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from plannerd.services.context import CallContext
from plannerd_protos.planner.v1 import errors_pb2, planner_pb2
from tests.support.errors import SeenError, seen
from tests.support.security import (
    ALICE,
    ALICE_TOKEN,
    BOB,
    BOB_TOKEN,
    OPS,
    Files,
    authority,
    bearer,
    ec_signer,
    jwks,
    protected,
)
from tests.support.services import Serving, contract_methods, contract_services, service, serving
from tests.support.streams import RunClient, echo, talking, until

HANGS = 30.0
UNARY = [method for method in contract_methods() if not method.client_streaming]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Witness:
    """A service that remembers who called."""

    def __init__(self) -> None:
        self.calls: list[CallContext] = []

    async def list_planners(self, request: object, call: CallContext) -> planner_pb2.ListPlannersResponse:
        self.calls.append(call)
        return planner_pb2.ListPlannersResponse()

    def services(self, **more: Any) -> Any:
        return service(ListPlanners=self.list_planners, **more)

    @property
    def identities(self) -> list[str]:
        return [call.identity for call in self.calls]


async def ask(running: Serving, metadata: Any = ()) -> SeenError | None:
    """ListPlanners with this metadata; what it failed with."""
    try:
        await running.planner.ListPlanners(planner_pb2.ListPlannersRequest(), metadata=metadata, timeout=HANGS)
    except grpc.aio.AioRpcError as error:
        return seen(error)
    return None


async def opened(running: Serving, metadata: Any = ()) -> SeenError | None:
    """A stream with one request and this metadata; what it failed with."""
    stream = running.planner.Run(metadata=metadata, timeout=HANGS)
    try:
        await stream.write(planner_pb2.RunRequest(id=1))
        await stream.done_writing()
        async for _ in stream:
            pass
    except grpc.aio.AioRpcError as error:
        return seen(error)
    except asyncio.InvalidStateError:  # it ended before the request went out
        assert isinstance(stream, grpc.aio.Call)
    code = await stream.code()
    if code is grpc.StatusCode.OK:
        return None
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    return seen(caught.value)


def refused(found: SeenError | None, problem: str) -> SeenError:
    assert found is not None
    assert found.code is grpc.StatusCode.UNAUTHENTICATED
    assert (found.domain, found.reason) == ("plannerd.dev", "UNAUTHENTICATED")
    assert found.metadata == {"problem": problem}
    assert (found.violations, found.retry_after) == (None, None)
    return found


# --- tokens


async def test_who_calls_is_told_to_the_service(files: Files) -> None:
    """A token's identity reaches the service, and whether it is an operator's."""
    witness = Witness()
    auth = files.tokens() | {"operators": ["ops"]}
    async with serving(witness.services(), protection=protected(auth=auth)) as running:
        for metadata in (ALICE, BOB, OPS, ALICE):
            assert await ask(running, metadata) is None
    assert witness.identities == ["alice", "bob", "ops", "alice"]
    assert [call.operator for call in witness.calls] == [False, False, True, False]


async def test_without_authentication_everybody_is_one(files: Files) -> None:
    """With nothing configured, tokens are not looked at and everybody is the same identity."""
    witness = Witness()
    async with serving(witness.services()) as running:
        assert await ask(running) is None
        assert await ask(running, ALICE) is None
    assert witness.identities == ["", ""]


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.name)
async def test_every_method_needs_a_token(files: Files, method: MethodDescriptor) -> None:
    """No method of the contract answers without a token, or even looks at what was sent."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    services = [service(descriptor) for descriptor in contract_services()]
    async with serving(*services, protection=protected(auth=files.tokens())) as running:
        for metadata, problem in [((), "missing"), (bearer("wrong-0123456789abcdef"), "unknown")]:
            call: Any = running.channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"\xff\xff\xff", metadata=metadata, timeout=HANGS)
            refused(seen(caught.value), problem)


async def test_streams_need_a_token(files: Files) -> None:
    """A stream without a good token is refused when it is opened."""
    async with serving(service(Run=talking(echo)), protection=protected(auth=files.tokens())) as running:
        refused(await opened(running), "missing")
        refused(await opened(running, bearer("wrong-0123456789abcdef")), "unknown")
        assert await opened(running, ALICE) is None


async def test_health_and_reflection_need_no_token(files: Files) -> None:
    """Load balancers and tools have none; what they see is no secret."""
    async with serving(service(), protection=protected(auth=files.tokens()), reflection=True) as running:
        health = await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        assert [reply async for reply in asked]


@pytest.mark.parametrize(
    ("claims", "problem", "words"),
    [
        ({"exp": 1}, "expired", "has expired; send a fresh one"),
        ({"nbf": 4_000_000_000}, "not_yet_valid", "not valid yet"),
        ({"aud": "other"}, "audience", "another audience"),
        ({"iss": "other"}, "issuer", "another issuer"),
        ({"sub": None}, "claims", "'sub'"),
    ],
)
async def test_signed_tokens_that_are_refused(files: Files, claims: dict[str, Any], problem: str, words: str) -> None:
    """Who sends a signed token that does not count is told why, by unary calls and by streams alike."""
    auth = files.keys(jwks(ec_signer("1")))
    async with serving(Witness().services(Run=talking(echo)), protection=protected(auth=auth)) as running:
        metadata = bearer(ec_signer("1").token(**claims))
        found = refused(await ask(running, metadata), problem)
        assert words in found.text
        assert refused(await opened(running, metadata), problem) == found
        assert await ask(running, bearer(ec_signer("1").token())) is None


async def test_tokens_are_never_in_the_log(files: Files) -> None:
    """Neither good tokens nor wrong ones nor parts of them are logged, and the status does not repeat them."""
    good, expired = ec_signer("1").token("carol"), ec_signer("1").token("carol", exp=1)
    auth = files.tokens() | files.keys(jwks(ec_signer("1")))
    said = []
    async with serving(
        Witness().services(Run=talking(echo)),
        protection=protected(auth=auth),
        log_level="debug",
        error_messages=True,
    ) as running:
        tokens = (ALICE_TOKEN, ALICE_TOKEN + "x", good, good[:-9] + "A" * 9, expired)
        for token in tokens:
            said += [await ask(running, bearer(token)), await opened(running, bearer(token))]
        files.tokens(f"alice {ALICE_TOKEN}\nbob {ALICE_TOKEN}\n")
        await until(lambda: bool(running.events("reload_failed")))
    assert len(running.events("call")) >= len(tokens)
    for text in (running.log(), str(said)):
        for token in tokens:
            assert token not in text
            assert all(part not in text for part in token.split(".") if len(part) > 10)


# --- changes while the server runs


async def test_a_new_token_counts_without_a_restart(files: Files) -> None:
    """A token that is added works, and one that is taken away is refused, in open streams too."""
    protection = protected(auth=files.tokens(f"alice {ALICE_TOKEN}\n"))
    async with serving(Witness().services(Run=talking(echo)), protection=protection) as running:
        refused(await ask(running, BOB), "unknown")
        stream = RunClient(running, metadata=ALICE)
        await stream.ask()
        files.tokens(f"bob {BOB_TOKEN}\n")
        await until(lambda: bool(running.events("reloaded")))
        assert await ask(running, BOB) is None
        refused(await ask(running, ALICE), "unknown")
        await _refused_in_band(stream, "unknown")


async def _refused_in_band(stream: RunClient, problem: str) -> None:
    """The next request of a stream is refused in band, and that is the last of it."""
    answer = await stream.ask(execution_state=planner_pb2.ExecutionStateRequest(invocation_id="i1"))
    assert answer.error.code == grpc.StatusCode.UNAUTHENTICATED.value[0]
    assert answer.error.reason == errors_pb2.ERROR_REASON_UNAUTHENTICATED
    assert dict(answer.error.metadata) == {"problem": problem}
    assert await stream.ended() is grpc.StatusCode.OK


async def test_a_stream_does_not_outlive_its_token(files: Files) -> None:
    """Once the token of a stream has expired its next request is refused in band, and the stream ends."""
    auth = files.keys(jwks(ec_signer("1")), leeway_seconds=0.0)
    async with serving(service(Run=talking(echo)), protection=protected(auth=auth)) as running:
        expires = int(time.time()) + 2
        stream = RunClient(running, metadata=bearer(ec_signer("1").token(exp=expires)))
        await stream.ask()
        await asyncio.sleep(max(0.0, expires - time.time()) + 0.01)
        await _refused_in_band(stream, "expired")
        fresh = RunClient(running, metadata=bearer(ec_signer("1").token()))
        await fresh.ask()


async def test_an_identity_that_changes_hands(files: Files) -> None:
    """If a token becomes another identity's, streams that were opened with it are nobody's."""
    protection = protected(auth=files.tokens(f"alice {ALICE_TOKEN}\n"))
    async with serving(service(Run=talking(echo)), protection=protection) as running:
        stream = RunClient(running, metadata=ALICE)
        await stream.ask()
        files.tokens(f"bob {ALICE_TOKEN}\n")
        await until(lambda: bool(running.events("reloaded")))
        await _refused_in_band(stream, "changed")


async def test_a_broken_token_file_leaves_the_old_one_in_force(files: Files) -> None:
    """A file that can't be used changes nothing, is logged once with its line, and can be mended."""
    async with serving(Witness().services(), protection=protected(auth=files.tokens())) as running:
        files.tokens(f"carol {BOB_TOKEN}\nalice")
        await until(lambda: bool(running.events("reload_failed")))
        await asyncio.sleep(0.3)
        assert await ask(running, ALICE) is None
        [line] = running.events("reload_failed")
        assert line["problem"].startswith("auth.tokens_file: line 2: there must be an identity and a token")
        files.tokens(f"carol {BOB_TOKEN}\n")
        await until(lambda: bool(running.events("reloaded")))
        refused(await ask(running, ALICE), "unknown")


async def test_keys_that_change(files: Files) -> None:
    """Keys are replaced while the server runs: first both, then the new one alone."""
    old, new = ec_signer("old"), ec_signer("new")
    async with serving(Witness().services(), protection=protected(auth=files.keys(jwks(old)))) as running:
        token = old.token()
        assert await ask(running, bearer(token)) is None
        refused(await ask(running, bearer(new.token())), "key")
        files.keys(jwks(old, new))
        await until(lambda: len(running.events("reloaded")) == 1)
        assert await ask(running, bearer(token)) is None
        assert await ask(running, bearer(new.token())) is None
        files.keys(jwks(new))
        await until(lambda: len(running.events("reloaded")) == 2)
        refused(await ask(running, bearer(token)), "key")
        assert await ask(running, bearer(new.token())) is None


# --- certificates


@pytest.mark.parametrize(
    ("name", "identity"),
    [("dns", "shop.example"), ("common_name", "Shop"), ("email", "shop@x.example"), ("uri", None)],
)
async def test_identities_by_certificate(files: Files, name: str, identity: str | None) -> None:
    """The chosen name of a client's certificate is its identity; without one the call is refused."""
    ours, clients = authority(), authority()
    tls = files.certificate(*ours.issue(), clients.pem)
    client = clients.issue("shop.example", "shop@x.example", common_name="Shop")
    witness = Witness()
    protection = protected(tls, {"client_certificate": name})
    async with serving(witness.services(), protection=protection, credentials=ours.trusted(client)) as running:
        found = await ask(running)
        if identity is None:
            assert "'uri', and has 0" in refused(found, "certificate").text
        else:
            assert found is None
            assert witness.identities == [identity]


async def test_a_token_counts_before_a_certificate(files: Files) -> None:
    """A proxy that shows its certificate can pass on tokens; a wrong one is not made good by the certificate."""
    ours, clients = authority(), authority()
    tls = files.certificate(*ours.issue(), clients.pem)
    auth = files.tokens() | {"client_certificate": "dns", "client_certificate_prefix": "mtls:"}
    witness = Witness()
    proxy = ours.trusted(clients.issue("proxy.example"))
    async with serving(witness.services(), protection=protected(tls, auth), credentials=proxy) as running:
        assert await ask(running, ALICE) is None
        assert await ask(running) is None
        refused(await ask(running, bearer("wrong-0123456789abcdef")), "unknown")
    assert witness.identities == ["alice", "mtls:proxy.example"]


# --- how much one identity may do


@pytest.fixture
async def limited(files: Files) -> AsyncIterator[Serving]:
    """A server that takes three calls of an identity at a time."""
    protection = protected(auth=files.tokens(), max_calls_per_identity=3)
    async with serving(Witness().services(Run=talking(echo)), protection=protection) as running:
        yield running


async def test_one_identity_has_so_many_calls_and_no_more(limited: Serving) -> None:
    """Beyond its limit an identity is refused, others are served, and an ended stream makes room."""
    streams = [RunClient(limited, metadata=ALICE) for _ in range(3)]
    for stream in streams:
        await stream.ask()
    for found in (await ask(limited, ALICE), await opened(limited, ALICE)):
        assert found is not None
        assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert found.metadata == {"limit": "max_calls_per_identity", "allowed": "3", "requested": "4"}
        assert found.retry_after == 1.0
    assert await ask(limited, BOB) is None
    assert await opened(limited, BOB) is None
    await streams[0].call.done_writing()
    assert await streams[0].ended() is grpc.StatusCode.OK
    for _ in range(10):
        assert await ask(limited, ALICE) is None


async def test_calls_that_fail_or_are_cancelled_are_not_counted_for_ever(limited: Serving) -> None:
    """However a call ends, it makes room for another one."""
    for _ in range(10):
        stream = RunClient(limited, metadata=ALICE)
        await stream.ask()
        stream.call.cancel()
        refused(await ask(limited, bearer(ALICE_TOKEN + "x")), "unknown")
    await until(lambda: limited.server.calls == 0)
    streams = [RunClient(limited, metadata=ALICE) for _ in range(3)]
    for stream in streams:
        await stream.ask()


# --- what it costs


async def test_authentication_costs_next_to_nothing(files: Files) -> None:
    """Calls with a signed token that is known take little longer than on a server that asks nobody."""
    auth = files.keys(jwks(ec_signer("1")))
    token = bearer(ec_signer("1").token())
    async with (
        serving(Witness().services(), protection=protected(auth=auth)) as strict,
        serving(Witness().services()) as trusting,
    ):
        times: dict[str, list[float]] = {"strict": [], "trusting": []}
        # In turns, so that what else the machine does is the same for both.
        for _ in range(20):
            for name, running in (("strict", strict), ("trusting", trusting)):
                started = time.perf_counter()
                for _ in range(20):
                    assert await ask(running, token) is None
                times[name].append(time.perf_counter() - started)
    assert min(times["strict"]) < 1.5 * min(times["trusting"])
