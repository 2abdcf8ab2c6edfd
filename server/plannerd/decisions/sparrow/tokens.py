"""Word pieces of a text, the same as the library's tokenizer makes, in a fraction of its time.

The library looks at each character several times in Python. Here ASCII text is lowered and split by one
regular expression, other text is translated by a table that asks the library once per distinct character,
and words are looked up in a table of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import Final

from plannerd.decisions.sparrow.library import Tokenizer

_MAX_WORDS: Final = 32_768
_MAX_CHARACTERS: Final = 32_768

_PART: Final = 4096  # characters that are split at a time; most texts are shorter
_LONGEST_PART: Final = 65_536  # a longer one is cut where there is no space, and words so long mean nothing anyway
_SPACE: Final = re.compile("[ \n]")  # no character's form depends on what is on the other side of one

_ASCII_WORDS: Final = re.compile(r"[0-9a-z]+|[^\s0-9a-z]")
_ASCII_DROPPED: Final = dict.fromkeys(code for code in (*range(32), 127) if chr(code) not in "\t\n\r")
_IN_CONTEXT: Final = "\0"  # stands for a character whose form depends on its neighbours; else always dropped


class WordPieces:
    """Splits texts into word pieces of one model. Not for several threads at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = _Characters(tokenizer)
        self._words = _Words(tokenizer)

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """The ids of the word pieces of `text`, in order: the first `most` of them, or all."""
        if most is None:
            return self._encode(text)
        pieces: list[int] = []
        for part in _parts(text):
            pieces += self._encode(part)
            if len(pieces) >= most:
                break
        return pieces[:most]

    def split(self, text: str) -> list[str]:
        """The words and punctuation marks of `text`, lowered and without accents."""
        if text.isascii():
            return _ASCII_WORDS.findall(text.translate(_ASCII_DROPPED).lower())
        spaced = text.translate(self._characters)
        if _IN_CONTEXT in spaced:
            return self._tokenizer.split(self._tokenizer.normalize(text))
        return spaced.split()

    def _encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._words.__getitem__, self.split(text))))


def _parts(text: str) -> Iterator[str]:
    """`text` in parts that have the same word pieces as the whole."""
    start = 0
    while len(text) - start > _PART:
        found = _SPACE.search(text, start + _PART, start + _LONGEST_PART)
        end = found.start() if found else min(start + _LONGEST_PART, len(text))
        yield text[start:end]
        start = end
    yield text[start:]


class _Characters(dict[int, str]):
    """What becomes of each character by itself: lowered, unaccented, dropped, or set apart by spaces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __missing__(self, code: int) -> str:
        character = chr(code)
        normal = self._tokenizer.normalize(character)
        # The one letter with two lower cases, and marks that normalization may put into another order.
        if character == "\u03a3" or any(map(unicodedata.combining, normal)):
            entry = _IN_CONTEXT
        else:
            # Between two letters, it shows whether it joins or parts them.
            entry = " ".join(self._tokenizer.split(f"a{normal}a"))[1:-1]
        if len(self) >= _MAX_CHARACTERS:
            self.clear()
        self[code] = entry
        return entry


class _Words(dict[str, tuple[int, ...]]):
    """The pieces of each word: from its start on, always the longest that the vocabulary has."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = tokenizer.vocabulary
        self._unknown = (tokenizer.unknown,)
        self._longest_word = tokenizer.longest_word
        self._longest_piece = max(map(len, tokenizer.vocabulary))

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(word) > self._longest_word:
            return self._unknown  # and not worth its place
        if len(self) >= _MAX_WORDS:
            self.clear()
        pieces = self[word] = self._pieces(word)
        return pieces

    def _pieces(self, word: str) -> tuple[int, ...]:
        pieces: list[int] = []
        start, mark = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                piece = self._vocabulary.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return self._unknown
            pieces.append(piece)
            start, mark = end, "##"
        return tuple(pieces)
