"""The files of cases: what a program in another language may rely on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tests.conformance.cases import FOLDER, SCHEMA, decisions_of, files, load, read
from tests.conformance.scripts import MODES, model_name

# Plain scalars that YAML 1.1 and YAML 1.2 understand differently, and numbers that not every language can tell
# from others: a whole number written as a double.
_AMBIGUOUS: Final = re.compile(
    r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|True|TRUE|False|FALSE|Null|NULL|~|=|<<"
    r"|[-+]?0[0-9]+|0[xob].*|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+.*|[0-9]{4}-[0-9]{2}-[0-9]{2}.*"
    r"|[-+]?[0-9]+_[0-9_]*|[-+]?[.0-9]+[eE].*|\+[0-9.]+|[-+]?\.(inf|Inf|INF|nan|NaN|NAN)|[-+]?[0-9]+\.0*|[-+]?\.[0-9]+"
)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(FOLDER)))
def test_schema(path: Path, validator: jsonschema.Draft202012Validator) -> None:
    """Every file has the form of the schema."""
    problems = [f"{problem.json_path}: {problem.message}" for problem in validator.iter_errors(read(path))]
    assert not problems


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(FOLDER)))
def test_yaml(path: Path) -> None:
    """No file has anything that parsers of YAML disagree about, or that is more than data."""
    text = path.read_text("utf-8")
    assert text.isascii()
    odd = [
        f"line {token.start_mark.line + 1}: {getattr(token, 'value', '')}"
        for token in yaml.scan(text)
        if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken)
        or (isinstance(token, yaml.ScalarToken) and token.plain and _AMBIGUOUS.fullmatch(token.value))
    ]
    assert not odd


def test_names() -> None:
    """Every case has an id of its own, and a server can have a model of that name."""
    cases = load()
    assert not [case_id for case_id, count in Counter(case.id for case in cases).items() if count > 1]
    names = [model_name(case, mode) for case in cases for mode in MODES]
    assert len(set(names)) == len(names)
    assert not [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name)]


def test_sentences() -> None:
    """Every case says in one sentence of its own what must be true, and where that comes from."""
    cases = load()
    assert not [case.id for case in cases if not case.data["says"] or not case.data.get("source")]
    assert not [says for says, count in Counter(case.data["says"] for case in cases).items() if count > 1]


def test_steps() -> None:
    """Every case expects something, and its planner is the kind that its folder is named after."""
    for case in load():
        assert case.steps or "init" in case.data, case.id
        assert list(case.data["planner"]) == [case.planner], case.id
        assert not ("error" in case.data.get("init", {}) and case.steps), case.id


def test_answers() -> None:
    """Every decision of a case answers the questions that it expects, unless bad answers are its point."""
    for case in load():
        for step in case.steps:
            for decision in decisions_of(step):
                if "error" in step.get("expect", {}) or not {"questions", "answers"} <= decision.keys():
                    continue
                asked = {item if isinstance(item, str) else item["name"] for item in decision["questions"]}
                assert asked == decision["answers"].keys(), case.id


def test_texts_are_for_strangers() -> None:
    """Sentences end with a full stop and stay on one line."""
    for says in _texts("says"):
        assert "\n" not in says


def _texts(key: str) -> Iterator[Any]:
    for case in load():
        if key in case.data:
            yield case.data[key]
