"""Answers all questions about a state in one pass.

The arithmetic is that of the library, which does it question by question: the state, each question and each
option become the average of their word pieces; a network scores each option by products of the three; the
scores of a question's options become probabilities. Here each option of each question is one row of a
single batch, and the products with the state, which all rows share, are moved into the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from plannerd.decisions.questions import Choice, Question, Scale
from plannerd.decisions.sparrow.library import (
    DEFAULT_CRITERIA,
    KIND_ROWS,
    Floats,
    Readings,
    Weights,
    gelu,
    reading_features,
    readings_in,
)
from plannerd.decisions.sparrow.tokens import WordPieces

_MAX_TEXTS: Final = 4096  # remembered texts of questions and options
_MAX_TEXT_CHARS: Final = 4096  # longer ones are not remembered
_MAX_BATCH: Final = 4096  # word pieces that are looked up at once; nothing else runs meanwhile
_SMALL_PRODUCT: Final = 262_144  # multiplications up to which OpenBLAS, in numpy's wheels, stays on one thread
_PADDING: Final = 0  # the word piece of a text that has none


@dataclass(frozen=True, slots=True)
class State:
    """What the questions are about: its text, and the word pieces of it that are used."""

    text: str
    pieces: list[int]


class Scorer:
    """Scores the options of questions by one model. Not for several threads at a time."""

    def __init__(self, weights: Weights, pieces: WordPieces) -> None:
        self._weights = weights
        self._pieces = pieces
        self._averages: dict[str, Floats] = {}
        # The first layer takes these products in a row; `rest` is the option less the average of its question's.
        # o, s*o, q*o, s*q*o, rest, (s - average)*o; and with readings r (overall) and b (bound to the option):
        # r*o, r*q*o, b, b*q.
        size = weights.kinds.shape[1]
        first = weights.layers[0][0]
        self._first = [np.ascontiguousarray(first[:, i : i + size].T) for i in range(0, first.shape[1], size)]

    def probabilities(self, state: State, questions: Sequence[Question]) -> list[list[float]]:
        """For each question the probabilities of its options in order, summing to 1.

        A yes/no question has the options no and yes; a scale has its levels.
        """
        kinds = [_kind(question) for question in questions]
        options = [_options(question) for question in questions]
        counts = np.array([len(texts) for texts in options])
        starts = np.cumsum(counts) - counts
        averages = self._average([*(question.text for question in questions), *chain.from_iterable(options)])
        s = _unit(self._weights.embeddings[state.pieces or [_PADDING]].mean(axis=0, keepdims=True))
        q = _unit(averages[: len(questions)] + self._weights.kinds[[KIND_ROWS[kind] for kind in kinds]])
        o = _unit(averages[len(questions) :])

        scores = self._network(self._first_layer(state.text, s, q, o, counts))
        temperatures = np.array([self._weights.temperatures[kind] for kind in kinds])
        scores = scores / np.repeat(temperatures, counts)
        odds = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), counts))
        flat = iter((odds / np.repeat(np.add.reduceat(odds, starts), counts)).tolist())
        return [list(islice(flat, len(texts))) for texts in options]

    def _first_layer(self, text: str, s: Floats, q: Floats, o: Floats, counts: NDArray[np.intp]) -> Floats:
        """The first layer's output for one state `s`, one row of `q` a question, one row of `o` an option."""
        w_o, w_so, w_qo, w_sqo, w_rest, w_srest = self._first[:6]
        average = _means(o, counts)
        by_option = w_o + w_rest + s.T * (w_so + w_srest)
        by_question = w_qo + s.T * w_sqo
        q = np.repeat(q, counts, axis=0)
        qo = q * o
        total = -np.repeat(_product(average, w_rest), counts, axis=0)
        total -= _product(np.repeat(average, counts, axis=0) * o, w_srest)
        if self._weights.readings is not None and (readings := self._read(self._weights.readings, text, o)):
            overall, bound = readings
            w_ro, w_rqo, w_b, w_bq = self._first[6:]
            by_option += overall[:, None] * w_ro
            by_question += overall[:, None] * w_rqo
            total += _product(bound, w_b) + _product(bound * q, w_bq)
        total += _product(o, by_option) + _product(qo, by_question)
        return total + self._weights.layers[0][1]

    def _network(self, x: Floats) -> Floats:
        """The score of each row of the first layer's output."""
        (second, second_bias), (third, third_bias) = self._weights.layers[1:]
        x = _product(gelu(x), second.T) + second_bias
        return (_product(gelu(x), third.T) + third_bias)[:, 0]

    def _read(self, readings: Readings, text: str, options: Floats) -> tuple[Floats, Floats] | None:
        """What the numbers in the state say: overall, and for each option by the lines that resemble it."""
        pairs = readings_in(text)
        if not pairs:
            return None
        keys, labels, values = zip(*pairs, strict=True)
        resolved = _unit(self._pool([self._encode(part) for part in keys + labels]))
        weighed = np.tanh(reading_features(list(values)) @ readings.weight.T + readings.bias)
        said = resolved[: len(pairs)] * weighed
        resemblance = readings.sharpness * _product(options, resolved[len(pairs) :].T)
        odds = np.exp(resemblance - resemblance.max(axis=1, keepdims=True))
        return said.mean(axis=0), _product(odds / odds.sum(axis=1, keepdims=True), said)

    def _average(self, texts: list[str]) -> Floats:
        """The average word piece of each text. Questions recur, so these are remembered."""
        known = {text: self._averages.get(text) for text in texts}
        if missing := [text for text, average in known.items() if average is None]:
            made = dict(zip(missing, self._pool([self._encode(text) for text in missing]), strict=True))
            known.update(made)
            if len(self._averages) + len(made) > _MAX_TEXTS:
                self._averages.clear()
            fitting = ((text, average.copy()) for text, average in made.items() if len(text) <= _MAX_TEXT_CHARS)
            self._averages.update(list(fitting)[:_MAX_TEXTS])
        return np.array([known[text] for text in texts], np.float32)

    def _pool(self, texts: list[list[int]]) -> Floats:
        pooled = []
        for start, end in _batches([len(text) for text in texts]):
            batch = [text or [_PADDING] for text in texts[start:end]]
            counts = np.array([len(text) for text in batch])
            ids = np.fromiter(chain.from_iterable(batch), np.intp, counts.sum())
            pooled.append(_means(self._weights.embeddings[ids], counts))
        return np.concatenate(pooled)

    def _encode(self, text: str) -> list[int]:
        return self._pieces.encode(text, self._weights.max_tokens)


def _batches(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Slices of texts of these sizes, each of about as many word pieces as are quickly looked up at once."""
    start = total = 0
    for i, size in enumerate(sizes):
        total += size
        if total >= _MAX_BATCH:
            yield start, i + 1
            start, total = i + 1, 0
    if start < len(sizes):
        yield start, len(sizes)


def _kind(question: Question) -> str:
    if isinstance(question, Choice):
        return "choice"
    return "score" if isinstance(question, Scale) else "noul"


def _options(question: Question) -> list[str]:
    """The text by which the model knows each option."""
    if isinstance(question, Choice):
        return [f"{option.name} {option.description or ''}" for option in question.options]
    if isinstance(question, Scale):
        return [f"{i} {level}" for i, level in enumerate(question.levels)]
    no_when = DEFAULT_CRITERIA["false"] if question.no_when is None else question.no_when
    yes_when = DEFAULT_CRITERIA["true"] if question.yes_when is None else question.yes_when
    return [f"false {no_when}", f"true {yes_when}"]


def _product(rows: Floats, weight: Floats) -> Floats:
    """`rows @ weight`, on this thread alone.

    BLAS shares a larger product among threads, which on busy cores makes microseconds of work wait for tens of
    milliseconds. So it gets pieces that are too small for that.
    """
    height = max(1, _SMALL_PRODUCT // weight.size)
    product: Floats = np.concatenate([rows[i : i + height] @ weight for i in range(0, len(rows), height)])
    return product


def _means(rows: Floats, counts: NDArray[np.intp]) -> Floats:
    """The mean of the first `counts[0]` rows, of the next `counts[1]`, and so on."""
    sums = np.add.reduceat(rows, np.cumsum(counts) - counts)
    means: Floats = np.divide(sums, counts[:, None], dtype=np.float32)
    return means


def _unit(rows: Floats) -> Floats:
    """Each row scaled to length 1."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = np.divide(rows, np.maximum(lengths, 1e-12), dtype=np.float32)
    return unit
