"""What a server runs with: its bill of materials, and its licences."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.servers import ROOT


def licences() -> ModuleType:
    """The script."""
    loader = SourceFileLoader("licences", str(ROOT / "scripts" / "licences"))
    module = module_from_spec(spec_from_loader("licences", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def test_the_bill_of_materials(tmp_path: Path) -> None:
    """`make sbom` writes valid CycloneDX with every locked package and its hashes, twice the same."""
    made = []
    for name in ("one.json", "two.json"):
        subprocess.run(["make", "sbom", f"SBOM={tmp_path / name}"], cwd=ROOT, check=True, capture_output=True)
        made.append((tmp_path / name).read_text("utf-8"))
    assert made[0] == made[1]
    data = json.loads(made[0])
    assert JsonStrictValidator(SchemaVersion.from_version(data["specVersion"])).validate_str(made[0]) is None
    components = {component["name"]: component for component in data["components"]}
    lock = (ROOT / "requirements" / "run.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", lock, re.MULTILINE))
    assert len(locked) > 20
    assert set(components) == set(locked)
    for name in locked:
        assert components[name]["externalReferences"][0]["hashes"], name
    assert data["metadata"]["component"]["name"] == "plannerd"


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT AND Apache-2.0", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("BSD License", False),
        ("", False),
    ],
)
def test_what_licences_are_allowed(expression: str, allowed: bool) -> None:
    """All parts of one choice must be allowed, and what nobody said is not."""
    assert licences().is_allowed(expression) is allowed


def test_every_locked_package_is_looked_at() -> None:
    """The script reads every package of the lock, those for one platform with their marker."""
    found = licences().locked()
    assert "grpcio" in dict(found)
    lock = (ROOT / "requirements" / "run.lock").read_text("utf-8")
    assert {name for name, _ in found} == set(re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", lock, re.MULTILINE))
