"""Settings: where values come from, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plannerd.app import BuildError, build
from plannerd.invocations.engine import Engine
from plannerd.invocations.stores import MemoryStore
from plannerd.services.codec.configuration import InitLimits
from plannerd.services.codec.run import ENVELOPE_BYTES
from plannerd.services.planner_service import PlannerService
from plannerd.settings import (
    FixedSettings,
    ServerSettings,
    Settings,
    SettingsError,
    SparrowSettings,
    load,
    reference,
    variable,
)
from plannerd.settings.systemone import SystemOneSettings
from plannerd.transport.server import channel_options


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("PLANNERD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "plannerd.yaml"


def problems(config: Path | None = None, overrides: dict[str, Any] | None = None) -> list[str]:
    """The lines about settings that are refused."""
    with pytest.raises(SettingsError) as caught:
        load(config, overrides)
    return str(caught.value).splitlines()


def test_nothing_needs_to_be_set() -> None:
    """Without any settings a server listens on loopback, with the embedded model."""
    settings = load()
    assert (settings.server.host, settings.server.port, settings.server.allow_insecure) == ("127.0.0.1", 50051, False)
    assert settings.decisions.models == {"sparrow": SparrowSettings()}


def test_every_place_has_its_rank(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line wins over the environment, it over the file, and that over the default."""
    config.write_text("server: {port: 1, host: file, max_request_bytes: 5000}")
    monkeypatch.setenv("PLANNERD_SERVER__PORT", "2")
    monkeypatch.setenv("PLANNERD_SERVER__HOST", "environment")
    server = load(config, {"server": {"port": 3}}).server
    assert (server.port, server.host, server.max_request_bytes, server.max_reply_bytes) == (
        3,
        "environment",
        5000,
        4 * 1024 * 1024,
    )


def test_maps_are_merged(config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Models from the file and from the environment are there together."""
    (tmp_path / "answers.yaml").write_text("{}")
    config.write_text("decisions: {models: {one: {provider: sparrow}}, default: two}")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__TWO__PROVIDER", "fixed")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__TWO__FILE", str(tmp_path / "answers.yaml"))
    assert load(config).decisions.models == {
        "one": SparrowSettings(),
        "two": FixedSettings(provider="fixed", file=tmp_path / "answers.yaml"),
    }


def test_variables_have_the_types_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, booleans, null and whole maps can be given as variables; an empty one counts as unset."""
    monkeypatch.setenv("PLANNERD_SERVER__GRACE_PERIOD_SECONDS", "1.5")
    monkeypatch.setenv("PLANNERD_SERVER__REFLECTION", "true")
    monkeypatch.setenv("PLANNERD_SERVER__PORT", "")
    monkeypatch.setenv("PLANNERD_SERVER__KEEPALIVE", '{"interval_seconds": 3}')
    monkeypatch.setenv("plannerd_log__level", "error")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS", '{"a": {"provider": "sparrow", "model": null}}')
    monkeypatch.setenv("PLANNERD_DECISIONS__DEFAULT", "null")
    settings = load()
    assert settings.server.grace_period_seconds == 1.5
    assert settings.server.reflection is True
    assert settings.server.port == 50051
    assert settings.server.keepalive.interval_seconds == 3.0
    assert settings.log.level == "error"
    assert (list(settings.decisions.models), settings.decisions.default) == (["a"], None)


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("server: {prot: 1}", "server.prot: there is no such setting"),
        ("sever: {}", "sever: there is no such setting"),
        ("server: {port: '1'}", "server.port: Input should be a valid integer"),
        ("server: {port: 1.0}", "server.port: Input should be a valid integer"),
        ("server: {allow_insecure: 1}", "server.allow_insecure: Input should be a valid boolean"),
        ("server: {port: 65536}", "server.port: Input should be less than or equal to 65535"),
        ("server: {grace_period_seconds: .inf}", "server.grace_period_seconds: Input should be"),
        ("server: {drain_delay_seconds: -1}", "server.drain_delay_seconds: Input should be greater"),
        ("server: {keepalive: {interval_seconds: 0}}", "server.keepalive.interval_seconds: Input should be greater"),
        ("server: [1]", "server: Input should be"),
        ("limits: {max_agents: 0}", "limits.max_agents: Input should be greater"),
        ("decisions: {default: x}", "decisions: default is 'x', which is none of the models: sparrow"),
        ("decisions: {models: {a: {}}}", "decisions.models.a: Unable to extract tag"),
        ("decisions: {models: {a: {provider: gpt}}}", "decisions.models.a: Input tag 'gpt'"),
        ("decisions: {models: {a: {provider: fixed}}}", "decisions.models.a.file: Field required"),
        ("decisions: {models: {a: {provider: sparrow, file: x}}}", "decisions.models.a.file: there is no such setting"),
        ("decisions: {models: {'A b': {provider: sparrow}}}", "decisions.models.A b: String should match"),
        ("log: {level: INFO}", "log.level: Input should be 'debug'"),
    ],
)
def test_wrong_files_are_refused(config: Path, written: str, line: str) -> None:
    """A setting that is unknown, of the wrong type or out of bounds is refused with its path and the file."""
    config.write_text(written)
    [problem] = problems(config)
    assert problem.startswith(line)
    assert problem.endswith(f"(in {config})")


@pytest.mark.parametrize(
    ("written", "part"),
    [
        (
            "- server",
            "sections: server, auth, limits, invocations, health, store, decisions, operations, log, telemetry",
        ),
        ("1: 2", "the top of the file must be a map"),
        ("server: {", "this is not YAML"),
        ("server: {port: 1, port: 2}", "'port' is written twice"),
        ("log: {}\nlog: {}", "'log' is written twice"),
        ("log: !!python/object/apply:os.system ['true']", "this is not YAML"),
        ("? [a]\n: b", "this is not YAML"),
        ("\udcff", "this is not UTF-8 text"),
    ],
)
def test_files_that_are_no_settings_are_refused(config: Path, written: str, part: str) -> None:
    """A file that is no plain YAML map is refused with its name."""
    config.write_text(written, "utf-8", "surrogateescape")
    text = "\n".join(problems(config))
    assert text.startswith(f"{config}: ")
    assert part in text


def test_a_missing_file_is_refused(config: Path) -> None:
    """A file that was asked for must be there."""
    assert problems(config) == [f"{config}: No such file or directory"]


def test_an_empty_file_is_fine(config: Path) -> None:
    """A file in which everything is commented out changes nothing."""
    config.write_text("# server: {}\n")
    assert load(config) == load()


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("PLANNERD_SERVER__PORT", "x", "server.port: Input should be a valid integer"),
        ("PLANNERD_SERVER__PROT", "1", "server.prot: there is no such setting"),
        ("PLANNERD_DECISIONS__MODELS__A__PROVIDER", "gpt", "decisions.models.a: Input tag 'gpt'"),
    ],
)
def test_wrong_variables_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, line: str) -> None:
    """A variable that is wrong is refused with the path of the setting and the name of the variable."""
    monkeypatch.setenv(name, value)
    [problem] = problems()
    assert problem.startswith(line)
    assert problem.endswith(f"(in the environment, {name})")


def test_variables_of_unknown_sections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section that does not exist is refused, but not what Kubernetes sets for a service called plannerd."""
    monkeypatch.setenv("PLANNERD_PORT", "tcp://10.0.0.1:50051")
    monkeypatch.setenv("PLANNERD_SERVICE_PORT_GRPC", "50051")
    load()
    monkeypatch.setenv("PLANNERD_SEVER__PORT", "1")
    [problem] = problems()
    sections = "server, auth, limits, invocations, health, store, decisions, operations, log, telemetry"
    assert problem == f"PLANNERD_SEVER__PORT: there is no section 'sever', only {sections}"


def test_variables_that_are_not_json_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole section in a variable must be JSON."""
    monkeypatch.setenv("PLANNERD_LOG", "{level")
    [problem] = problems()
    assert '"log"' in problem
    assert "JSON" in problem


def test_a_wrong_command_line_is_refused() -> None:
    """An option that is wrong is refused with the path of its setting."""
    assert problems(overrides={"server": {"port": -1}}) == [
        "server.port: Input should be greater than or equal to 0 (on the command line)"
    ]


def test_all_problems_are_told(config: Path) -> None:
    """Every problem has its line."""
    config.write_text("server: {port: x, host: ''}\nlog: {level: x}")
    assert [line.partition(":")[0] for line in problems(config)] == ["server.host", "server.port", "log.level"]


def test_settings_do_not_change() -> None:
    """Settings are frozen."""
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.server.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        settings.log = settings.log  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    """Every setting has a description, as a sentence."""
    for path, _, description in reference():
        assert description.endswith("."), path
        assert not description.startswith(" "), path


def test_variables_follow_from_paths() -> None:
    """The variable of a setting is its path in upper case."""
    assert variable(("server", "keepalive", "timeout_seconds")) == "PLANNERD_SERVER__KEEPALIVE__TIMEOUT_SECONDS"


def test_the_limits_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the settings say about limits is what the engine and the transport work with."""
    made: dict[str, Any] = {}

    def engine(models: Any, store: Any, encode: Any, limits: Any, **others: Any) -> Engine:
        made["limits"] = limits
        return Engine(models, store, encode, limits, **others)

    def store(bounds: Any, clock: Any) -> MemoryStore:
        made["bounds"] = bounds
        return MemoryStore(bounds, clock)

    def service(engine: Engine, init: InitLimits, **others: Any) -> PlannerService:
        made["init"] = init
        return PlannerService(engine, init, **others)

    monkeypatch.setattr("plannerd.app.Engine", engine)
    monkeypatch.setattr("plannerd.app.PlannerService", service)
    monkeypatch.setattr("plannerd.app.MemoryStore", store)
    settings = Settings.model_validate(
        {
            "server": {"max_reply_bytes": 2000, "max_request_bytes": 3000},
            "decisions": {"models": {}, "timeout_seconds": 4.0},
            "limits": {
                "max_agents": 5,
                "max_cel_characters": 12,
                "max_parts": 13,
                "max_scope_bytes": 6000,
                "max_scope_keys": 7,
                "max_invocations": 8,
                "max_invocations_bytes": 9_000_000,
                "idle_seconds": 10.0,
                "tombstone_seconds": 11.0,
            },
        }
    )
    build(settings)
    limits, bounds = made["limits"], made["bounds"]
    assert (limits.max_reply_bytes, limits.decision_timeout) == (2000, 4.0)
    assert made["init"] == InitLimits(max_agents=5, max_parts=13, max_cel_characters=12)
    assert (limits.scope.max_bytes, limits.scope.max_keys) == (6000, 7)
    assert (bounds.max_invocations, bounds.max_bytes) == (8, 9_000_000)
    assert (bounds.idle_seconds, bounds.tombstone_seconds) == (10.0, 11.0)
    assert ("grpc.max_receive_message_length", 2 * (3000 + ENVELOPE_BYTES)) in channel_options(settings.server)


def test_sections_can_be_made_in_code() -> None:
    """Who embeds a server makes its settings as objects."""
    assert Settings(server=ServerSettings(port=0)).server.port == 0


def systemone(**fields: Any) -> dict[str, Any]:
    return {"decisions": {"models": {"jev": {"provider": "systemone", **fields}}}}


def test_a_model_of_system_one() -> None:
    """A host needs an address and a model's name; all else has defaults, and a slash at the end is none."""
    settings = load(None, systemone(base_url="https://api.typesafe.ai/", model="jev-latest"))
    chosen = settings.decisions.models["jev"]
    assert isinstance(chosen, SystemOneSettings)
    assert chosen.base_url == "https://api.typesafe.ai"
    assert (chosen.max_options, chosen.max_levels, chosen.max_questions, chosen.images) == (255, 10, None, False)
    assert (chosen.retries, chosen.max_concurrent, chosen.max_queue) == (2, 16, 256)


def test_a_model_of_system_one_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host can be configured by variables alone."""
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__JEV__PROVIDER", "systemone")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__JEV__BASE_URL", "http://localhost:11434")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__JEV__MODEL", "nimble")
    monkeypatch.setenv("PLANNERD_DECISIONS__MODELS__JEV__MAX_OPTIONS", "null")
    chosen = load().decisions.models["jev"]
    assert isinstance(chosen, SystemOneSettings)
    assert (chosen.model, chosen.max_options) == ("nimble", None)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "m"}, "base_url: Field required"),
        ({"base_url": "https://a.example"}, "model: Field required"),
        ({"base_url": "https://a.example", "model": ""}, "model: String should have at least 1 character"),
        ({"base_url": "a.example", "model": "m"}, "base_url: must be an address"),
        ({"base_url": "ftp://a.example", "model": "m"}, "base_url: must be an address"),
        ({"base_url": "https://", "model": "m"}, "base_url: must be an address"),
        ({"base_url": "https://a.example:0", "model": "m"}, "base_url: must be an address"),
        ({"base_url": "https://a.example:99999", "model": "m"}, "base_url: "),
        ({"base_url": "https://[::1", "model": "m"}, "base_url: "),
        ({"base_url": "https://me:tangerine@a.example", "model": "m"}, "base_url: must not have a name or password"),
        ({"base_url": "https://a.example?key=tangerine", "model": "m"}, "base_url: must end with the path"),
        ({"base_url": "https://a.example/v1", "model": "m"}, "base_url: must not end with /v1"),
        ({"base_url": "https://a.example/v1/systemone/", "model": "m"}, "base_url: must not end with /v1"),
        (
            {"base_url": "https://a.example", "model": "m", "api_key_env": "A", "api_key_file": "b"},
            "api_key_env and api_key_file can't both be set",
        ),
        ({"base_url": "https://a.example", "model": "m", "api_key": "tangerine"}, "api_key: there is no such setting"),
        ({"base_url": "https://a.example", "model": "m", "max_levels": 0}, "max_levels: Input should be greater"),
        ({"base_url": "https://a.example", "model": "m", "retries": 11}, "retries: Input should be less"),
        (
            {"base_url": "https://a.example", "model": "m", "max_concurrent": 0},
            "max_concurrent: Input should be greater",
        ),
        ({"base_url": "https://a.example", "model": "m", "input_format": "xml"}, "input_format: Input should be"),
    ],
)
def test_what_no_host_can_be(fields: dict[str, Any], problem: str) -> None:
    """A host that can't work, or whose key would be in the settings, is refused, and no secret is repeated."""
    [line] = problems(overrides=systemone(**fields))
    assert line.startswith("decisions.models.jev")
    assert problem in line
    assert "tangerine" not in line


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"api_key_env": "PLANNERD_TEST_NO_KEY"}, "the environment variable PLANNERD_TEST_NO_KEY is not set"),
        ({"api_key_file": "/nowhere/key"}, "/nowhere/key"),
    ],
)
def test_keys_must_be_there_at_the_start(fields: dict[str, Any], problem: str) -> None:
    """A server whose model has no key does not start, and says which one it is."""
    settings = load(None, systemone(base_url="https://a.example", model="m", **fields))
    with pytest.raises(BuildError, match=r"^decisions\.models\.jev: ") as caught:
        build(settings)
    assert problem in str(caught.value)


def test_certificates_must_be_some(tmp_path: Path) -> None:
    """A file that holds no certificates is found at the start."""
    (tmp_path / "ca.pem").write_text("tangerine")
    settings = load(None, systemone(base_url="https://a.example", model="m", ca_file=str(tmp_path / "ca.pem")))
    with pytest.raises(BuildError, match="ca_file"):
        build(settings)
