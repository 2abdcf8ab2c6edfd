"""`plannerd health` asks a running server whether it is well: for people, and for probes that speak no TLS."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from plannerd.commands.common import FAILED, OK, Commands, add_command, add_config, complain, quiet_grpc, wrong
from plannerd.commands.reaching import add_connection, connection_of, mismatch

if TYPE_CHECKING:
    from plannerd.transport.connecting import Connection

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (what a server listens on, to be asked elsewhere)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "health",
        _health,
        help="ask a running server whether it is well",
        description="Ask a server's health service; no token is needed. Ends with 0 if it is SERVING, with 1 if it is "
        "not or can't be reached. Without --target it asks the server that the settings of file and environment "
        "describe, on this machine; where that speaks TLS, by the server's own certificate.",
    )
    add_config(parser)
    add_connection(parser, target=None, timeout=5.0)
    parser.add_argument(
        "--service",
        metavar="NAME",
        default="",
        help="of a part: liveness, plannerd.store, plannerd.models/NAME, planner.v1.PlannerService; default: the whole",
    )


def _health(arguments: argparse.Namespace) -> int:
    quiet_grpc()
    problem = mismatch(arguments)
    if problem is not None:
        return wrong(problem)
    from plannerd.transport.health_client import HealthError, status_of

    try:
        connection = _own(arguments) if arguments.target is None else connection_of(arguments)
        status = status_of(connection, arguments.service)
    except OSError as error:
        return wrong(f"{error.filename}: {error.strerror}")
    except ValueError as error:
        return wrong(error)
    except HealthError as error:
        complain(error)
        return FAILED
    print(status)
    return OK if status == "SERVING" else FAILED


def _own(arguments: argparse.Namespace) -> Connection:
    """How the server that file and environment describe is reached from its own machine.

    Settings take longer to load than the rest of this command, so that a target in the options spares a probe half
    of its cost.

    Its certificate is trusted as it is, whoever signed it and whichever of its names it is reached by: only the server
    has the key. Where clients must have one, it is shown as ours too, unless another one is given.

    Raises:
        OSError: the certificate can't be read.
        ValueError: it is none, or the settings are wrong.
    """
    from plannerd.settings import SettingsError, load
    from plannerd.transport.connecting import Connection

    try:
        server = load(arguments.config).server
    except SettingsError as error:
        raise ValueError(error) from None
    host = _EVERYWHERE.get(server.host, server.host)
    target = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
    tls = server.tls
    if tls.cert_file is None:
        return Connection(target, timeout=arguments.timeout)
    shows_own = tls.client_ca_file is not None and arguments.cert is None
    return Connection(
        target,
        tls=True,
        ca=arguments.ca or tls.cert_file,
        cert=tls.cert_file if shows_own else arguments.cert,
        key=tls.key_file if shows_own else arguments.key,
        server_name=arguments.server_name or _name_in(tls.cert_file),
        timeout=arguments.timeout,
    )


def _name_in(file: Path) -> str | None:
    """A name that the certificate in a file is for; None: it has none.

    Raises:
        OSError: it can't be read.
        ValueError: there is no certificate in it.
    """
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(_first(file))
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    # No host is called "*": any will do that the pattern covers.
    return found[0].replace("*", "plannerd", 1) if found else None


def _first(file: Path) -> bytes:
    read = file.read_bytes()
    found = re.search(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", read, re.DOTALL)
    if found is None:
        raise ValueError(f"{file}: there is no certificate in it")
    return found[0]
