"""The model: replace this file by yours.

This one compares words. It is there so that the template does something; don't decide anything by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from decision_model.answers import choice, refuse, scale, yes_no
from plannerd_protos.planner.v1.decision_pb2 import Answer, Question

NAME: Final = "word-overlap-1"
"""The model as it names itself. Change it whenever answers change: thresholds are tuned to a model."""


def answer(values: Mapping[str, Any], question: Question) -> Answer:
    """Answer one question about an input.

    It may also be an `async def`. A plain function runs in a thread of its own, so it may take its time.

    Args:
        values: the input: None, bool, int, float, str, list, dict, and `server.Image` for images.
        question: the question, as plannerd asks it.

    Raises:
        server.Unsupported: the request is nothing for this model; plannerd's client is told why.
    """
    known = _words(" ".join(map(str, values.values())))
    match question.WhichOneof("kind"):
        case "yes_no":
            wanted = question.yes_no.yes_when or question.text
            return yes_no(_overlap(_words(wanted), known))
        case "choice":
            options = question.choice.options
            return choice({o.name: _overlap(_words(f"{o.name} {o.description}"), known) for o in options})
        case "scale":
            place = _overlap(_words(question.text), known) * (len(question.scale.levels) - 1)
            return scale([max(0.0, 1 - abs(level - place)) for level in range(len(question.scale.levels))])
        case _:
            return refuse("this kind of question is new to me")


def _words(text: str) -> set[str]:
    return {word.lower().removesuffix("s") for word in re.findall(r"\w{3,}", text)}


def _overlap(wanted: set[str], known: set[str]) -> float:
    return len(wanted & known) / len(wanted) if wanted else 0.0
