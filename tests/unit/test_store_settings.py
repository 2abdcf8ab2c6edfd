"""The settings of the shared store, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import ValidationError

from plannerd.app import BuildError, build
from plannerd.invocations.stores import MemoryStore
from plannerd.invocations.stores.connection import RedisTarget
from plannerd.invocations.stores.redis import RedisStore
from plannerd.settings import Settings, SettingsError, load
from plannerd.settings.store import StoreSettings


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tells where the store of these settings would be."""

    def made(**store: Any) -> RedisTarget:
        targets: list[RedisTarget] = []

        class Connection:
            def __init__(self, target: RedisTarget) -> None:
                targets.append(target)

        with monkeypatch.context() as patch:
            patch.setattr("plannerd.invocations.stores.connection.RedisConnection", Connection)
            app = build(Settings.model_validate({"store": store}))
        assert isinstance(app.store, RedisStore)
        return targets[0]

    return made


def test_without_a_url_invocations_are_kept_in_memory() -> None:
    """By default a server needs no store."""
    assert isinstance(build(Settings()).store, MemoryStore)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://cache", RedisTarget("cache", 6379, 0)),
        ("redis://127.0.0.1:7000/3", RedisTarget("127.0.0.1", 7000, 3)),
        ("valkey://cache:7000", RedisTarget("cache", 7000)),
        ("rediss://[::1]:7000/0", RedisTarget("::1", 7000, tls=True)),
        ("valkeys://cache", RedisTarget("cache", tls=True)),
    ],
)
def test_the_url_says_where_the_store_is(target: Any, url: str, expected: RedisTarget) -> None:
    """Scheme, host, port and database come from the URL."""
    assert target(url=url) == expected


def test_passwords_come_from_the_environment_or_a_file(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is read from its file without the line end, or from the environment, and is never shown."""
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    assert target(url="redis://cache", username="planner", password_file=str(file)).password == "hunter2"
    monkeypatch.setenv("PLANNERD_STORE__URL", "redis://cache")
    monkeypatch.setenv("PLANNERD_STORE__PASSWORD", "hunter3")
    settings = load()
    assert target(**settings.store.model_dump(exclude_defaults=True)).password == "hunter3"
    assert "hunter3" not in repr(settings) + str(settings.store.model_dump()) + settings.model_dump_json()


def test_certificates_are_read_when_the_server_is_built(target: Any, tmp_path: Path) -> None:
    """The files of TLS are given by path and read at the start."""
    for name in ("cert", "key"):
        (tmp_path / name).write_text(name)
    authority = trustme.CA().cert_pem
    authority.write_to_path(tmp_path / "ca")
    files = {f"{name}_file": str(tmp_path / name) for name in ("ca", "cert", "key")}
    found = target(url="rediss://cache", **files)
    assert (found.ca, found.cert, found.key) == (authority.bytes(), b"cert", b"key")


def test_a_file_without_certificates_is_refused() -> None:
    """What is to be trusted must be certificates, or the server does not start."""
    with pytest.raises(BuildError, match="holds no certificates"):
        build(Settings.model_validate({"store": {"url": "rediss://cache", "ca_file": __file__}}))


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ({"url": "http://cache"}, "url"),
        ({"url": "redis://"}, "url"),
        ({"url": "redis://:hunter2@cache"}, "url"),
        ({"url": "redis://cache/zero"}, "url"),
        ({"url": "redis://cache", "prefix": ""}, "prefix"),
        ({"url": "redis://cache", "prefix": "a b"}, "prefix"),
        ({"url": "redis://cache", "timeout_seconds": 0}, "timeout_seconds"),
        ({"url": "redis://cache", "claim_seconds": 0}, "claim_seconds"),
        ({"url": "redis://cache", "username": "me"}, "username needs a password"),
        ({"url": "redis://cache", "ca_file": __file__}, "need a url with TLS"),
        ({"url": "rediss://cache", "cert_file": __file__}, "give both or neither"),
        ({"url": "redis://cache", "password": "a", "password_file": __file__}, "give one of them"),
        ({"url": "redis://cache/1", "cluster": True}, "a cluster has database 0 only"),
        ({"url": "redis://cache", "ca_file": "/nowhere"}, "ca_file"),
    ],
)
def test_settings_that_do_not_fit_are_refused(store: dict[str, Any], problem: str) -> None:
    """What can't be used is refused, naming the setting."""
    with pytest.raises(ValidationError, match=problem):
        Settings.model_validate({"store": store})


def test_a_password_in_the_url_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about a URL with a password does not show the password."""
    monkeypatch.setenv("PLANNERD_STORE__URL", "redis://:hunter2@cache")
    with pytest.raises(SettingsError) as raised:
        load()
    assert "store.url" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_port_that_is_none_is_refused() -> None:
    """A port beyond the range is an error of the settings, with their name."""
    with pytest.raises(BuildError, match="store"):
        build(Settings(store=StoreSettings(url="redis://cache:99999")))
