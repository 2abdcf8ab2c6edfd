"""Certificates, tokens and their files, and servers that are protected by them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from plannerd.protection import protection_of
from plannerd.settings import Settings
from plannerd.transport.protection import Protection

ISSUER = "https://login.example"
AUDIENCE = "plannerd"
ALICE_TOKEN = "alice-0123456789abcdef"
BOB_TOKEN = "bob-0123456789abcdef"
OPS_TOKEN = "ops-0123456789abcdef"
SOON = 0.05
"""Seconds between looks at files."""


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority, and what it has signed."""

    ca: trustme.CA

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self.ca.cert_pem.bytes()

    def issue(self, *names: str, common_name: str | None = None, **options: Any) -> tuple[bytes, bytes]:
        """A certificate chain and its key, in PEM."""
        made = self.ca.issue_cert(*(names or ("127.0.0.1", "localhost")), common_name=common_name, **options)
        return b"".join(blob.bytes() for blob in made.cert_chain_pems), made.private_key_pem.bytes()

    def trusted(self, client: tuple[bytes, bytes] | None = None) -> grpc.ChannelCredentials:
        """Credentials of a client that trusts it, with an own certificate and its key if there is one."""
        chain, key = client or (None, None)
        return grpc.ssl_channel_credentials(self.pem, key, chain)


def authority() -> Authority:
    """A new one."""
    return Authority(trustme.CA())


class Files:
    """The files of a server, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: bytes | str) -> Path:
        """Write a file, in place."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def certificate(self, chain: bytes, key: bytes, client_ca: bytes | None = None) -> dict[str, Any]:
        """The settings `server.tls` for a certificate that is written here."""
        made: dict[str, Any] = {"cert_file": self.write("cert.pem", chain), "key_file": self.write("key.pem", key)}
        if client_ca is not None:
            made["client_ca_file"] = self.write("ca.pem", client_ca)
        return made | {"reload_seconds": SOON}

    def tokens(self, text: str = f"alice {ALICE_TOKEN}\nbob {BOB_TOKEN}\nops {OPS_TOKEN}\n") -> dict[str, Any]:
        """The settings `auth` for tokens that are written here."""
        return {"tokens_file": self.write("tokens", text), "reload_seconds": SOON}

    def keys(self, content: bytes | str, **options: Any) -> dict[str, Any]:
        """The settings `auth` for the keys of JSON Web Tokens that are written here."""
        rules = {"issuer": ISSUER, "audience": [AUDIENCE], "keys_file": self.write("keys", content)}
        return {"jwt": rules | options, "reload_seconds": SOON}


def protected(tls: Mapping[str, Any] | None = None, auth: Mapping[str, Any] | None = None, **limits: Any) -> Protection:
    """What protects a server with these settings."""
    return protection_of(
        Settings.model_validate({"server": {"tls": dict(tls or {})}, "auth": dict(auth or {}), "limits": limits})
    )


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call with this token."""
    return (("authorization", f"Bearer {token}"),)


ALICE = bearer(ALICE_TOKEN)
BOB = bearer(BOB_TOKEN)
OPS = bearer(OPS_TOKEN)


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that signs tokens."""

    private: Any
    algorithm: str
    kid: str = ""

    @property
    def public_pem(self) -> bytes:
        """Its public half in PEM."""
        found: bytes = self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return found

    @property
    def jwk(self) -> dict[str, Any]:
        """Its public half as a JSON Web Key."""
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        made: dict[str, Any] = json.loads(algorithm.to_jwk(self.private.public_key()))
        return made | ({"kid": self.kid} if self.kid else {})

    def token(self, subject: str | None = "alice", *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A token, good for a minute unless `claims` say otherwise; those that are None are left out."""
        now = int(time.time())
        written = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 60} | claims
        kid = {"kid": self.kid} if self.kid else {}
        return jwt.encode(
            {name: value for name, value in written.items() if value is not None},
            self.private,
            self.algorithm,
            headers=kid | dict(header or {}),
        )


def jwks(*signers: Signer) -> str:
    """A key set."""
    return json.dumps({"keys": [signer.jwk for signer in signers]})


@cache
def ec_signer(kid: str = "") -> Signer:
    """A key on P-256; another one for each id."""
    return Signer(ec.generate_private_key(ec.SECP256R1()), "ES256", kid)


@cache
def rsa_signer(kid: str = "", bits: int = 2048) -> Signer:
    """An RSA key."""
    return Signer(rsa.generate_private_key(65537, bits), "RS256", kid)


@cache
def ed_signer(kid: str = "") -> Signer:
    """An Ed25519 key."""
    return Signer(ed25519.Ed25519PrivateKey.generate(), "EdDSA", kid)


def replaced(link: Path, contents: Mapping[str, bytes], version: str) -> Sequence[Path]:
    """Replace files as Kubernetes does: a new folder, and a symbolic link that is moved to it in one step.

    Args:
        link: the folder in which the files are seen.
        contents: the files.
        version: names the folder behind.
    """
    link.mkdir(exist_ok=True)
    folder = link / f"..{version}"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        if not (link / name).is_symlink():
            (link / name).symlink_to(Path("..data") / name)
    fresh = link / "..data_tmp"
    fresh.symlink_to(folder.name)
    fresh.rename(link / "..data")
    return [link / name for name in contents]
