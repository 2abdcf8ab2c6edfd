"""The command `plannerd`.

Modules that take long to load (grpc, numpy, pydantic) are imported by the commands that need them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from plannerd.commands import config, health, invocations, models, replay, serve
from plannerd.commands.common import FAILED, OK, add_command

if TYPE_CHECKING:
    from plannerd.app import App
    from plannerd.settings import Settings

_EXIT_CODES: Final = """\
exit codes:
  0  done; of serve: stopped by a signal
  1  the server could not start (its port is taken, its address is not safe) or died; a check found something
  2  the command line or the settings are wrong
"""


def main(argv: Sequence[str] | None = None, *, build: Callable[[Settings], App] | None = None) -> int:
    """Run the command.

    Args:
        argv: its arguments; default those of the process.
        build: makes the server from its settings; default `plannerd.app.build`.

    Returns:
        The exit code.
    """
    arguments = _parser(build).parse_args(argv)
    arguments.given = argv
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _parser(build: Callable[[Settings], App] | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plannerd",
        description="A gRPC service that decides which agent runs next.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve.add(commands, build)
    models.add(commands)
    invocations.add(commands)
    health.add(commands)
    replay.add(commands)
    config.add(commands)
    add_command(commands, "version", _version, help="print the version")
    return parser


def _version(_: argparse.Namespace) -> int:
    print(f"plannerd {version('plannerd')}")
    return OK
