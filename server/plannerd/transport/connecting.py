"""How a command of `plannerd` reaches a running server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a server.

    Attributes:
        target: `HOST:PORT`.
        tls: whether to use TLS.
        ca: certificates to trust, in PEM; None: those that gRPC brings.
        cert: an own certificate, in PEM.
        key: its key.
        server_name: the name that the server's certificate must have; None: the host of the target.
        token_file: a file with the bearer token.
        timeout: seconds that one call may take.
    """

    target: str
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    token_file: Path | None = None
    timeout: float = 60.0

    def channel(self) -> grpc.Channel:
        """A channel to the server, for the caller to close.

        Raises:
            OSError: a file can't be read.
        """
        if not self.tls:
            return grpc.insecure_channel(self.target)
        read = [None if file is None else file.read_bytes() for file in (self.ca, self.key, self.cert)]
        options = [] if self.server_name is None else [("grpc.ssl_target_name_override", self.server_name)]
        return grpc.secure_channel(self.target, grpc.ssl_channel_credentials(*read), options)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call carries.

        Raises:
            OSError: the file with the token can't be read.
        """
        if self.token_file is None:
            return ()
        return (("authorization", f"Bearer {self.token_file.read_text('utf-8').strip()}"),)
