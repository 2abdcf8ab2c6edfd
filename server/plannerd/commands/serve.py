"""`plannerd serve` runs the server."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from plannerd.commands.common import FAILED, OK, Commands, add_command, add_config, complain, settings_of, wrong

if TYPE_CHECKING:
    from plannerd.app import App
    from plannerd.settings import Settings

# What a worker may take to end beyond what its settings allow, before it is killed.
_WORKER_SECONDS: Final = 15.0


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
    parser.add_argument(
        "--workers", metavar="N", type=int, help="how many processes serve; 0 is one for each core (server.workers)"
    )
    # How a parent starts its workers.
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (log.level)")
    parser.add_argument("--log-format", metavar="FORMAT", help="json or console (log.format)")


def _serve(arguments: argparse.Namespace, *, build: Callable[[Settings], App] | None) -> int:
    from plannerd.settings import SettingsError

    try:
        settings = settings_of(arguments, _overrides(arguments))
    except SettingsError as error:
        return wrong(error)
    from plannerd.telemetry.logging import configure, get_logger

    configure(
        settings.log.level,
        settings.log.format,
        error_messages=settings.log.error_messages,
        worker=arguments.worker,
    )
    if arguments.worker is None and settings.server.workers != 1:
        return _serve_by_workers(settings, arguments.given)

    from plannerd.app import BuildError, StartError
    from plannerd.app import build as build_app
    from plannerd.transport.listening import ListenError

    try:
        app = (build or build_app)(settings)
    except BuildError as error:
        return wrong(error)
    announce = _announce
    if arguments.worker is not None:
        from plannerd.workers import end_with_parent

        threading.Thread(target=end_with_parent, daemon=True).start()
        announce = _tell_parent
    try:
        asyncio.run(app.serve(announce))
    except BuildError as error:
        return wrong(error)
    except (ListenError, StartError) as error:
        complain(error)
        return FAILED
    except Exception as error:  # noqa: BLE001 (it is the last thing that the log has)
        get_logger().error("died", exc_info=error)
        return FAILED
    return OK


def _serve_by_workers(settings: Settings, given: Sequence[str] | None) -> int:
    """Start workers, each of which serves as one process would."""
    from plannerd.telemetry.logging import get_logger
    from plannerd.transport.listening import ListenError, check_exposure, resolve, usable
    from plannerd.workers import Workers, cores, own_command, reserve

    server = settings.server
    if settings.store.url is None:
        get_logger().warning(
            "workers_without_store",
            detail="each worker has a memory of its own: a client that meets another one goes on from its state",
        )

    async def serve(stack: ExitStack) -> int:
        addresses = await resolve(server.host)
        tls = server.tls.cert_file is not None
        check_exposure(server.host, addresses, tls=tls, allow_insecure=server.allow_insecure)
        addresses = usable(server.host, addresses, server.port, server.reuse_port)
        port = reserve(stack, addresses, server.port)
        patience = server.drain_delay_seconds + server.grace_period_seconds + _WORKER_SECONDS
        patience += 2 * settings.telemetry.flush_seconds
        return await Workers(own_command(given), server.workers or cores(), port, patience).run(_announce)

    try:
        with ExitStack() as stack:
            return asyncio.run(serve(stack))
    except ListenError as error:
        complain(error)
        return FAILED


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "server": {
            "host": arguments.host,
            "port": arguments.port,
            "allow_insecure": arguments.allow_insecure,
            "workers": arguments.workers,
            "reuse_port": True if arguments.worker is not None else None,
        },
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


def _tell_parent(targets: tuple[str, ...]) -> None:
    """Tell the process that started this one what is listened on: one line."""
    with suppress(OSError):
        print(*targets, flush=True)
