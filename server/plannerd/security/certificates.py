"""The server's certificate, its key and the authorities that it trusts, checked before they are used."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from plannerd.security.files import Contents, FileError, WatchedFiles
from plannerd.telemetry.logging import get_logger

_WARN_BEFORE: Final = timedelta(days=14)
_END: Final = re.compile(rb"-----END [A-Z0-9 ]+-----")


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """What TLS needs.

    Attributes:
        chain: the certificate and those that lead to its authority, in PEM.
        key: its private key, in PEM.
        client_authorities: who must have signed a client's certificate, in PEM; None: clients need none.
        not_after: when the certificate expires.
    """

    chain: bytes
    key: bytes
    client_authorities: bytes | None
    not_after: datetime

    def __repr__(self) -> str:
        return f"ServerCertificate(not_after={self.not_after})"


def certificate_files(cert: Path, key: Path, client_ca: Path | None) -> WatchedFiles[ServerCertificate]:
    """The certificate in these files, which may change.

    Raises:
        FileError: they can't be used now.
    """
    files = {"cert_file": cert, "key_file": key}
    if client_ca is not None:
        files["client_ca_file"] = client_ca
    return WatchedFiles("server.tls", files, read_certificate)


def read_certificate(contents: Contents) -> ServerCertificate:
    """The certificate in the contents of `cert_file`, `key_file` and perhaps `client_ca_file`.

    Raises:
        FileError: they are no certificate, no key, or do not belong together.
    """
    chain = _certificates("cert_file", contents["cert_file"])
    key = _private_key(contents["key_file"])
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*spki) != chain[0].public_key().public_bytes(*spki):
        raise FileError("key_file: this is not the key of the first certificate in cert_file")
    authorities = contents.get("client_ca_file")
    if authorities is not None:
        _certificates("client_ca_file", authorities)
    made = ServerCertificate(contents["cert_file"], contents["key_file"], authorities, chain[0].not_valid_after_utc)
    _check_chain(made)
    if made.not_after - datetime.now(UTC) < _WARN_BEFORE:
        get_logger().warning("certificate_expires", section="server.tls", not_after=made.not_after.isoformat())
    return made


def _certificates(name: str, pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
        for certificate in found:
            certificate.public_key()
    except (ValueError, TypeError) as error:
        raise FileError(f"{name}: this is no certificate in PEM, or a part of one") from error
    if pem.count(b"-----BEGIN ") != len(_END.findall(pem)):
        raise FileError(f"{name}: the last certificate is incomplete")
    return found


def _private_key(pem: bytes) -> EllipticCurvePrivateKey | RSAPrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        raise FileError("key_file: the key has a passphrase; give one without") from None
    except Exception:  # noqa: BLE001 (its errors are of many types, and may quote the key)
        raise FileError("key_file: this is no private key in PEM, or a part of one") from None
    if not isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey):
        raise FileError("key_file: the key must be of RSA or of an elliptic curve (ECDSA)")
    return key


def _check_chain(made: ServerCertificate) -> None:
    """Have another TLS library look at the authorities, which it takes from memory alone."""
    if made.client_authorities is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=made.client_authorities.decode())
    except (ssl.SSLError, UnicodeDecodeError):
        raise FileError("client_ca_file: these are no certificates that TLS can use") from None
