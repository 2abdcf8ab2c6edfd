"""Who calls: from what came with a call to an identity."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plannerd.security.errors import CredentialsError
from plannerd.security.files import WatchedFiles
from plannerd.security.identity import Caller, CertificateName, Credentials
from plannerd.security.jwt_tokens import JwtVerifier, Key
from plannerd.security.tokens import Tokens, bad_identity, digest

MAX_TOKEN: Final = 8192
"""Characters of a token; gRPC takes little more."""

_MAX_CACHED: Final = 10_000
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class CertificateRules:
    """How a client's certificate says who it is.

    Attributes:
        name: the kind of name that counts.
        prefix: is put before it.
    """

    name: CertificateName
    prefix: str = ""


class Authenticator:
    """Finds out who calls, by any of the ways that it is given.

    A token that was good costs next to nothing again, until it expires or the files change.

    Args:
        tokens: static tokens.
        keys: the keys that `jwt` checks with.
        jwt: checks tokens that somebody else signed.
        certificate: how a client's certificate says who it is; None: it does not.
        operators: the identities of operators.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        tokens: WatchedFiles[Tokens] | None = None,
        keys: WatchedFiles[Sequence[Key]] | None = None,
        jwt: JwtVerifier | None = None,
        certificate: CertificateRules | None = None,
        operators: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self._jwt = jwt
        self._certificate = certificate
        self._watched: tuple[WatchedFiles[Any], ...] = tuple(files for files in (tokens, keys) if files is not None)
        self._operators = frozenset(operators)
        self._clock = clock
        self._known: dict[bytes, tuple[Caller, float]] = {}
        self._versions = self._now_versions()

    @property
    def reads_certificates(self) -> bool:
        """Whether the names of certificates are needed."""
        return self._certificate is not None

    @property
    def watched(self) -> tuple[WatchedFiles[Any], ...]:
        """The files that may change."""
        return self._watched

    def authenticate(self, credentials: Credentials) -> Caller:
        """Who calls.

        Raises:
            CredentialsError: it can't be told.
        """
        if credentials.authorization:
            if self._tokens is None and self._jwt is None:
                raise CredentialsError(
                    "unexpected", "this server takes no tokens; clients are known by their certificates"
                )
            return self._by_token(_bearer(credentials.authorization))
        if self._certificate is not None:
            return self._by_certificate(self._certificate, credentials.certificate or {})
        raise CredentialsError(
            "missing", "this server needs a bearer token: send 'authorization: Bearer TOKEN' as metadata"
        )

    def _by_token(self, token: str) -> Caller:
        versions = self._now_versions()
        if versions != self._versions:
            self._versions = versions
            self._known.clear()
        key = digest(token)
        known = self._known.get(key)
        if known is not None:
            caller, expires = known
            if self._clock() < expires:
                return caller
            del self._known[key]
        caller, expires = self._check(token, key)
        if len(self._known) >= _MAX_CACHED:
            del self._known[next(iter(self._known))]
        self._known[key] = (caller, expires)
        return caller

    def _check(self, token: str, key: bytes) -> tuple[Caller, float]:
        if self._tokens is not None:
            identity = self._tokens.current.get(key)
            if identity is not None:
                return self._caller(identity), _NEVER
        if self._jwt is not None and (self._tokens is None or token.count(".") == 2):
            verified = self._jwt.verify(token)
            return self._caller(verified.identity), verified.expires
        raise CredentialsError("unknown", "this server does not know the token")

    def _by_certificate(self, rules: CertificateRules, names: Mapping[str, Sequence[str]]) -> Caller:
        found = names.get(rules.name, ())
        if len(found) != 1:
            also = " and no bearer token came with the call" if self._tokens or self._jwt else ""
            raise CredentialsError(
                "certificate",
                f"the client's certificate must have exactly one name of the kind '{rules.name}', and has {len(found)}"
                + also,
            )
        identity = rules.prefix + found[0]
        problem = bad_identity(identity)
        if problem:
            raise CredentialsError("certificate", f"the name in the client's certificate {problem}")
        return self._caller(identity)

    def _caller(self, identity: str) -> Caller:
        return Caller(identity, identity in self._operators)

    def _now_versions(self) -> tuple[int, ...]:
        return tuple(files.version for files in self._watched)


def _bearer(values: Sequence[str]) -> str:
    """The token in the metadata `authorization`."""
    if len(values) > 1:
        raise CredentialsError("malformed", "the metadata 'authorization' was sent more than once")
    scheme, _, token = values[0].partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or " " in token:
        raise CredentialsError("malformed", "the metadata 'authorization' must be 'Bearer' and a token")
    if len(token) > MAX_TOKEN:
        raise CredentialsError("malformed", f"the token has {len(token)} characters; {MAX_TOKEN} are allowed")
    return token
