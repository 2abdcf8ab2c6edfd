"""From what came with a call to an identity."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from plannerd.security import authenticator as module
from plannerd.security.authenticator import Authenticator, CertificateRules
from plannerd.security.errors import CredentialsError
from plannerd.security.identity import Caller, Credentials
from plannerd.security.jwt_tokens import JwtRules, JwtVerifier, key_file
from plannerd.security.tokens import token_file
from tests.support.security import ALICE_TOKEN, AUDIENCE, BOB_TOKEN, ISSUER, Files, ec_signer, jwks, rsa_signer

ES = frozenset({"ES256"})


def sent(token: str) -> Credentials:
    return Credentials((f"Bearer {token}",))


def problem_of(checks: Authenticator, credentials: Credentials) -> str:
    with pytest.raises(CredentialsError) as caught:
        checks.authenticate(credentials)
    return caught.value.metadata["problem"]


class Both:
    """Both kinds of tokens."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.now = time.time()
        self.files = Files(folder)
        self.tokens = token_file(self.files.tokens()["tokens_file"])
        self.keys = key_file(self.files.write("keys", jwks(ec_signer("1"))), ES)
        rules = JwtRules(issuer=ISSUER, audience=[AUDIENCE], algorithms=ES)
        self.checks = Authenticator(
            tokens=self.tokens,
            keys=self.keys,
            jwt=JwtVerifier(self.keys, rules, self.clock),
            operators=["ops", "root"],
            clock=self.clock,
            **more,
        )

    def clock(self) -> float:
        return self.now


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


def test_both_kinds_of_tokens(both: Both) -> None:
    """Static tokens and signed ones work side by side; operators are told apart by their identity."""
    assert both.checks.authenticate(sent(ALICE_TOKEN)) == Caller("alice")
    assert both.checks.authenticate(sent("ops-0123456789abcdef")) == Caller("ops", operator=True)
    assert both.checks.authenticate(sent(ec_signer("1").token("root"))) == Caller("root", operator=True)
    assert problem_of(both.checks, sent("someone-0123456789")) == "unknown"
    assert problem_of(both.checks, sent(ec_signer("2").token())) == "key"
    assert problem_of(both.checks, Credentials()) == "missing"


@pytest.mark.parametrize(
    "values",
    [
        ("Basic YTpi",),
        ("Bearer",),
        ("Bearer ",),
        (ALICE_TOKEN,),
        (f"Bearer {ALICE_TOKEN} {ALICE_TOKEN}",),
        (f"Bearer {ALICE_TOKEN}", f"Bearer {BOB_TOKEN}"),
        (f"Bearer {ALICE_TOKEN}", f"Bearer {ALICE_TOKEN}"),
        ("Bearer " + "x" * 8193,),
        ("",),
        ("Bearer \udcff\udcfe0123456789abcdef x",),
    ],
)
def test_metadata_that_is_no_bearer_token(both: Both, values: tuple[str, ...]) -> None:
    """What is no single bearer token is refused, even if there is a good token in it."""
    assert problem_of(both.checks, Credentials(values)) == "malformed"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_has_no_case(both: Both, scheme: str) -> None:
    """As everywhere in HTTP."""
    assert both.checks.authenticate(Credentials((f"{scheme} {ALICE_TOKEN}",))).identity == "alice"


def test_a_token_is_checked_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature is not checked again for a token that was good, until it expires."""
    checked = 0
    verify = JwtVerifier.verify

    def count(self: JwtVerifier, token: str) -> Any:
        nonlocal checked
        checked += 1
        return verify(self, token)

    monkeypatch.setattr(JwtVerifier, "verify", count)
    token = ec_signer("1").token(exp=int(both.now) + 60)
    for _ in range(10):
        assert both.checks.authenticate(sent(token)).identity == "alice"
    assert checked == 1
    both.now += 89
    assert both.checks.authenticate(sent(token)).identity == "alice"
    assert checked == 1
    both.now += 2
    assert problem_of(both.checks, sent(token)) == "expired"


def test_tokens_that_are_not_good_are_not_remembered(both: Both) -> None:
    """A token that is not valid yet is good once its time has come."""
    token = ec_signer("1").token(nbf=int(both.now) + 100, exp=int(both.now) + 200)
    assert problem_of(both.checks, sent(token)) == "not_yet_valid"
    both.now += 100
    assert both.checks.authenticate(sent(token)).identity == "alice"


def test_what_is_taken_from_the_files_is_refused(both: Both) -> None:
    """A token that is gone from the file, or whose key is, is refused from the next look on; others stay."""
    token = ec_signer("1").token("carol")
    assert both.checks.authenticate(sent(ALICE_TOKEN)).identity == "alice"
    assert both.checks.authenticate(sent(token)).identity == "carol"
    both.files.tokens(f"bob {BOB_TOKEN}\n")
    both.tokens.look()
    assert problem_of(both.checks, sent(ALICE_TOKEN)) == "unknown"
    assert both.checks.authenticate(sent(BOB_TOKEN)).identity == "bob"
    assert both.checks.authenticate(sent(token)).identity == "carol"
    both.files.write("keys", jwks(ec_signer("2")))
    both.keys.look()
    assert problem_of(both.checks, sent(token)) == "key"
    assert both.checks.authenticate(sent(ec_signer("2").token("carol"))).identity == "carol"


def test_no_more_is_remembered_than_there_is_room_for(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that were good are kept in a bounded number, the latest ones."""
    monkeypatch.setattr(module, "_MAX_CACHED", 3)
    tokens = [ec_signer("1").token(f"user{number}") for number in range(6)]
    for number, token in enumerate(tokens):
        assert both.checks.authenticate(sent(token)).identity == f"user{number}"
        assert len(both.checks._known) <= 3
    assert both.checks.authenticate(sent(tokens[0])).identity == "user0"


def names(**found: tuple[str, ...]) -> Credentials:
    return Credentials((), found)


def test_identities_by_certificate() -> None:
    """The chosen name of a certificate is the identity, with its prefix, if it is there exactly once."""
    checks = Authenticator(certificate=CertificateRules("uri", "mtls:"), operators=["mtls:spiffe://x/ops"])
    assert checks.authenticate(names(uri=("spiffe://x/a",))) == Caller("mtls:spiffe://x/a")
    assert checks.authenticate(names(uri=("spiffe://x/ops",))).operator
    assert problem_of(checks, names(uri=("spiffe://x/a", "spiffe://x/b"))) == "certificate"
    assert problem_of(checks, names(dns=("a.example",))) == "certificate"
    assert problem_of(checks, names(uri=("spiffe://x/\n",))) == "certificate"
    assert problem_of(checks, Credentials()) == "certificate"
    assert problem_of(checks, Credentials((f"Bearer {ALICE_TOKEN}",))) == "unexpected"


def test_a_token_counts_before_a_certificate(tmp_path: Path) -> None:
    """Who sends a token is whose the token is, and nobody if it is wrong, whatever their certificate says."""
    checks = Both(tmp_path, certificate=CertificateRules("dns")).checks
    shown = {"dns": ("proxy.example",)}
    assert checks.authenticate(Credentials((f"Bearer {ALICE_TOKEN}",), shown)).identity == "alice"
    assert problem_of(checks, Credentials(("Bearer wrong-0123456789",), shown)) == "unknown"
    assert checks.authenticate(Credentials((), shown)).identity == "proxy.example"


def test_secrets_are_not_shown() -> None:
    """What holds secrets does not show them when it is printed."""
    assert ALICE_TOKEN not in repr(sent(ALICE_TOKEN))


def test_a_known_token_costs_little(both: Both) -> None:
    """Checking a token again costs a fraction of a signature check, even of the cheapest kind (RSA)."""
    keys = key_file(both.files.write("keys", jwks(rsa_signer("1"))), frozenset({"RS256"}))
    rules = JwtRules(issuer=ISSUER, audience=[AUDIENCE], algorithms=frozenset({"RS256"}))
    checks = JwtVerifier(keys, rules, time.time)
    again = Authenticator(keys=keys, jwt=checks)
    token = rsa_signer("1").token()

    def fastest(work: Any) -> float:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(200):
                work()
            times.append(time.perf_counter() - started)
        return min(times)

    known = fastest(lambda: again.authenticate(sent(token)))
    assert known < fastest(lambda: checks.verify(token)) / 5
    assert jwt.get_unverified_header(token)["alg"] == "RS256"
