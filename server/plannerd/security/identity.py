"""Who calls, and what a call brings to prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

CertificateName: TypeAlias = Literal["uri", "dns", "email", "common_name", "subject"]
"""Which name in a client's certificate says who it is."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Attributes:
        identity: what invocations are kept apart by; empty without authentication.
        operator: whether it may use the operator's service.
    """

    identity: str = ""
    operator: bool = False


NOBODY: Final = Caller()
"""Everybody, on a server without authentication."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What came with a call.

    Attributes:
        authorization: the values of that name in its metadata.
        certificate: the names in the certificate of its connection, by their kind.
    """

    authorization: Sequence[str] = ()
    certificate: Mapping[str, Sequence[str]] | None = None


class Authentication(Protocol):
    """Finds out who calls."""

    @property
    def reads_certificates(self) -> bool:
        """Whether `Credentials.certificate` is needed."""

    def authenticate(self, credentials: Credentials) -> Caller:
        """Who calls.

        Raises:
            CredentialsError: it can't be told.
        """
