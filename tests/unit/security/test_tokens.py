"""The file of static tokens."""

from __future__ import annotations

import hashlib

import pytest

from plannerd.security.files import FileError
from plannerd.security.tokens import digest, read_tokens

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


def read(text: str | bytes) -> dict[bytes, str]:
    return dict(read_tokens({"tokens_file": text.encode() if isinstance(text, str) else text}))


def test_tokens_and_their_digests() -> None:
    """A line has an identity and its token, or the token's SHA-256; comments and empty lines are left out."""
    hashed = hashlib.sha256(OTHER.encode()).hexdigest()
    text = f"# whose is whose\n\n  shop\t{TOKEN}\nspiffe://x/y sha256:{hashed.upper()}\r\n"
    assert read(text) == {digest(TOKEN): "shop", digest(OTHER): "spiffe://x/y"}


def test_an_identity_may_have_several_tokens() -> None:
    """The next token can be added before the old one is taken away."""
    assert sorted(read(f"shop {TOKEN}\nshop {OTHER}\n").values()) == ["shop", "shop"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there are no tokens in it"),
        ("# nothing\n", "there are no tokens in it"),
        (f"shop {TOKEN}", "the last line does not end with a line break"),
        ("shop\n", "line 1: there must be an identity and a token"),
        (f"shop {TOKEN} more\n", "line 1: there must be an identity and a token"),
        (f"shop {TOKEN}\nbilling {TOKEN}\n", "line 2: this token is there already"),
        (f"shop {TOKEN}\nbilling sha256:{digest(TOKEN).hex()}\n", "line 2: this token is there already"),
        (f"{'x' * 257} {TOKEN}\n", "line 1: the identity must have 1 to 256 characters"),
        (f"a\x00b {TOKEN}\n", "line 1: the identity has characters that can't be printed"),
        ("shop short-token\n", "line 1: a token must have 16 characters or more"),
        ("shop sha256:00\n", "line 1: sha256: must be followed by 64 hexadecimal digits"),
        ("shop 0123456789abcdefé\n", "line 1: a token may only have printable characters of ASCII"),
        (b"\xff\xfe", "this is not UTF-8 text"),
    ],
)
def test_files_that_cant_be_used(text: str | bytes, problem: str) -> None:
    """What is wrong is told with the number of the line, and no token is quoted."""
    with pytest.raises(FileError) as caught:
        read(text)
    assert str(caught.value).startswith(f"tokens_file: {problem}")
    assert TOKEN not in str(caught.value)
