"""Bearer tokens that somebody else signed: JSON Web Tokens, checked with the public keys in a file.

PyJWT does the cryptography. Which key and which algorithm a token may use is decided here, by the keys and the
settings, and not by the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from plannerd.security.errors import CredentialsError
from plannerd.security.files import Contents, FileError, WatchedFiles
from plannerd.security.tokens import bad_identity

MAX_KEYS: Final = 100
"""Keys of one file."""

_MIN_RSA_BITS: Final = 2048
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
# The secret of an HMAC must be as long as its hash.
_SECRETS: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_FOR_EVER: Final = 1e15  # seconds, beyond what any clock shows
_BEGIN: Final = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file.

    Attributes:
        id: its `kid`; empty in PEM, where keys have none.
        algorithms: what it may be used with.
        material: what PyJWT takes.
    """

    id: str
    algorithms: frozenset[str]
    material: Any

    def __repr__(self) -> str:
        return f"Key({self.id!r})"


@dataclass(frozen=True, slots=True)
class JwtRules:
    """What a token must say.

    Attributes:
        issuer: its `iss`.
        audience: one of these must be in its `aud`.
        algorithms: those that are allowed.
        identity_claim: the claim that says who it is.
        identity_prefix: is put before that.
        leeway: seconds by which clocks may differ.
    """

    issuer: str
    audience: Sequence[str]
    algorithms: frozenset[str]
    identity_claim: str = "sub"
    identity_prefix: str = ""
    leeway: float = 30.0


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that is good: whose it is, and until when, in seconds since the epoch."""

    identity: str
    expires: float


class JwtVerifier:
    """Checks tokens.

    Args:
        files: the keys.
        rules: what tokens must say.
        clock: seconds since the epoch.
    """

    def __init__(self, files: WatchedFiles[Sequence[Key]], rules: JwtRules, clock: Callable[[], float]) -> None:
        self._files = files
        self._rules = rules
        self._clock = clock

    def verify(self, token: str) -> Verified:
        """Whose token it is.

        Raises:
            CredentialsError: it is not good.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise CredentialsError("malformed", "the token is no JSON Web Token") from None
        keys = self._candidates(header)
        claims = self._signed(token, keys, str(header["alg"]))
        return Verified(self._identity(claims), self._times(claims))

    def _candidates(self, header: dict[str, Any]) -> list[Key]:
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            allowed = ", ".join(sorted(self._rules.algorithms))
            raise CredentialsError(
                "algorithm", f"the token is signed with an algorithm that is not allowed here ({allowed})"
            )
        fitting = [key for key in self._files.current if algorithm in key.algorithms]
        named = [key for key in fitting if key.id and key.id == key_id]
        # A key without an id may be meant by any; one with another id is not.
        chosen = named or [key for key in fitting if not key.id or not key_id]
        if not chosen:
            raise CredentialsError("key", "the token is signed with a key that this server does not know")
        return chosen

    def _signed(self, token: str, keys: Iterable[Key], algorithm: str) -> dict[str, Any]:
        """The claims, if one of `keys` has signed them and they are meant for us."""
        rules = self._rules
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key.material,
                    algorithms=[algorithm],
                    audience=list(rules.audience),
                    issuer=rules.issuer,
                    # The times are checked in `_times`, which tells them apart.
                    options={
                        "require": ["exp", "iss", "aud"],
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                        "verify_sub": False,
                        "verify_jti": False,
                    },
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.MissingRequiredClaimError as error:
                raise CredentialsError("claims", f"the token lacks the claim '{error.claim}'") from None
            except jwt.InvalidAudienceError:
                raise CredentialsError("audience", "the token is meant for another audience than this server") from None
            except jwt.InvalidIssuerError:
                raise CredentialsError("issuer", "the token is from another issuer than this server trusts") from None
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
                raise CredentialsError("malformed", "the token is no JSON Web Token that can be checked") from None
        raise CredentialsError("signature", "the signature of the token is wrong")

    def _times(self, claims: dict[str, Any]) -> float:
        """Until when the token is good, if it is now."""
        now, leeway = self._clock(), self._rules.leeway
        expires, begins = _time(claims, "exp"), _time(claims, "nbf")
        if begins is not None and begins > now + leeway:
            raise CredentialsError("not_yet_valid", "the token is not valid yet")
        if expires is None or expires + leeway <= now:
            raise CredentialsError("expired", "the token has expired; send a fresh one")
        return expires + leeway

    def _identity(self, claims: dict[str, Any]) -> str:
        name = self._rules.identity_claim
        found = claims.get(name)
        if not isinstance(found, str) or not found:
            raise CredentialsError(
                "claims", f"the token lacks the claim '{name}', which must be a text that says who calls"
            )
        identity = self._rules.identity_prefix + found
        problem = bad_identity(identity)
        if problem:
            raise CredentialsError("claims", f"the claim '{name}' of the token {problem}")
        return identity


def _time(claims: dict[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not -_FOR_EVER < found < _FOR_EVER:
        raise CredentialsError("claims", f"the claim '{name}' of the token must be a number of seconds")
    return float(found)


# --- the file


def key_file(path: Path, algorithms: frozenset[str]) -> WatchedFiles[Sequence[Key]]:
    """The keys in this file, which may change; those that fit none of `algorithms` are left out.

    Raises:
        FileError: it can't be used now.
    """
    return WatchedFiles("auth.jwt", {"keys_file": path}, lambda contents: read_keys(contents, algorithms))


def read_keys(contents: Contents, algorithms: frozenset[str]) -> Sequence[Key]:
    """The keys in the content of `keys_file`: a JWKS, or public keys and certificates in PEM.

    Raises:
        FileError: there is none that can be used.
    """
    raw = contents["keys_file"]
    found = list(_pem_keys(raw) if _BEGIN in raw else _jwks_keys(raw))
    if len(found) > MAX_KEYS:
        raise FileError(f"keys_file: there are {len(found)} keys in it; {MAX_KEYS} are allowed")
    usable = [Key(key.id, key.algorithms & algorithms, key.material) for key in found if key.algorithms & algorithms]
    if not usable:
        raise FileError(f"keys_file: none of its {len(found)} keys fits auth.jwt.algorithms")
    ids = [key.id for key in usable if key.id]
    if len(set(ids)) != len(ids):
        raise FileError("keys_file: two keys have the same kid")
    return tuple(usable)


def _pem_keys(raw: bytes) -> Iterable[Key]:
    for number, block in enumerate(raw.split(_BEGIN)[1:], 1):
        pem = _BEGIN + block
        if b"PRIVATE KEY" in block[:40]:
            raise FileError(f"keys_file: key {number} is a private key; only its public half belongs here")
        try:
            if block.startswith(b"CERTIFICATE"):
                material: object = x509.load_pem_x509_certificate(pem).public_key()
            else:
                material = load_pem_public_key(pem)
        except Exception:  # noqa: BLE001 (its errors are of many types)
            raise FileError(f"keys_file: key {number} is no public key or certificate in PEM, or incomplete") from None
        yield _key("", material, f"key {number}")


def _jwks_keys(raw: bytes) -> Iterable[Key]:
    try:
        written = json.loads(raw)
    except (ValueError, RecursionError):
        raise FileError("keys_file: this is neither PEM nor a JSON Web Key Set") from None
    entries = written.get("keys") if isinstance(written, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FileError("keys_file: this is no JSON Web Key Set: it must have a list of 'keys'")
    for number, entry in enumerate(entries, 1):
        where = f"key {number}"
        if entry.get("use", "sig") != "sig":
            continue
        uses = entry.get("key_ops")
        if isinstance(uses, list) and "verify" not in uses:
            continue
        if entry.get("kty") != "oct" and "d" in entry:
            raise FileError(f"keys_file: {where} is a private key; only its public half belongs here")
        key_id, algorithm = entry.get("kid", ""), entry.get("alg")
        if not isinstance(key_id, str):
            raise FileError(f"keys_file: {where}: its kid must be a text")
        key = _key(key_id, _jwk_material(entry, where), where)
        if algorithm is not None:
            # A set may hold keys for other things, such as encryption.
            key = Key(key.id, key.algorithms & {algorithm} if isinstance(algorithm, str) else frozenset(), key.material)
        yield key


def _jwk_material(entry: dict[str, Any], where: str) -> object:
    try:
        if entry.get("kty") == "oct":
            return jwt.algorithms.HMACAlgorithm.from_jwk(entry)
        return jwt.PyJWK(entry).key
    except Exception:  # noqa: BLE001 (its errors are of many types, and may quote a secret)
        raise FileError(f"keys_file: {where} is no JSON Web Key that can be used") from None


def _key(key_id: str, material: object, where: str) -> Key:
    """A key with what it can be used for, whoever asks: a public key is never a secret."""
    match material:
        case RSAPublicKey():
            if material.key_size < _MIN_RSA_BITS:
                raise FileError(f"keys_file: {where} has {material.key_size} bits, RSA needs {_MIN_RSA_BITS}")
            algorithms = _RSA
        case EllipticCurvePublicKey():
            algorithms = frozenset({_CURVES.get(material.curve.name, "")})
        case Ed25519PublicKey() | Ed448PublicKey():
            algorithms = frozenset({"EdDSA"})
        case bytes():
            algorithms = frozenset(name for name, size in _SECRETS.items() if len(material) >= size)
            if not algorithms:
                raise FileError(f"keys_file: {where} has {len(material)} bytes, a secret needs {_SECRETS['HS256']}")
        case _:
            algorithms = frozenset()
    return Key(key_id, algorithms, material)
