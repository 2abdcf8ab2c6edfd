"""Server certificates: what can be used, and what is told about what can't."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from plannerd.security.certificates import read_certificate
from plannerd.security.files import FileError
from tests.support.security import authority
from tests.support.services import captured_log


def problem_of(**contents: bytes) -> str:
    with pytest.raises(FileError) as caught:
        read_certificate({f"{name}_file": content for name, content in contents.items()})
    assert "BEGIN" not in str(caught.value)
    return str(caught.value)


def test_a_chain_with_its_key_can_be_used() -> None:
    """The certificate comes first; the key may be in the same file."""
    chain, key = authority().issue()
    made = read_certificate({"cert_file": chain + key, "key_file": key})
    assert made.client_authorities is None
    assert made.not_after > datetime.now(UTC)
    assert "BEGIN" not in repr(made)


@pytest.mark.parametrize("left", [timedelta(days=3), timedelta(days=-3)])
def test_a_certificate_that_expires_soon_is_told(left: timedelta) -> None:
    """A certificate with less than 14 days left, or none, is used and logged."""
    chain, key = authority().issue(not_after=datetime.now(UTC) + left)
    with captured_log() as log:
        read_certificate({"cert_file": chain, "key_file": key})
    assert '"certificate_expires"' in log.getvalue()


def test_a_certificate_that_is_good_for_long_is_not() -> None:
    """Nothing is logged about one with more than 14 days."""
    chain, key = authority().issue(not_after=datetime.now(UTC) + timedelta(days=15))
    with captured_log() as log:
        read_certificate({"cert_file": chain, "key_file": key})
    assert log.getvalue() == ""


def test_keys_that_cant_be_used() -> None:
    """A key with a passphrase, of another kind, or of another certificate is refused, and none is quoted."""
    chain, key = authority().issue()
    locked = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert "passphrase" in problem_of(cert=chain, key=locked)
    assert "RSA or of an elliptic curve" in problem_of(cert=chain, key=other)
    assert "not the key of the first certificate" in problem_of(cert=authority().pem + chain, key=key)


def test_every_beginning_of_a_file_is_refused() -> None:
    """However much of a file is written so far, what is not whole is not used."""
    ours = authority()
    chain, key = ours.issue()
    whole = chain.rstrip() + b"\n" + ours.pem.rstrip()
    for length in range(0, len(whole), 37):
        part = whole[:length]
        # After the first certificate what is there may be a whole chain.
        if part.count(b"-----BEGIN ") == part.count(b"-----END CERTIFICATE-----") > 0:
            continue
        assert problem_of(cert=part, key=key).startswith("cert_file")
    for length in range(0, len(key.rstrip()), 37):
        assert problem_of(cert=chain, key=key[:length]).startswith("key_file")
