"""What is used of the package sparrow-decider, with types. Nothing else imports it.

The package ships its models as files of a few megabytes. Those of the `static` architecture, which all of
the bundled ones have, embed each word piece by a table, average the pieces of a text, and judge options by a
small network over products of such averages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sparrow_decider import DEFAULT_MODEL, NOUL_DEFAULT, Decider  # type: ignore[import-untyped]
from sparrow_decider.engine import gelu as library_gelu  # type: ignore[import-untyped]
from sparrow_decider.static import KINDS, kv_pairs, value_features  # type: ignore[import-untyped]

Floats: TypeAlias = NDArray[np.float32]

KIND_ROWS: Final[dict[str, int]] = dict(KINDS)
"""The row of each kind of question (`noul` for yes/no, `choice`, `score` for scales) in the kind table."""
DEFAULT_CRITERIA: Final[dict[str, str]] = dict(NOUL_DEFAULT)
"""What the answers `false` and `true` mean to the models where a question does not say it."""

_SUFFIX: Final = ".sparrow"
_READING: Final = re.compile(r"[:=]\s*-?\d")


class Tokenizer:
    """The tokenizer of a model: its vocabulary, and its two public steps before the vocabulary is used."""

    def __init__(self, library: Any) -> None:
        self.vocabulary: dict[str, int] = library.vocab
        self.unknown: int = library.unk_id
        self.longest_word: int = library.max_chars
        self.normalize: Callable[[str], str] = library.normalize
        self.split: Callable[[str], list[str]] = library.pretokenize


@dataclass(frozen=True, slots=True)
class Readings:
    """The weights of a model that reads numbers in the state, as in `battery: 6%`."""

    weight: Floats
    bias: Floats
    sharpness: float


@dataclass(frozen=True, slots=True)
class Weights:
    """A loaded model of the static architecture.

    Attributes:
        decider: the library's own object, for comparison.
        name: the name the model gives itself.
        max_tokens: how many word pieces of a text are used; the rest is ignored.
        embeddings: of word pieces, one row each.
        kinds: one row for each kind of question.
        layers: weight and bias of the three layers of the network.
        temperatures: by kind of question.
        readings: set if the model reads numbers.
    """

    decider: Any
    name: str
    max_tokens: int
    tokenizer: Tokenizer
    embeddings: Floats
    kinds: Floats
    layers: tuple[tuple[Floats, Floats], ...]
    temperatures: dict[str, float]
    readings: Readings | None


def bundled_models() -> list[str]:
    """The names of the models inside the package."""
    names = (entry.name for entry in files("sparrow_decider").joinpath("models").iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load(name: str | None = None) -> Weights:
    """Load a bundled model, in some tens of milliseconds.

    Args:
        name: one of `bundled_models`, never a path; None: the default of the package.

    Raises:
        ValueError: there is no such model inside the package.
        RuntimeError: the model is not of the static architecture, or not in the way that is known here.
    """
    name = DEFAULT_MODEL if name is None else name
    if name not in bundled_models():
        raise ValueError(f"no bundled sparrow model '{name}'; there are: {', '.join(bundled_models())}")
    with as_file(files("sparrow_decider").joinpath("models", name + _SUFFIX)) as path:
        decider = Decider.load(str(path))
    if decider.cfg.get("arch") != "static":
        raise RuntimeError(f"sparrow model '{name}' has the architecture {decider.cfg.get('arch')!r}, not 'static'")
    try:
        return _weights(decider)
    except (AttributeError, KeyError) as error:
        raise RuntimeError(f"sparrow model '{name}' is not laid out as expected: {error}") from error


def _weights(decider: Any) -> Weights:
    static = decider.static
    arrays = static.w
    layers = tuple((arrays[f"mlp.{i}.weight"], arrays[f"mlp.{i}.bias"]) for i in (0, 2, 4))
    size = static.emb.shape[1]
    expected = size * (10 if static.kv else 6)
    if layers[0][0].shape[1] != expected:
        raise RuntimeError(f"sparrow model '{decider.name}' takes {layers[0][0].shape[1]} features, not {expected}")
    readings = None
    if static.kv:
        readings = Readings(arrays["g.weight"], arrays["g.bias"], float(arrays["tau"][0]))
    return Weights(
        decider=decider,
        name=decider.name,
        max_tokens=static.max_len,
        tokenizer=Tokenizer(static.tok),
        embeddings=static.emb[np.arange(static.emb.shape[0])],  # all at once: half of the time of row by row
        kinds=arrays["kind.weight"],
        layers=layers,
        temperatures={kind: float(decider.cfg.get("temperature_by_kind", {}).get(kind, 1)) for kind in KIND_ROWS},
        readings=readings,
    )


def gelu(x: Floats) -> Floats:
    """The activation between the layers, with the approximation that the weights were tested with."""
    activated: Floats = library_gelu(x)
    return activated


def readings_in(state: str) -> list[tuple[str, str, float]]:
    """The numbers in a state, as (key, label of the line, value), as many as a model takes."""
    # The library's search is slow on prose, and lines are independent of each other.
    lines = [line for line in state.splitlines() if _READING.search(line)]
    pairs: list[tuple[str, str, float]] = kv_pairs("\n".join(lines)) if lines else []
    return pairs


def reading_features(values: list[float]) -> Floats:
    """What a model is told of each number, one row each."""
    return np.array([value_features(value) for value in values], np.float32)
