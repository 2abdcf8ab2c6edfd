"""Every snippet of the documentation works: Python runs, configurations are accepted, printed numbers are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.markdown import ROOT, Page, markdown_files, read, shown
from tests.docs.snippets import Example, Servers, Surroundings, examples
from tests.support.servers import running_server


def documentation() -> list[Path]:
    """The pages whose snippets are executed."""
    named = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "clients" / "python" / "README.md"]
    return [path for path in markdown_files() if path in named or path.is_relative_to(ROOT / "docs")]


def found() -> list[Example]:
    """The examples of all pages; one that makes no sense fails by itself."""
    return [example for path in documentation() for example in _of(path)]


def _of(path: Path) -> list[Example]:
    try:
        return examples(read(path))
    except ValueError as error:
        return [_Broken(path, str(error))]


class _Broken(Example):
    def __init__(self, path: Path, problem: str) -> None:
        super().__init__()
        self._path = path
        self._problem = problem

    @property
    def name(self) -> str:
        return shown(self._path)

    def run(self, surroundings: Surroundings) -> None:
        pytest.fail(self._problem)


@contextmanager
def _start(config: Mapping[str, Any] | None) -> Iterator[str]:
    with running_server(config=config) as server:
        yield server.target


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers for all snippets."""
    running = Servers(_start, tmp_path_factory.mktemp("scripts"))
    yield running
    running.close()


@pytest.mark.parametrize("example", found(), ids=lambda example: example.name)
def test_snippet(example: Example, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page shows works as it is shown."""
    monkeypatch.chdir(tmp_path)
    example.run(Surroundings(tmp_path, servers.serve))


# --- the harness itself


def page(tmp_path: Path, text: str) -> Page:
    """A page with this text."""
    path = tmp_path / "page.md"
    path.write_text(text, "utf-8")
    return read(path)


def run(tmp_path: Path, text: str) -> None:
    """Execute a page that needs no server."""

    @contextmanager
    def nowhere(script: object) -> Iterator[str]:
        yield "nowhere:1"

    for example in examples(page(tmp_path, text)):
        example.run(Surroundings(tmp_path, nowhere))


def test_each_python_block_has_a_namespace_of_its_own(tmp_path: Path) -> None:
    """A name of one block is unknown in the next."""
    with pytest.raises(NameError):
        run(tmp_path, "```python\na = 1\n```\n\n```python\nprint(a)\n```\n")


def test_a_continuation_shares_the_namespace(tmp_path: Path) -> None:
    """A marked block sees what the block before it made, and its output is compared."""
    text = "```python\na = 1\n```\n\n<!-- snippet: continue -->\n```python\nprint(a)\n```\n\n<!-- snippet: output -->\n"
    run(tmp_path, text + "```text\n1\n```\n")
    with pytest.raises(AssertionError, match="printed instead"):
        run(tmp_path, text + "```text\n2\n```\n")


def test_hidden_lines_run_first(tmp_path: Path) -> None:
    """Set-up lines in a comment are run before the block that a reader sees."""
    run(tmp_path, "<!-- snippet: hidden\na = 1\n-->\n```python\nassert a == 1\n```\n")


def test_the_address_is_replaced(tmp_path: Path) -> None:
    """Pages write the default address, and the snippet gets the one of the server that runs."""
    run(tmp_path, '```python\nassert "localhost:50051" == "nowhere" + ":1"\n```\n')


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"what": 1}\n```\n',
        "<!-- snippet: continue -->\n```python\n```\n",
        "<!-- snippet: output -->\n```text\n```\n",
        "<!-- snippet: nonsense -->\n```python\n```\n",
        "<!-- snippet: skip -->\n```python\n```\n",
        "<!-- snippet: continue -->\nNo block.\n",
        "```python\nnot closed\n",
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    """A block that nobody would execute, or a mark without a meaning, is an error and not passed over."""
    with pytest.raises(ValueError, match=r"."):
        examples(page(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        '<!-- snippet: message SchedulerConfig -->\n```json\n{"goals": "x"}\n```\n',
        '```json\n{"invocation_id": "i", "scheduler": {}}\n```\n',
        "```yaml\nserver: {ports: 1}\n```\n",
        "<!-- snippet: model -->\n```yaml\nsteps: 1\n```\n",
        "<!-- snippet: run -->\n```sh\nfalse\n```\n",
    ],
)
def test_what_does_not_work_fails(tmp_path: Path, text: str) -> None:
    """Configurations that a server would refuse and commands that fail are found."""
    with pytest.raises(Exception, match=r"."):
        run(tmp_path, text)
