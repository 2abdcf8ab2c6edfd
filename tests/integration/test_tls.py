"""TLS over real connections: what is refused, and certificates that change while the server runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from plannerd.app import BuildError, build
from plannerd.settings import Settings
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.security import Authority, Files, authority, protected, replaced
from tests.support.servers import run_plannerd
from tests.support.services import Serving, open_channel, service, serving
from tests.support.streams import echo, talking, until

HANGS = 30.0


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def list_planners(request: object, call: object) -> planner_pb2.ListPlannersResponse:
    return planner_pb2.ListPlannersResponse(server_version="here")


def listing(**more: Any) -> Any:
    return service(ListPlanners=list_planners, **more)


async def ask(target: str, credentials: grpc.ChannelCredentials | None) -> str:
    """The answer over a new connection, or the name of the status."""
    async with open_channel(target, credentials) as channel:
        call = channel.unary_unary(
            "/planner.v1.PlannerService/ListPlanners",
            planner_pb2.ListPlannersRequest.SerializeToString,
            planner_pb2.ListPlannersResponse.FromString,
        )
        try:
            reply = await call(planner_pb2.ListPlannersRequest(), timeout=HANGS)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return str(reply.server_version)


def target_of(running: Serving) -> str:
    return running.server.targets[0]


# --- who gets in


async def test_tls_serves_those_who_trust_its_authority(files: Files) -> None:
    """Over TLS calls, streams, health and reflection work; plain text and another authority's clients get nothing."""
    ours, other = authority(), authority()
    tls = protected(files.certificate(*ours.issue()))
    async with serving(
        listing(Run=talking(echo)), protection=tls, credentials=ours.trusted(), reflection=True
    ) as running:
        target = target_of(running)
        assert await ask(target, ours.trusted()) == "here"
        assert await ask(target, other.trusted()) == "UNAVAILABLE"
        assert await ask(target, None) == "UNAVAILABLE"
        stream = running.planner.Run()
        await stream.write(planner_pb2.RunRequest(id=7))
        answer = await stream.read()
        assert isinstance(answer, planner_pb2.RunResponse)
        assert answer.id == 7
        await stream.done_writing()
        health = await health_pb2_grpc.HealthStub(running.channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        asked = reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        names = [item.name async for reply in asked for item in reply.list_services_response.service]
        assert "planner.v1.PlannerService" in names


async def test_mtls_serves_those_with_a_certificate(files: Files) -> None:
    """With an authority of clients, who shows no certificate of it gets no connection."""
    ours, clients, other = authority(), authority(), authority()
    tls = protected(files.certificate(*ours.issue(), clients.pem))
    async with serving(listing(), protection=tls) as running:
        target = target_of(running)
        assert await ask(target, ours.trusted(clients.issue("client.example"))) == "here"
        assert await ask(target, ours.trusted()) == "UNAVAILABLE"
        assert await ask(target, ours.trusted(other.issue("client.example"))) == "UNAVAILABLE"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("version", "outcome"),
    [("TLSv1_1", "UNEXPECTED_EOF_WHILE_READING"), ("TLSv1_2", "TLSv1.2"), ("TLSv1_3", "TLSv1.3")],
)
async def test_old_versions_of_tls_are_refused(files: Files, version: str, outcome: str) -> None:
    """The server speaks TLS 1.2 and 1.3 and nothing older."""
    ours = authority()
    async with serving(listing(), protection=protected(files.certificate(*ours.issue()))) as running:
        assert await asyncio.to_thread(_handshake, running.server.port, ours, ssl.TLSVersion[version]) == outcome


def _handshake(port: int, ours: Authority, version: ssl.TLSVersion) -> str | None:
    """The version that was agreed on, or the reason why none was."""
    context = ssl.create_default_context(cadata=ours.pem.decode())
    context.set_alpn_protocols(["h2"])
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), HANGS) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                return connection.version()
        except ssl.SSLError as error:
            return error.reason


# --- certificates that change


Change = Callable[[Files, bytes, bytes], None]


def _in_place(files: Files, chain: bytes, key: bytes) -> None:
    files.write("cert.pem", chain)
    files.write("key.pem", key)


def _renamed(files: Files, chain: bytes, key: bytes) -> None:
    files.write("new", key).rename(files.folder / "key.pem")
    files.write("new", chain).rename(files.folder / "cert.pem")


@pytest.mark.parametrize("change", [_in_place, _renamed])
async def test_a_new_certificate_is_used_without_a_restart(files: Files, change: Change) -> None:
    """New connections get the certificate that the files have then, and connections that exist stay."""
    old, new = authority(), authority()
    tls = protected(files.certificate(*old.issue()))
    async with serving(listing(Run=talking(echo)), protection=tls, credentials=old.trusted()) as running:
        stream = running.planner.Run()
        await stream.write(planner_pb2.RunRequest(id=1))
        await stream.read()
        change(files, *new.issue())
        await until(lambda: bool(running.events("reloaded")))
        assert await ask(target_of(running), new.trusted()) == "here"
        assert await ask(target_of(running), old.trusted()) == "UNAVAILABLE"
        await stream.write(planner_pb2.RunRequest(id=2))
        answer = await stream.read()
        assert isinstance(answer, planner_pb2.RunResponse)
        assert answer.id == 2
        await stream.done_writing()
    # Whoever replaces two files one after the other may be seen between them.
    assert [line["section"] for line in running.events("reloaded")] == ["server.tls"]


async def test_certificates_in_a_kubernetes_volume(tmp_path: Path) -> None:
    """Files that are replaced by moving a symbolic link are noticed, as Kubernetes does with secrets."""
    old, new, clients = authority(), authority(), authority()
    (old_chain, old_key), (new_chain, new_key) = old.issue(), new.issue()
    cert, key, ca = replaced(
        tmp_path / "tls", {"tls.crt": old_chain, "tls.key": old_key, "ca.crt": authority().pem}, "1"
    )
    tls = protected({"cert_file": cert, "key_file": key, "client_ca_file": ca, "reload_seconds": 0.05})
    async with serving(listing(), protection=tls) as running:
        client = clients.issue("client.example")
        assert await ask(target_of(running), old.trusted(client)) == "UNAVAILABLE"
        replaced(tmp_path / "tls", {"tls.crt": new_chain, "tls.key": new_key, "ca.crt": clients.pem}, "2")
        await until(lambda: bool(running.events("reloaded")))
        assert await ask(target_of(running), new.trusted(client)) == "here"
    assert not running.events("reload_failed")


def _half(chain: bytes, key: bytes) -> dict[str, bytes]:
    return {"cert.pem": chain[: len(chain) // 2]}


def _foreign_key(chain: bytes, key: bytes) -> dict[str, bytes]:
    return {"key.pem": authority().issue()[1]}


def _half_key(chain: bytes, key: bytes) -> dict[str, bytes]:
    return {"key.pem": key[: len(key) // 2]}


def _empty(chain: bytes, key: bytes) -> dict[str, bytes]:
    return {"cert.pem": b""}


def _garbage_ca(chain: bytes, key: bytes) -> dict[str, bytes]:
    return {"ca.pem": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}


@pytest.mark.parametrize("broken", [_half, _foreign_key, _half_key, _empty, _garbage_ca])
async def test_what_cant_be_used_leaves_the_old_one_in_force(
    files: Files, broken: Callable[[bytes, bytes], dict[str, bytes]]
) -> None:
    """A half-written file or a key that does not fit keeps the old certificate, is logged once, and can be mended."""
    old, new, clients = authority(), authority(), authority()
    client = clients.issue("client.example")
    chain, key = old.issue()
    tls = protected(files.certificate(chain, key, clients.pem))
    async with serving(listing(), protection=tls) as running:
        for name, content in broken(chain, key).items():
            files.write(name, content)
        await until(lambda: bool(running.events("reload_failed")))
        assert await ask(target_of(running), old.trusted(client)) == "here"
        await asyncio.sleep(0.3)  # some more looks at the same problem
        assert len(running.events("reload_failed")) == 1
        assert b"PRIVATE" not in running.log().encode()
        files.certificate(*new.issue(), clients.pem)
        await until(lambda: bool(running.events("reloaded")))
        assert await ask(target_of(running), new.trusted(client)) == "here"


async def test_a_file_that_is_gone_leaves_the_old_one_in_force(files: Files) -> None:
    """Files that are away for a moment change nothing."""
    ours = authority()
    tls = protected(files.certificate(*ours.issue()))
    async with serving(listing(), protection=tls) as running:
        (files.folder / "cert.pem").unlink()
        await until(lambda: bool(running.events("reload_failed")))
        assert await ask(target_of(running), ours.trusted()) == "here"
    [line] = running.events("reload_failed")
    assert line["problem"].startswith("server.tls.cert_file: ")
    assert "No such file" in line["problem"]


# --- the start


def test_the_server_speaks_tls_beyond_loopback_without_further_ado(files: Files) -> None:
    """With TLS the server listens on every interface; the log says that nobody is asked who they are."""
    ours = authority()
    tls = {name: str(value) for name, value in files.certificate(*ours.issue()).items() if name.endswith("_file")}
    environment = {f"PLANNERD_SERVER__TLS__{name.upper()}": value for name, value in tls.items()}
    result = run_plannerd("config", "check", environment=environment)
    assert (result.returncode, result.stdout) == (0, "the settings are fine\n")


@pytest.mark.parametrize(
    ("spoilt", "problem"),
    [
        ({"cert.pem": b"nonsense"}, "server.tls.cert_file: this is no certificate in PEM"),
        ({"key.pem": b"nonsense"}, "server.tls.key_file: this is no private key in PEM"),
        ({"key.pem": None}, "server.tls.key_file: this is not the key of the first certificate"),
        ({"ca.pem": b"nonsense"}, "server.tls.client_ca_file: this is no certificate"),
        ({"cert.pem": b"x" * (1 << 20) + b"x"}, "server.tls.cert_file"),
    ],
)
def test_a_server_does_not_start_with_files_that_cant_be_used(
    files: Files, spoilt: dict[str, bytes | None], problem: str
) -> None:
    """What is wrong with a file is told at the start, with the path of the setting."""
    ours = authority()
    tls = files.certificate(*ours.issue(), ours.pem)
    for name, content in spoilt.items():
        files.write(name, authority().issue()[1] if content is None else content)
    with pytest.raises(BuildError, match=f"^{problem}"):
        build(Settings.model_validate({"server": {"tls": tls}}))


def test_config_check_looks_into_the_files(files: Files) -> None:
    """`plannerd config check` says which file can't be used, and ends with 2."""
    ours = authority()
    files.certificate(*ours.issue())
    files.write("key.pem", authority().issue()[1])
    environment = {
        "PLANNERD_SERVER__TLS__CERT_FILE": str(files.folder / "cert.pem"),
        "PLANNERD_SERVER__TLS__KEY_FILE": str(files.folder / "key.pem"),
    }
    result = run_plannerd("config", "check", environment=environment)
    assert result.returncode == 2
    assert result.stderr == "plannerd: server.tls.key_file: this is not the key of the first certificate in cert_file\n"


async def test_what_the_log_says_of_exposure(files: Files) -> None:
    """Beyond loopback the log says what is missing: encryption, or asking who calls."""
    ours = authority()
    tls = files.certificate(*ours.issue())
    mutual = files.certificate(*ours.issue(), ours.pem)
    for protection, allow, expected in [
        (protected(), True, ["insecure", "open"]),
        (protected(tls), False, ["open"]),
        (protected(tls, files.tokens()), False, []),
        (protected(mutual), False, []),
    ]:
        async with serving(listing(), protection=protection, host="0.0.0.0", allow_insecure=allow) as running:
            said = [line["event"] for line in running.all_events() if line["level"] == "warning"]
            assert said == expected
