"""What the settings say about TLS and callers, put together: the part of the composition root that is about them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plannerd.security.files import WatchedFiles
from plannerd.settings import Settings
from plannerd.settings.security import AuthSettings
from plannerd.transport.admission import Admission
from plannerd.transport.protection import Protection

if TYPE_CHECKING:
    from plannerd.security.authenticator import Authenticator


def protection_of(settings: Settings) -> Protection:
    """TLS and who may call.

    Raises:
        FileError: a file can't be used.
    """
    tls, auth = settings.server.tls, settings.auth
    certificate = authenticator = None
    watched: list[tuple[float, Sequence[WatchedFiles[Any]]]] = []
    # Loaded only where they are used: the libraries of cryptography are large.
    if tls.cert_file is not None and tls.key_file is not None:
        from plannerd.security.certificates import certificate_files  # noqa: PLC0415

        certificate = certificate_files(tls.cert_file, tls.key_file, tls.client_ca_file)
        watched.append((tls.reload_seconds, [certificate]))
    if auth.used:
        authenticator = _authenticator(auth)
        watched.append((auth.reload_seconds, authenticator.watched))
    return Protection(certificate, Admission(authenticator, settings.limits.max_calls_per_identity), watched)


def _authenticator(auth: AuthSettings) -> Authenticator:
    """Finds out who calls.

    Raises:
        FileError: a file can't be used.
    """
    from plannerd.security.authenticator import Authenticator, CertificateRules  # noqa: PLC0415
    from plannerd.security.jwt_tokens import JwtRules, JwtVerifier, key_file  # noqa: PLC0415
    from plannerd.security.tokens import token_file  # noqa: PLC0415

    keys = verifier = None
    if auth.jwt.keys_file is not None:
        algorithms = frozenset[str](auth.jwt.algorithms)
        keys = key_file(auth.jwt.keys_file, algorithms)
        rules = JwtRules(
            issuer=auth.jwt.issuer or "",
            audience=auth.jwt.audience,
            algorithms=algorithms,
            identity_claim=auth.jwt.identity_claim,
            identity_prefix=auth.jwt.identity_prefix,
            leeway=auth.jwt.leeway_seconds,
        )
        verifier = JwtVerifier(keys, rules, time.time)
    name = auth.client_certificate
    return Authenticator(
        tokens=token_file(auth.tokens_file) if auth.tokens_file is not None else None,
        keys=keys,
        jwt=verifier,
        certificate=CertificateRules(name, auth.client_certificate_prefix) if name is not None else None,
        operators=auth.operators,
    )
