"""The JSON schema of the settings file says what the server says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from plannerd.cli import main
from plannerd.settings import SettingsError, load, reference, schema
from tests.docs.markdown import ROOT, markdown_files, read
from tests.docs.snippets import SettingsExample, examples

VALIDATOR = Draft202012Validator(schema())


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("PLANNERD_"):
            monkeypatch.delenv(name)


def shown_settings() -> list[Any]:
    """The settings in the documentation."""
    pages = [path for path in markdown_files() if path.parent.name in {"docs", "planners", ROOT.name}]
    found = [example for path in pages for example in examples(read(path))]
    return [yaml.safe_load(example.blocks[0].text) for example in found if isinstance(example, SettingsExample)]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`plannerd config schema` prints a valid schema."""
    assert main(["config", "schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(printed)
    assert printed == schema()


def test_what_the_documentation_shows_is_valid() -> None:
    """All settings in the documentation pass the schema."""
    shown = shown_settings()
    assert len(shown) > 5
    for settings in shown:
        VALIDATOR.validate(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"sever": {}},
        {"server": {"prot": 1}},
        {"server": {"keepalive": {"intervall_seconds": 1}}},
        {"server": {"port": "1"}},
        {"server": {"port": 65536}},
        {"server": {"workers": -1}},
        {"decisions": {"models": {"A B": {"provider": "sparrow"}}}},
        {"decisions": {"models": {"a": {"provider": "sparow"}}}},
        {"decisions": {"models": {"a": {"provider": "fixed"}}}},
        {"decisions": {"models": {"a": {"provider": "sparrow", "url": "x"}}}},
        {"store": {"url": "http://x"}},
        {"log": {"level": "loud"}},
        {"operations": {"explanations": 101}},
        {"health": {"interval_seconds": 0}},
    ],
    ids=str,
)
def test_both_refuse(settings: dict[str, Any], tmp_path: Path) -> None:
    """What the schema refuses, the server refuses too."""
    assert list(VALIDATOR.iter_errors(settings))
    file = tmp_path / "plannerd.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(SettingsError):
        load(file)


def test_every_setting_is_in_it_with_its_description() -> None:
    """The schema has every setting of the reference, with the same description."""
    text = json.dumps(schema())
    for path, _, description in reference():
        assert json.dumps(description)[1:-1] in text, path
