"""The options by which a command reaches a running server."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from plannerd.transport.connecting import Connection

TARGET: Final = "127.0.0.1:50051"


def add_connection(parser: argparse.ArgumentParser, *, target: str | None, timeout: float) -> None:
    """Add the options.

    Args:
        parser: of the command.
        target: the default; None: the command finds it elsewhere.
        timeout: the default, in seconds.
    """
    default = f"({target})" if target else "(that of the settings, which then say how to use TLS too)"
    parser.add_argument("--target", metavar="HOST:PORT", default=target, help=f"the server {default}")
    parser.add_argument("--tls", action="store_true", help="use TLS")
    parser.add_argument("--ca", metavar="FILE", type=Path, help="certificates to trust (PEM); implies --tls")
    parser.add_argument("--cert", metavar="FILE", type=Path, help="an own certificate (PEM); implies --tls")
    parser.add_argument("--key", metavar="FILE", type=Path, help="its key (PEM)")
    parser.add_argument(
        "--server-name", metavar="NAME", help="what the server's certificate must say, where it is not the host"
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=timeout, help=f"of one call ({timeout:g})")


def mismatch(arguments: argparse.Namespace) -> str | None:
    """What does not go together, or None."""
    if (arguments.cert is None) is not (arguments.key is None):
        return "--cert and --key: give both or neither"
    if not arguments.timeout > 0:
        return "--timeout must be above 0"
    return None


def connection_of(arguments: argparse.Namespace) -> Connection:
    """How the options say that the server is reached."""
    from plannerd.transport.connecting import Connection

    return Connection(
        arguments.target,
        tls=arguments.tls or any((arguments.ca, arguments.cert, arguments.server_name)),
        ca=arguments.ca,
        cert=arguments.cert,
        key=arguments.key,
        server_name=arguments.server_name,
        token_file=getattr(arguments, "token_file", None),
        timeout=arguments.timeout,
    )
