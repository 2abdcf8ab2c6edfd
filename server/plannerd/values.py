"""Values of the scope, as plain Python objects.

A value is None, a bool, an int (64 bit), a finite float, a str, bytes, a list of values, a dict from str
to value, a `Text` or an `Image`. At the top of the scope a value may also be `Opaque` (the client keeps it
and sends a tag that can be compared, nothing else) or `PENDING` (an output that has not arrived yet).
`services.codec` makes them from the wire and checks them; past that point they are known to be well-formed.
"""

from __future__ import annotations

import enum
import hashlib
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

MAX_NESTING: Final = 24
"""How deep lists and maps may be nested in one value, counting the value itself."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text content, as a message part."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image by its bytes; addresses are never used."""

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that stays with the client: present, comparable by its tag (up to 32 bytes), unreadable."""

    tag: bytes


class _Pending(enum.Enum):
    PENDING = "pending"

    def __repr__(self) -> str:
        return "PENDING"


PENDING: Final = _Pending.PENDING
"""An output that will arrive later: present, not readable."""

Pending: TypeAlias = Literal[_Pending.PENDING]
Value: TypeAlias = "None | bool | int | float | str | bytes | list[Value] | dict[str, Value] | Text | Image"
ScopeValue: TypeAlias = "Value | Opaque | Pending"

# Unicode White_Space (PropList.txt), spelt out because str.isspace() also takes U+001C..U+001F.
_NOT_BLANK: Final = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def is_blank(text: str) -> bool:
    """Whether `text` has only characters with the Unicode property White_Space (or none at all)."""
    return _NOT_BLANK.search(text) is None


def is_present(value: ScopeValue) -> bool:
    """Whether a value counts as *in the scope*: not null and, if it is text, not blank (docs/concepts.md)."""
    if value is None:
        return False
    if isinstance(value, str):
        return not is_blank(value)
    if isinstance(value, Text):
        return not is_blank(value.text)
    return True


def _feed(value: ScopeValue, out: list[bytes]) -> None:
    """Append an unambiguous form of `value`: maps sorted by key, numbers by value, types told apart."""
    if value is None:
        out.append(b"n")
    elif value is True or value is False:
        out.append(b"t" if value else b"f")
    elif isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        out.append(b"s%d:" % len(raw))
        out.append(raw)
    elif isinstance(value, int):
        out.append(b"i%d;" % value)
    elif isinstance(value, float):
        # 2.0 and 2 are the same number, whichever way a client's language writes it.
        out.append(b"i%d;" % int(value) if value.is_integer() else b"d%s;" % repr(value).encode())
    elif isinstance(value, list):
        out.append(b"l%d:" % len(value))
        for item in value:
            _feed(item, out)
    elif isinstance(value, dict):
        out.append(b"m%d:" % len(value))
        for key in sorted(value):
            _feed(key, out)
            _feed(value[key], out)
    elif isinstance(value, bytes):
        out.append(b"b%d:" % len(value))
        out.append(value)
    elif isinstance(value, Text):
        out.append(b"T")
        _feed(value.text, out)
    elif isinstance(value, Image):
        out.append(b"I")
        _feed(value.media_type, out)
        _feed(value.data, out)
    elif isinstance(value, Opaque):
        out.append(b"o")
        _feed(value.tag, out)
    else:
        out.append(b"p")


def digest(*values: ScopeValue, key: bytes = b"", size: int = 16) -> bytes:
    """A digest of the meaning of `values`: equal for equal values, however their maps were ordered.

    Args:
        values: what to digest; numbers count by value (2 and 2.0 are equal), booleans are no numbers.
        key: a secret or salt of up to 64 bytes that keeps digests of different invocations apart.
        size: length of the result in bytes, 1 to 64.
    """
    parts: list[bytes] = []
    for value in values:
        _feed(value, parts)
    return hashlib.blake2b(b"".join(parts), digest_size=size, key=key).digest()
