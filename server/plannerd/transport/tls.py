"""TLS as grpc takes it: the certificate of each new connection is the one that the files have then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import grpc

from plannerd.security.files import WatchedFiles

if TYPE_CHECKING:
    from plannerd.security.certificates import ServerCertificate


def server_credentials(files: WatchedFiles[ServerCertificate]) -> grpc.ServerCredentials:
    """The credentials of one port, which follow `files`. Connections that exist stay as they are."""
    given = files.version
    initial = files.current

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Asked by grpc, in a thread of its own, before each handshake; None: as before."""
        nonlocal given
        version = files.version
        if version == given:
            return None
        given = version
        return _configuration(files.current)

    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", changed)  # its type forgets None
    require_client = initial.client_authorities is not None
    return grpc.dynamic_ssl_server_credentials(_configuration(initial), fetch, require_client)


def _configuration(certificate: ServerCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], certificate.client_authorities
    )
