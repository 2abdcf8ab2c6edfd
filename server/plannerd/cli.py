"""The command `plannerd`.

Modules that take long to load (grpc, numpy, pydantic) are imported by the commands that need them.
"""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plannerd.app import App
    from plannerd.settings import Settings

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2

_EXIT_CODES: Final = """\
exit codes:
  0  done; of serve: stopped by a signal
  1  the server could not start (its port is taken, its address is not safe) or died
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
    arguments = _parser().parse_args(argv)
    try:
        match arguments.command:
            case "serve":
                return _serve(arguments, build)
            case "config":
                return _reference() if arguments.config_command == "reference" else _check(arguments)
            case _:
                print(f"plannerd {version('plannerd')}")
                return OK
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plannerd",
        description="A gRPC service that decides which agent runs next.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    serve = commands.add_parser(
        "serve",
        help="run the server",
        description="Run the server until SIGTERM or SIGINT. What is listened on is printed to standard output, one "
        "line an address; the log goes to standard error. Options here win over the environment (PLANNERD_*) and "
        "the file.",
        allow_abbrev=False,
    )
    _add_config(serve)
    serve.add_argument("--host", metavar="HOST", help="the address or name to listen on (server.host)")
    serve.add_argument("--port", metavar="N", type=int, help="the port; 0 is a free one (server.port)")
    serve.add_argument(
        "--allow-insecure",
        action="store_true",
        default=None,
        help="listen outside loopback without TLS (server.allow_insecure)",
    )
    serve.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (log.level)")
    serve.add_argument("--log-format", metavar="FORMAT", help="json or console (log.format)")

    commands.add_parser("version", help="print the version", allow_abbrev=False)

    config = commands.add_parser("config", help="check or list the settings", allow_abbrev=False)
    config_commands = config.add_subparsers(dest="config_command", metavar="COMMAND", required=True)
    check = config_commands.add_parser(
        "check",
        help="say whether a server would start with these settings",
        description="Read the file and the environment and make all parts of a server, without listening.",
        allow_abbrev=False,
    )
    _add_config(check)
    config_commands.add_parser("reference", help="print a table of all settings, in Markdown", allow_abbrev=False)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="a YAML file with settings")


def _serve(arguments: argparse.Namespace, build: Callable[[Settings], App] | None) -> int:
    _quiet_grpc()
    from plannerd.settings import SettingsError, load
    from plannerd.telemetry.logging import configure, get_logger

    try:
        settings = load(arguments.config, _overrides(arguments))
    except SettingsError as error:
        return _wrong(error)
    configure(settings.log.level, settings.log.format, error_messages=settings.log.error_messages)

    from plannerd.app import BuildError
    from plannerd.app import build as build_app
    from plannerd.transport.listening import ListenError

    try:
        app = (build or build_app)(settings)
    except BuildError as error:
        return _wrong(error)
    try:
        asyncio.run(app.serve(_announce))
    except ListenError as error:
        print(f"plannerd: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:  # noqa: BLE001 (it is the last thing that the log has)
        get_logger().error("died", exc_info=error)
        return FAILED
    return OK


def _check(arguments: argparse.Namespace) -> int:
    _quiet_grpc()
    from plannerd.settings import SettingsError, load

    try:
        settings = load(arguments.config)
    except SettingsError as error:
        return _wrong(error)

    from plannerd.app import BuildError, build

    try:
        app = build(settings)
    except BuildError as error:
        return _wrong(error)
    asyncio.run(app.close())
    print("the settings are fine")
    return OK


def _reference() -> int:
    from plannerd.settings import reference_table

    print(reference_table())
    return OK


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "server": {"host": arguments.host, "port": arguments.port, "allow_insecure": arguments.allow_insecure},
        "log": {"level": arguments.log_level, "format": arguments.log_format},
    }
    return {
        section: {name: value for name, value in values.items() if value is not None}
        for section, values in given.items()
    }


def _announce(targets: tuple[str, ...]) -> None:
    with suppress(OSError):
        for target in targets:
            print(f"listening on {target}", flush=True)


def _wrong(error: Exception) -> int:
    lines = str(error).splitlines()
    for line in lines:
        print(f"plannerd: {line}", file=sys.stderr)
    return WRONG


def _quiet_grpc() -> None:
    """Keep the C core of grpc from writing lines of its own into the log, unless somebody asked for them."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
