"""The command line, as far as it needs no running server."""

import json
import subprocess
import sys
from importlib.metadata import version
from typing import cast

import pytest

from plannerd.app import App
from plannerd.cli import main
from plannerd.settings import reference_table
from tests.support.servers import run_plannerd
from tests.support.services import captured_log

SLOW = ("grpc", "google.protobuf", "numpy", "pydantic", "sparrow_decider", "yaml")


@pytest.mark.parametrize(
    "arguments", [["version"], ["--help"], ["serve", "--help"], ["config", "--help"], ["models", "--help"]]
)
def test_simple_commands_are_quick(arguments: list[str]) -> None:
    """Version and help load none of the large libraries."""
    code = f"""
import json, sys
from plannerd.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
print(json.dumps([name for name in {SLOW!r} if name in sys.modules]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == []


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the package."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"plannerd {version('plannerd')}\n"


def test_the_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of the command says what each exit code means."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "exit codes:\n  0  " in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["serve", "--prot", "1"], ["serve", "--port", "x"], ["config"], ["models"]]
)
def test_wrong_command_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong command line ends with 2 and says what is wrong."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_options_reach_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of serve are settings, and checked like them."""
    assert main(["serve", "--port", "-1", "--log-level", "x", "--log-format", "y", "--host", ""]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["server.host", "server.port", "log.level", "log.format"]
    assert all(line.endswith("(on the command line)") for line in lines)


class DyingApp:
    """A server that dies of a bug."""

    async def serve(self, announce: object) -> None:
        raise RuntimeError("tangerine")


def test_a_server_that_dies(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that dies of a bug ends with 1, and the log has the cause, without its text and as one line."""
    with captured_log():
        assert main(["serve"], build=lambda settings: cast("App", DyingApp())) == 1
    [line] = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"]) == ("died", "error")
    assert event["exception"].endswith("RuntimeError")


def test_a_part_that_can_not_be_made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that can't be loaded ends with 2 and one line that has the path of its setting."""

    def missing(model: str | None, **settings: object) -> object:
        raise RuntimeError("the package differs")

    monkeypatch.setattr("plannerd.app.SparrowModel", missing)
    with captured_log():
        assert main(["config", "check"]) == 2
    assert capsys.readouterr().err == "plannerd: decisions.models.sparrow: the package differs\n"


def test_the_reference_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the table of settings."""
    assert main(["config", "reference"]) == 0
    assert capsys.readouterr().out == reference_table() + "\n"


def test_config_check() -> None:
    """Without a file the settings are fine, and nothing but that is said."""
    ended = run_plannerd("config", "check")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the settings are fine\n", "")


def test_a_reader_that_leaves_is_no_traceback() -> None:
    """Output that nobody reads any more ends the command quietly."""
    process = subprocess.Popen(
        [sys.executable, "-m", "plannerd", "config", "reference"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait()
