"""JSON Web Tokens: what is good, what is not, and what its sender is told."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from plannerd.security.errors import CredentialsError
from plannerd.security.files import FileError
from plannerd.security.jwt_tokens import JwtRules, JwtVerifier, key_file, read_keys
from tests.support.security import (
    AUDIENCE,
    ISSUER,
    Files,
    Signer,
    authority,
    ec_signer,
    ed_signer,
    jwks,
    rsa_signer,
)

DEFAULT = frozenset({"RS256", "PS256", "ES256", "ES384", "EdDSA"})
SECRET = b"0123456789abcdef0123456789abcdef"


def oct_jwks(secret: bytes = SECRET, **more: Any) -> str:
    value = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
    return json.dumps({"keys": [{"kty": "oct", "k": value} | more]})


def verifier(
    folder: Path,
    keys: bytes | str,
    *,
    algorithms: frozenset[str] = DEFAULT,
    clock: Callable[[], float] = time.time,
    **rules: Any,
) -> JwtVerifier:
    made = JwtRules(issuer=ISSUER, audience=[AUDIENCE], algorithms=algorithms, **rules)
    return JwtVerifier(key_file(Files(folder).write("keys", keys), algorithms), made, clock)


def problem_of(checks: JwtVerifier, token: str) -> str:
    with pytest.raises(CredentialsError) as caught:
        checks.verify(token)
    assert token not in str(caught.value)
    return caught.value.metadata["problem"]


# --- good ones


@pytest.mark.parametrize("signer", [ec_signer("a"), rsa_signer("a"), ed_signer("a")], ids=lambda made: made.algorithm)
@pytest.mark.parametrize("form", ["pem", "jwks"])
def test_a_good_token_says_who_it_is(tmp_path: Path, signer: Signer, form: str) -> None:
    """A token that a key of the file signed gives the identity in its claim and when it ends, leeway included."""
    checks = verifier(tmp_path, signer.public_pem if form == "pem" else jwks(signer))
    expires = int(time.time()) + 100
    verified = checks.verify(signer.token("carol", exp=expires))
    assert (verified.identity, verified.expires) == ("carol", expires + 30)


def test_certificates_hold_keys_too(tmp_path: Path) -> None:
    """A certificate in PEM stands for its key."""
    chain, key = authority().issue("login.example")
    token = jwt.encode(
        {"sub": "carol", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60},
        key.decode(),
        "ES256" if b"EC PRIVATE" in key else "RS256",
    )
    assert verifier(tmp_path, chain).verify(token).identity == "carol"


def test_several_keys(tmp_path: Path) -> None:
    """A token is checked by the key that it names, or by each if it names none; PEM keys have no names."""
    first, second = ec_signer("1"), ec_signer("2")
    checks = verifier(tmp_path, jwks(first, second))
    assert checks.verify(second.token()).identity == "alice"
    assert checks.verify(Signer(second.private, "ES256").token()).identity == "alice"
    assert problem_of(checks, Signer(second.private, "ES256", "1").token()) == "signature"
    assert problem_of(checks, ec_signer("3").token()) == "key"
    pems = verifier(tmp_path, first.public_pem + second.public_pem)
    assert pems.verify(second.token()).identity == "alice"


def test_another_claim_and_a_prefix(tmp_path: Path) -> None:
    """The claim that says who calls can be chosen, and a prefix keeps identities of different origins apart."""
    checks = verifier(tmp_path, jwks(ec_signer()), identity_claim="email", identity_prefix="login:")
    assert checks.verify(ec_signer().token(email="c@example")).identity == "login:c@example"
    assert problem_of(checks, ec_signer().token()) == "claims"


def test_one_of_several_audiences_is_enough(tmp_path: Path) -> None:
    """A token may be meant for others as well."""
    assert verifier(tmp_path, jwks(ec_signer())).verify(ec_signer().token(aud=["x", AUDIENCE])).identity == "alice"


def test_secrets_count_where_they_are_asked_for(tmp_path: Path) -> None:
    """HMAC works with a key of its own type, if the operator allows it."""
    token = Signer(SECRET, "HS256").token()
    checks = verifier(tmp_path, oct_jwks(), algorithms=frozenset({"HS256"}))
    assert checks.verify(token).identity == "alice"
    with pytest.raises(FileError, match="none of its 1 keys fits"):
        verifier(tmp_path, oct_jwks())


# --- bad ones


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": None}, "claims"),
        ({"exp": 0}, "expired"),
        ({"exp": "soon"}, "claims"),
        ({"exp": True}, "claims"),
        ({"nbf": 4_000_000_000}, "not_yet_valid"),
        ({"nbf": "later"}, "claims"),
        ({"iss": None}, "claims"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": ISSUER + "/"}, "issuer"),
        ({"aud": None}, "claims"),
        ({"aud": "other"}, "audience"),
        ({"aud": []}, "claims"),
        ({"aud": [7]}, "audience"),
        ({"sub": None}, "claims"),
        ({"sub": ""}, "claims"),
        ({"sub": "x" * 257}, "claims"),
        ({"sub": "a\nb"}, "claims"),
    ],
    ids=str,
)
def test_claims_that_are_not_as_they_must_be(tmp_path: Path, claims: dict[str, Any], problem: str) -> None:
    """A token that lacks a claim, or was made by, for or at something else, is refused with what is wrong."""
    assert problem_of(verifier(tmp_path, jwks(ec_signer())), ec_signer().token(**claims)) == problem


def test_a_number_is_no_identity(tmp_path: Path) -> None:
    """An identity is a text."""
    token = jwt.encode(
        {"sub": 7, "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60}, ec_signer().private, "ES256"
    )
    assert problem_of(verifier(tmp_path, jwks(ec_signer())), token) == "claims"


def test_clocks_may_differ_by_the_leeway(tmp_path: Path) -> None:
    """A token counts from `nbf` less the leeway until `exp` plus the leeway, and not a second more."""
    token = ec_signer().token(nbf=1000, exp=2000)
    for now, outcome in [(969.9, "not_yet_valid"), (970.1, ""), (2029.9, ""), (2030.0, "expired")]:
        checks = verifier(tmp_path, jwks(ec_signer()), clock=partial(float, now))
        if outcome:
            assert problem_of(checks, token) == outcome
        else:
            assert checks.verify(token).expires == 2030


def unsigned(header: dict[str, Any], signature: str = "") -> str:
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims))
    return ".".join([*parts, signature])


def encoded(part: str) -> str:
    return base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode()


STRANGE = ['{"alg": []}', '{"alg": {"a": 1}}', "[" * 6000, '{"alg": "ES256", "kid": 7}', '{"alg": "ES256", "kid": []}']


@pytest.mark.parametrize("header", STRANGE, ids=[str(number) for number in range(len(STRANGE))])
def test_headers_of_strange_types(tmp_path: Path, header: str) -> None:
    """A header of unexpected types, or nested without end, is refused like any other."""
    with pytest.raises(CredentialsError):
        verifier(tmp_path, jwks(ec_signer())).verify(f"{encoded(header)}.e30.AAAA")


@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_times_beyond_all_numbers(tmp_path: Path, claim: str) -> None:
    """A time that no clock can show is refused like any other that is no time."""
    claims: dict[str, Any] = {claim: 10**400}
    assert problem_of(verifier(tmp_path, jwks(ec_signer())), ec_signer().token(**claims)) == "claims"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", None, 7, "HS256", "RS512", "ES256K"], ids=repr)
def test_algorithms_that_are_not_allowed(tmp_path: Path, name: object) -> None:
    """A token can't choose how it is checked: not by `none`, nor by any algorithm that is not in the settings."""
    checks = verifier(tmp_path, jwks(ec_signer(), rsa_signer()))
    assert problem_of(checks, unsigned({"alg": name})) in ("algorithm", "malformed")
    assert problem_of(checks, unsigned({"alg": name}, "AAAA")) in ("algorithm", "malformed")


def test_none_is_refused_even_beside_a_good_header(tmp_path: Path) -> None:
    """A token without a signature is refused whatever it says."""
    for name in ("ES256", "RS256"):
        assert problem_of(verifier(tmp_path, jwks(ec_signer(), rsa_signer())), unsigned({"alg": name})) == "signature"


def test_a_public_key_is_never_a_secret(tmp_path: Path) -> None:
    """A token that was signed by HMAC with the text of the public key is refused, even where HMAC is allowed."""
    public = rsa_signer().public_pem
    forged = unsigned({"alg": "HS256"})[:-1]
    mac = jwt.get_algorithm_by_name("HS256").sign(forged.encode(), public)
    token = f"{forged}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    checks = verifier(tmp_path, public, algorithms=frozenset({"HS256", "RS256"}))
    assert problem_of(checks, token) == "key"


def test_a_key_is_used_with_its_own_algorithm_alone(tmp_path: Path) -> None:
    """A key whose `alg` is written is used with that one, and one for encryption never."""
    written = json.loads(jwks(rsa_signer("r")))
    written["keys"][0]["alg"] = "PS256"
    assert problem_of(verifier(tmp_path, json.dumps(written)), rsa_signer("r").token()) == "key"
    written["keys"] += json.loads(jwks(ec_signer("e")))["keys"]
    written["keys"][1]["use"] = "enc"
    assert problem_of(verifier(tmp_path, json.dumps(written)), ec_signer("e").token()) == "key"


@pytest.mark.parametrize("header", [{"jku": "https://evil.example"}, {"x5u": "https://evil.example"}, {"jwk": {}}])
def test_keys_in_a_token_are_not_looked_at(tmp_path: Path, header: dict[str, Any]) -> None:
    """Where a token says that its key is does not matter: only the keys of the file count."""
    evil = ec_signer("evil")
    embedded = {"jwk": evil.jwk} if "jwk" in header else header
    assert problem_of(verifier(tmp_path, jwks(ec_signer())), evil.token(header=embedded)) in ("signature", "key")


def test_critical_headers_that_nobody_understands(tmp_path: Path) -> None:
    """A token that demands an extension is refused."""
    assert problem_of(verifier(tmp_path, jwks(ec_signer())), ec_signer().token(header={"crit": ["x"], "x": 1}))


NO_TOKENS = ["", "a", "a.b", "a.b.c", "..", "a.b.c.d", "é.é.é", "e30.e30.e30", "W10.W10.AA", "\0.\0.\0", "." * 5000]


@pytest.mark.parametrize("token", NO_TOKENS, ids=[str(number) for number in range(len(NO_TOKENS))])
def test_texts_that_are_no_tokens(tmp_path: Path, token: str) -> None:
    """Anything else is refused without another error."""
    with pytest.raises(CredentialsError):
        verifier(tmp_path, jwks(ec_signer())).verify(token)


def test_each_character_of_a_token_counts(tmp_path: Path) -> None:
    """A token in which anything was changed is refused."""
    checks, token = verifier(tmp_path, jwks(ec_signer())), ec_signer().token()
    # The last character of a part holds bits that no byte has.
    ends = {index - 1 for index, character in enumerate(token + ".") if character == "."}
    for index in range(0, len(token), 7):
        if index in ends or token[index] == ".":
            continue
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        with pytest.raises(CredentialsError):
            checks.verify(changed)


# --- the file


def _private_pem() -> bytes:
    return rsa_signer().private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[no-any-return]


def _private_jwks() -> str:
    made = jwt.get_algorithm_by_name("ES256").to_jwk(ec_signer().private)
    return f'{{"keys": [{made}]}}'


def _short() -> bytes:
    return Signer(rsa.generate_private_key(65537, 1024), "RS256").public_pem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "neither PEM nor a JSON Web Key Set"),
        ("{", "neither PEM nor a JSON Web Key Set"),
        ("[" * 100_000, "neither PEM nor a JSON Web Key Set"),
        ("[]", "must have a list of 'keys'"),
        ('{"keys": [7]}', "must have a list of 'keys'"),
        ('{"keys": []}', "none of its 0 keys"),
        ('{"keys": [{"kty": "EC"}]}', "key 1 is no JSON Web Key"),
        ('{"keys": [{"kty": "EC", "key_ops": 7}]}', "key 1 is no JSON Web Key"),
        ('{"keys": [{"kty": "RSA", "key_ops": ["encrypt"]}]}', "none of its 0 keys"),
        ('{"keys": [{"kty": [], "use": []}]}', "none of its 0 keys"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "key 1 has 3 bytes, a secret needs 32"),
        (jwks(ec_signer("a"), rsa_signer("a")), "two keys have the same kid"),
        (jwks(ec_signer("a")).replace('"a"', "7"), "its kid must be a text"),
        (jwks(*[ec_signer(str(number % 3)) for number in range(101)]), "there are 101 keys in it; 100 are allowed"),
        (ec_signer().public_pem[:60], "key 1 is no public key or certificate in PEM, or incomplete"),
        (ec_signer().public_pem + b"-----BEGIN X-----\n", "key 2 is no public key"),
        (_private_pem(), "key 1 is a private key"),
        (_private_jwks(), "key 1 is a private key"),
        (_short(), "key 1 has 1024 bits, RSA needs 2048"),
    ],
)
def test_key_files_that_cant_be_used(content: bytes | str, problem: str) -> None:
    """A key file is refused whole if anything in it is not as it must be, and nothing of it is quoted."""
    raw = content.encode() if isinstance(content, str) else content
    with pytest.raises(FileError, match="keys_file: ") as caught:
        read_keys({"keys_file": raw}, DEFAULT)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200
