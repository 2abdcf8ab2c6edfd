"""The settings of decision models of the provider `grpc`, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plannerd.app import BuildError, build
from plannerd.decisions.model import ModelLimits
from plannerd.decisions.remote import Entry, Keepalive, RemoteOptions
from plannerd.decisions.retries import RetryRules
from plannerd.settings import SettingsError, load


def settings(tmp_path: Path, **model: Any) -> Path:
    """A file with one model."""
    file = tmp_path / "plannerd.yaml"
    model = {"provider": "grpc", "target": "127.0.0.1:7", **model}
    file.write_text(yaml.safe_dump({"decisions": {"models": {"mine": model}}}), "utf-8")
    return file


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1:7", "127.8.8.8:7", "[::1]:7", "localhost:7", "dns:///localhost:7", "unix:/run/m.sock", "unix:m.sock"],
)
def test_targets_on_this_machine_need_no_tls(tmp_path: Path, target: str) -> None:
    """Loopback and Unix sockets can be reached without TLS."""
    load(settings(tmp_path, target=target))


@pytest.mark.parametrize("target", ["10.0.0.1:7", "model.internal:7", "[2001:db8::1]:7", "dns:///a.b:7", "0.0.0.0:7"])
def test_targets_elsewhere_need_tls(tmp_path: Path, target: str) -> None:
    """Another machine is reached by TLS, or without it by who says so."""
    with pytest.raises(SettingsError, match=r"models\.mine: target is not on this machine: set tls\.enabled"):
        load(settings(tmp_path, target=target))
    load(settings(tmp_path, target=target, tls={"enabled": True}))
    load(settings(tmp_path, target=target, allow_insecure=True))


@pytest.mark.parametrize(
    "target",
    ["", "model", "model:", ":7", "model:port", "model:0", "model:65536", "http://model:7", "a@b:7", "::1:7", "unix:",
     "xds:///model:7", "model:7/path", "mo del:7", "dns://8.8.8.8/model:7"],
)  # fmt: skip
def test_targets_that_are_none_are_refused(tmp_path: Path, target: str) -> None:
    """A target without a port, a URL and anything else that is none is refused in words."""
    with pytest.raises(SettingsError, match="target must be HOST:PORT"):
        load(settings(tmp_path, target=target, allow_insecure=True))


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"tls": {"cert": "FILE"}}, "tls: has no effect unless enabled is true"),
        ({"tls": {"enabled": True, "cert": "FILE"}}, "tls: cert and key go together"),
        ({"tls": {"enabled": True, "ca": "missing.pem"}}, "tls.ca: Path does not point to a file"),
        ({"metadata": {"a": {}}}, "metadata.a: needs exactly one of value, env and file"),
        ({"metadata": {"a": {"value": "x", "env": "Y"}}}, "metadata.a: needs exactly one of"),
        ({"metadata": {"a": "x"}}, "metadata.a: Input should be"),
        ({"max_options": 1}, "max_options: Input should be greater than or equal to 2"),
        ({"retries": 11}, "retries: Input should be less than or equal to 10"),
        ({"max_concurrent": 0}, "max_concurrent: Input should be greater than or equal to 1"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, model: dict[str, Any], line: str) -> None:
    """Each mistake is told with the path of the setting."""
    text = yaml.safe_dump(model).replace("FILE", str(Path(__file__)))
    with pytest.raises(SettingsError) as raised:
        load(settings(tmp_path, **yaml.safe_load(text)))
    assert str(raised.value).startswith(f"decisions.models.mine.{line}")


def test_the_settings_reach_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the settings say is what the model works with; secrets come from the environment or a file."""
    made: list[tuple[str, RemoteOptions]] = []
    monkeypatch.setattr("plannerd.app.RemoteModel", lambda name, options: made.append((name, options)))
    monkeypatch.setenv("MODEL_TOKEN", "tangerine")
    token = tmp_path / "token"
    token.write_text("plum", "utf-8")
    file = settings(
        tmp_path,
        model="big",
        metadata={
            "authorization": {"env": "MODEL_TOKEN", "prefix": "Bearer "},
            "x-key": {"file": str(token)},
            "x-tenant": {"value": "acme"},
        },
        max_questions=3,
        max_options=4,
        max_levels=5,
        images=False,
        max_request_bytes=6000,
        max_reply_bytes=7000,
        attempt_timeout_seconds=8,
        retries=9,
        retry_wait_seconds=0.5,
        max_concurrent=10,
        max_queue=11,
        keepalive_seconds=12,
        keepalive_timeout_seconds=13,
    )
    build(load(file))
    assert made == [
        (
            "mine",
            RemoteOptions(
                target="127.0.0.1:7",
                model="big",
                metadata=(
                    Entry("authorization", "tangerine", prefix="Bearer "),
                    Entry("x-key", file=token),
                    Entry("x-tenant", "acme", secret=False),
                ),
                limits=ModelLimits(3, 4, 5, images=False),
                max_request_bytes=6000,
                max_reply_bytes=7000,
                retries=RetryRules(9, 8.0, 0.5),
                concurrent=10,
                queue=11,
                keepalive=Keepalive(12, 13),
            ),
        )
    ]
    assert "tangerine" not in repr(made)


def test_a_secret_that_is_not_there_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set, and a value that can't be sent, are named without the value."""
    monkeypatch.delenv("MODEL_TOKEN", raising=False)
    file = settings(tmp_path, metadata={"authorization": {"env": "MODEL_TOKEN"}})
    with pytest.raises(BuildError, match=r"^decisions\.models\.mine: metadata .* MODEL_TOKEN is not set"):
        build(load(file))
    monkeypatch.setenv("MODEL_TOKEN", "tangerine\n2")
    with pytest.raises(BuildError, match="must be printable ASCII") as raised:
        build(load(file))
    assert "tangerine" not in str(raised.value)
