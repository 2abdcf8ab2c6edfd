"""`plannerd health`, as a probe in a pod, the health command of an image, or a person uses it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.redis import RedisProcess, free_port
from tests.support.security import Authority, Files, authority
from tests.support.servers import ServerProcess, run_plannerd, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as found:
        yield found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def health(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_plannerd("health", *arguments, environment=environment)


@pytest.mark.parametrize("service", ["", "liveness", "planner.v1.PlannerService"])
def test_a_server_that_serves_is_healthy(server: ServerProcess, service: str) -> None:
    """The server, its loop and its parts are SERVING, which is exit code 0."""
    asked = health("--target", server.target, "--service", service)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "SERVING\n", "")


def test_the_server_of_the_settings_is_asked_by_default(server: ServerProcess) -> None:
    """Without a target it asks the server that the environment describes."""
    asked = health(environment={"PLANNERD_SERVER__PORT": str(server.port)})
    assert (asked.returncode, asked.stdout) == (0, "SERVING\n")


def test_a_server_on_every_interface_is_asked_over_loopback() -> None:
    """0.0.0.0 is where a server listens, not where it is asked."""
    port = free_port()
    settings = {"PLANNERD_SERVER__HOST": "0.0.0.0", "PLANNERD_SERVER__PORT": str(port)}
    settings["PLANNERD_SERVER__ALLOW_INSECURE"] = "true"
    with running_server("--port", str(port), environment=settings):
        asked = health(environment=settings)
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "SERVING\n", "")


def test_nobody_there_is_not_healthy() -> None:
    """A server that can't be reached is exit code 1, and a line says why."""
    target = f"127.0.0.1:{free_port()}"
    asked = health("--target", target)
    assert asked.returncode == 1
    assert asked.stderr.startswith(f"plannerd: {target}: UNAVAILABLE: ")
    assert len(asked.stderr.splitlines()) == 1


def test_an_unknown_part_is_named(server: ServerProcess) -> None:
    """A part that the server does not have is exit code 1, by its name."""
    asked = health("--target", server.target, "--service", "plannerd.sture")
    assert asked.returncode == 1
    assert asked.stderr == f"plannerd: {server.target} has no part 'plannerd.sture'\n"


def test_a_part_that_is_away_is_not_serving(tmp_path: Path) -> None:
    """When the store dies its part says NOT_SERVING, with exit code 1, and the loop still serves."""
    redis = RedisProcess(tmp_path)
    redis.start()
    try:
        config: dict[str, Any] = {
            "store": {"url": f"redis://127.0.0.1:{redis.port}", "timeout_seconds": 0.5},
            "health": {"interval_seconds": 0.2},
        }
        with running_server(config=config) as server:
            assert health("--target", server.target, "--service", "plannerd.store").stdout == "SERVING\n"
            redis.stop()
            asked = health("--target", server.target, "--service", "plannerd.store")
            for _ in range(100):
                if asked.returncode == 1:
                    break
                asked = health("--target", server.target, "--service", "plannerd.store")
            assert (asked.returncode, asked.stdout) == (1, "NOT_SERVING\n")
            assert health("--target", server.target, "--service", "liveness").returncode == 0
    finally:
        redis.stop()


def test_it_needs_no_token(files: Files) -> None:
    """A server that lets nobody in without a token tells everybody whether it is well."""
    config = {"auth": {"tokens_file": str(files.tokens()["tokens_file"])}}
    with running_server(config=config) as server:
        assert health("--target", server.target).stdout == "SERVING\n"


# --- TLS


def test_over_tls_the_authority_is_trusted_that_is_named(files: Files) -> None:
    """With --ca the server must have a certificate of that authority, for the host or the name that is given."""
    ours, other = authority(), authority()
    config = written(files, ours, "plannerd.example")
    ca, foreign = files.write("ours.pem", ours.pem), files.write("other.pem", other.pem)
    with running_server(config=config, credentials=ours.trusted(), server_name="plannerd.example") as server:
        named = ("--target", server.target, "--server-name", "plannerd.example")
        assert health(*named, "--ca", str(ca)).stdout == "SERVING\n"
        assert health("--target", server.target, "--ca", str(ca)).returncode == 1
        assert health(*named, "--ca", str(foreign)).returncode == 1
        assert health("--target", server.target).returncode == 1


@pytest.mark.parametrize("names", [("plannerd.example",), ("*.plannerd.example", "10.0.0.1"), ("10.0.0.1",)])
@pytest.mark.parametrize("mutual", [False, True])
def test_over_tls_the_settings_are_enough(files: Files, tmp_path: Path, names: tuple[str, ...], mutual: bool) -> None:
    """With the server's own settings it is asked over TLS and mTLS, whatever names its certificate has."""
    ours = authority()
    config = written(files, ours, *names, mutual=mutual)
    config["server"]["port"] = port = free_port()
    file = tmp_path / "plannerd.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    name = names[0].replace("*", "any")
    with running_server("--port", str(port), config=config, credentials=ours.trusted(ours.issue()), server_name=name):
        asked = health("--config", str(file))
        assert (asked.returncode, asked.stdout, asked.stderr) == (0, "SERVING\n", "")


def test_another_certificate_may_be_shown(files: Files, tmp_path: Path) -> None:
    """Under mTLS a certificate of the options is shown in place of the server's own."""
    ours = authority()
    config = written(files, ours, "plannerd.example", mutual=True)
    chain, key = ours.issue("probe.example")
    cert_file, key_file, ca = files.write("p.pem", chain), files.write("p.key", key), files.write("ours.pem", ours.pem)
    own = ("--cert", str(cert_file), "--key", str(key_file))
    name = "plannerd.example"
    with running_server(config=config, credentials=ours.trusted((chain, key)), server_name=name) as server:
        reached = ("--target", server.target, "--ca", str(ca), "--server-name", name)
        assert health(*reached, *own).returncode == 0
        assert health(*reached).returncode == 1


def written(files: Files, ours: Authority, *names: str, mutual: bool = False) -> dict[str, Any]:
    """Settings with a certificate for these names."""
    tls = files.certificate(*ours.issue(*names), client_ca=ours.pem if mutual else None)
    return {"server": {"tls": {key: str(value) if isinstance(value, Path) else value for key, value in tls.items()}}}


# --- what is wrong with the command line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cert", "a.pem"], "--cert and --key: give both or neither"),
        (["--timeout", "0"], "--timeout must be above 0"),
        (["--target", "127.0.0.1:1", "--ca", "/nowhere.pem"], "/nowhere.pem: No such file or directory"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], complaint: str) -> None:
    """A wrong command line or settings file is exit code 2, and a line that names it."""
    asked = health(*arguments)
    assert asked.returncode == 2
    assert complaint in asked.stderr
    assert "Traceback" not in asked.stderr
