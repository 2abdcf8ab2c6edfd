"""Static bearer tokens: a file that says which token is whose.

    # identity   token, or sha256: and the SHA-256 of the token in hex
    shop         sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    billing      U2Fs6CkOoGhCtXlxKk4qNMjMZk3d8Wm0

One identity may have several lines, so that a token can be replaced while the old one still works.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from plannerd.security.files import Contents, FileError, WatchedFiles

MAX_IDENTITY: Final = 256
"""Characters of an identity."""

_MIN_TOKEN: Final = 16
_DIGEST: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
# What a header can hold as it is: RFC 6750's b64token is a part of it.
_TOKEN: Final = re.compile(r"[!-~]+")

Tokens = Mapping[bytes, str]
"""The identity of each token, by the SHA-256 of the token.

A token is looked up by its digest. What an attacker can learn from the time that takes is about digests of their
guesses, which they can't steer towards one that is in the table: no more than a comparison in constant time tells.
"""


def token_file(path: Path) -> WatchedFiles[Tokens]:
    """The tokens in this file, which may change.

    Raises:
        FileError: it can't be used now.
    """
    return WatchedFiles("auth", {"tokens_file": path}, read_tokens)


def digest(token: str) -> bytes:
    """By what a token is looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def read_tokens(contents: Contents) -> Tokens:
    """The tokens in the content of `tokens_file`.

    Raises:
        FileError: a line is not as it must be. Lines are named by number and never quoted.
    """
    try:
        text = contents["tokens_file"].decode()
    except UnicodeDecodeError:
        raise FileError("tokens_file: this is not UTF-8 text") from None
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"tokens_file: line {number}"
        if len(parts) != 2:
            raise FileError(f"{where}: there must be an identity and a token, with space between them")
        identity, token = parts
        problem = bad_identity(identity)
        if problem:
            raise FileError(f"{where}: the identity {problem}")
        key = _key(token, where)
        if key in tokens:
            raise FileError(f"{where}: this token is there already")
        tokens[key] = identity
    if not tokens:
        raise FileError("tokens_file: there are no tokens in it")
    if text[-1] != "\n":
        # The last line of a file that is being written could be the beginning of a token.
        raise FileError("tokens_file: the last line does not end with a line break; is it complete?")
    return tokens


def bad_identity(identity: str) -> str:
    """What is wrong with an identity; empty if nothing is."""
    if not 1 <= len(identity) <= MAX_IDENTITY:
        return f"must have 1 to {MAX_IDENTITY} characters"
    if not identity.isprintable():
        return "has characters that can't be printed"
    return ""


def _key(token: str, where: str) -> bytes:
    if token.startswith("sha256:"):
        written = _DIGEST.fullmatch(token)
        if written is None:
            raise FileError(f"{where}: sha256: must be followed by 64 hexadecimal digits")
        return bytes.fromhex(written[1])
    if not _TOKEN.fullmatch(token):
        raise FileError(f"{where}: a token may only have printable characters of ASCII")
    if len(token) < _MIN_TOKEN:
        raise FileError(f"{where}: a token must have {_MIN_TOKEN} characters or more; `openssl rand -hex 32` makes one")
    return digest(token)
