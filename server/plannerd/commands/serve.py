"""`plannerd serve` runs the server."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from plannerd.commands.common import FAILED, OK, Commands, add_command, add_config, complain, settings_of, wrong

if TYPE_CHECKING:
    from plannerd.app import App
    from plannerd.settings import Settings


def add(commands: Commands, build: Callable[[Settings], App] | None) -> None:
    """Add the command; `build` makes the server, default `plannerd.app.build`."""
    parser = add_command(
        commands,
        "serve",
        partial(_serve, build=build),
        help="run the server",
        description="Run the server until SIGTERM or SIGINT. What is listened on is printed to standard output, one "
        "line an address; the log goes to standard error. Options here win over the environment (PLANNERD_*) and "
        "the file.",
    )
    add_config(parser)
    parser.add_argument("--host", metavar="HOST", help="the address or name to listen on (server.host)")
    parser.add_argument("--port", metavar="N", type=int, help="the port; 0 is a free one (server.port)")
    parser.add_argument(
        "--allow-insecure",
        action="store_true",
        default=None,
        help="listen outside loopback without TLS (server.allow_insecure)",
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (log.level)")
    parser.add_argument("--log-format", metavar="FORMAT", help="json or console (log.format)")


def _serve(arguments: argparse.Namespace, *, build: Callable[[Settings], App] | None) -> int:
    from plannerd.settings import SettingsError

    try:
        settings = settings_of(arguments, _overrides(arguments))
    except SettingsError as error:
        return wrong(error)
    from plannerd.telemetry.logging import configure, get_logger

    configure(settings.log.level, settings.log.format, error_messages=settings.log.error_messages)

    from plannerd.app import BuildError
    from plannerd.app import build as build_app
    from plannerd.transport.listening import ListenError

    try:
        app = (build or build_app)(settings)
    except BuildError as error:
        return wrong(error)
    try:
        asyncio.run(app.serve(_announce))
    except BuildError as error:
        return wrong(error)
    except ListenError as error:
        complain(error)
        return FAILED
    except Exception as error:  # noqa: BLE001 (it is the last thing that the log has)
        get_logger().error("died", exc_info=error)
        return FAILED
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
