"""Links lead somewhere, and files, commands and settings that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from plannerd.settings import reference
from plannerd.telemetry.names import Attribute
from tests.docs.markdown import ROOT, Page, markdown_files, read, shown

PAGES: Final = markdown_files()

# A path of this repository, as pages write it: it starts with one of the folders at the top, or is a file there.
_FOLDERS: Final = frozenset(
    {
        ".ci",
        "benchmarks",
        "clients",
        "demo",
        "deploy",
        "docs",
        "examples",
        "helm",
        "protos",
        "requirements",
        "scripts",
        "server",
        "tests",
    }
)
_PATH: Final = re.compile(r"[A-Za-z0-9_.\-*{},/]+")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_MAKE: Final = re.compile(r"(?:^|[\s`])make ((?:-\S+ +)*)(?P<target>[a-z][a-z-]*)")
_TARGET: Final = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


def pages() -> list[Page]:
    """All pages."""
    return [read(path) for path in PAGES]


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link names a file or folder of the repository, every anchor a heading."""
    page = read(path)
    broken = [f"line {line}: {target}" for line, target in page.links if not _resolves(page, target)]
    assert not broken, f"{shown(path)}: {broken}"


def _resolves(page: Page, target: str) -> bool:
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return True  # an address; tests run without a network
    name, _, anchor = target.partition("#")
    path = page.path if not name else (page.path.parent / name).resolve()
    if not path.exists() or not path.is_relative_to(ROOT):
        return False
    return not anchor or (path.suffix == ".md" and anchor in read(path).anchors)


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_paths_exist(path: Path) -> None:
    """Every path of this repository in backticks exists; `*` and `{a,b}` stand for what they match."""
    page = read(path)
    missing = [f"line {line}: {span}" for line, span in page.spans if _is_path(span) and not _exists(span)]
    assert not missing, f"{shown(path)}: {missing}"


def _is_path(span: str) -> bool:
    if not _PATH.fullmatch(span) or "..." in span:
        return False
    return "/" in span and span.split("/", maxsplit=1)[0] in _FOLDERS


def _exists(span: str) -> bool:
    return all(any(ROOT.glob(name.rstrip("/"))) for name in _alternatives(span))


def _alternatives(span: str) -> list[str]:
    found = _BRACES.search(span)
    if found is None:
        return [span]
    return [
        name
        for part in found[1].split(",")
        for name in _alternatives(f"{span[: found.start()]}{part}{span[found.end() :]}")
    ]


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_make_targets_exist(path: Path) -> None:
    """Every `make something`, in backticks or in a block of commands, is a target of the Makefile."""
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
    checks = re.search(r"^CHECKS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    targets |= set(checks[1].split()) if checks else set()
    page = read(path)
    commands = [(line, span) for line, span in page.spans if span.startswith("make ")]
    for block in page.blocks:
        if block.language in {"bash", "console", "sh", "shell"}:
            commands += [(block.line + at, text) for at, text in enumerate(block.text.splitlines())]
    unknown = [
        f"line {line}: {found['target']}"
        for line, text in commands
        for found in _MAKE.finditer(text)
        if found["target"] not in targets
    ]
    assert not unknown, f"{shown(path)}: {unknown}"


@pytest.mark.parametrize("path", PAGES, ids=shown)
def test_settings_exist(path: Path) -> None:
    """Every `section.setting` in backticks is a setting of the server, or an attribute that telemetry has."""
    known = {".".join(setting) for setting, _, _ in reference()}
    sections = {name.split(".")[0] for name in known}
    known |= {attribute.value for attribute in Attribute}
    known |= {name.rsplit(".", count)[0] for name in known for count in range(1, name.count(".") + 1)}
    unknown = [
        f"line {line}: {span}"
        for line, span in read(path).spans
        if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", span)
        and span.split(".")[0] in sections
        and span.rsplit(".", 1)[-1] not in {"py", "md", "yaml", "yml", "json"}
        and not _is_setting(span, known)
    ]
    assert not unknown, f"{shown(path)}: {unknown}"


def _is_setting(span: str, known: set[str]) -> bool:
    # The name of a model stands where the reference has NAME.
    return span in known or re.sub(r"^(decisions\.models)\.[a-z0-9_-]+", r"\1.NAME", span) in known


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    """docs/README.md links to every page below docs/."""
    index = read(ROOT / "docs" / "README.md")
    linked = {(index.path.parent / target.partition("#")[0]).resolve() for _, target in index.links}
    missing = [
        shown(path) for path in PAGES if path.is_relative_to(ROOT / "docs") and path not in {*linked, index.path}
    ]
    assert not missing


def test_the_parts_of_this_test_find_something() -> None:
    """A change of style on the pages must not make these tests look at nothing."""
    assert any(list(page.links) for page in pages())
    assert any(_is_path(span) for page in pages() for _, span in page.spans)


@pytest.mark.parametrize(
    ("span", "exists"),
    [
        ("server/plannerd/planners/{router,cascade}/options.py", True),
        ("protos/planner/v1/*.proto", True),
        ("tests/unit/", True),
        ("server/plannerd/planners/{router,oracle}/options.py", False),
    ],
)
def test_patterns_of_paths(span: str, exists: bool) -> None:
    """Braces and stars are expanded, and each alternative must exist."""
    assert _is_path(span)
    assert _exists(span) is exists
