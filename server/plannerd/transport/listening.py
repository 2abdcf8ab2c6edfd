"""Where the server listens: addresses of a host, and whether their port can be had.

grpc binds what it can of a name and is silent about the rest, so a second server on `localhost` would take
over ::1 while the first one keeps 127.0.0.1. Here a name is resolved first, and each address is tried.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

IpAddress: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"

# A name may stand for an address of a kind that this machine does not have; usually ::1.
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class ListenError(Exception):
    """The server can't listen as it is told to. Its text is for the operator."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address to listen on."""

    ip: IpAddress

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.ip.is_loopback

    def with_port(self, port: int) -> str:
        """`127.0.0.1:50051` or `[::1]:50051`."""
        return f"[{self.ip}]:{port}" if self.ip.version == 6 else f"{self.ip}:{port}"

    def try_port(self, port: int, reuse: bool) -> None:
        """Bind the port and let it go again.

        Raises:
            OSError: it can't be had.
        """
        self._bind(port, reuse).close()

    def hold(self, port: int) -> socket.socket:
        """Bind the port for processes that share it, without listening.

        Raises:
            OSError: it can't be had.
        """
        return self._bind(port, reuse=True)

    def _bind(self, port: int, reuse: bool) -> socket.socket:
        bound = socket.socket(socket.AF_INET6 if self.ip.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind((str(self.ip), port))
        except BaseException:
            bound.close()
            raise
        return bound


async def resolve(host: str) -> tuple[Address, ...]:
    """The addresses of `host`, which may itself be one.

    Raises:
        ListenError: there are none.
    """
    try:
        return (Address(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))),)
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"server.host: '{host}' has no address: {error}") from None
    return tuple(Address(ipaddress.ip_address(text)) for text in dict.fromkeys(str(entry[4][0]) for entry in found))


def check_exposure(host: str, addresses: Sequence[Address], *, tls: bool, allow_insecure: bool) -> bool:
    """Whether `addresses` reach beyond this machine; then only with TLS, or if the operator wants that without.

    Raises:
        ListenError: the operator does not.
    """
    exposed = not all(address.is_loopback for address in addresses)
    if exposed and not tls and not allow_insecure:
        raise ListenError(
            f"server.host: '{host}' can be reached from other machines, and there is no TLS to protect it. Listen on "
            "127.0.0.1, give server.tls.cert_file and key_file, or set server.allow_insecure if whoever can reach the "
            "port may use the server"
        )
    return exposed


def usable(host: str, addresses: Sequence[Address], port: int, reuse: bool) -> tuple[Address, ...]:
    """Those of `addresses` that this machine has, all of them with a free `port`.

    Raises:
        ListenError: there are none, or the port is taken on one of them.
    """
    good = []
    missing: OSError | None = None
    for address in addresses:
        try:
            address.try_port(port, reuse)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise ListenError(_explained(address, port, error)) from None
            missing = error
        else:
            good.append(address)
    if not good:
        why = os.strerror(missing.errno or 0).lower() if missing else "no address"
        raise ListenError(f"server.host: '{host}' is not an address of this machine ({why})")
    return tuple(good)


def _explained(address: Address, port: int, error: OSError) -> str:
    where = address.with_port(port)
    if error.errno == errno.EADDRINUSE:
        return f"server.port: {where} is in use, maybe by another plannerd; choose another port, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"server.port: {where} needs more rights than this process has"
    return f"can't listen on {where}: {error.strerror}"
