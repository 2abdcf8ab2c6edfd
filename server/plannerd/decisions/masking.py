"""Hides this server's secrets in what the server of a model says, which may repeat what it was sent.

Only a secret as it was sent is found, not one that was encoded or taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from plannerd.decisions.answers import Answer, DecisionResponse, Refusal
from plannerd.decisions.model import DecisionModel
from plannerd.errors import PlannerdError

HIDDEN: Final = "***"
"""What stands where a secret was."""

SHORTEST: Final = 4
"""Characters of a secret: what is shorter is none, and would be found in any text."""


def secrets_of(model: DecisionModel) -> tuple[str, ...]:
    """What a model's server is sent and nobody else may see; empty for models that are sent no secrets."""
    found: tuple[str, ...] = getattr(model, "secrets", ())
    return found


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` without secrets. Mask first and cut later, or a part of a secret is left."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def masked_response(response: DecisionResponse, secrets: tuple[str, ...]) -> DecisionResponse:
    """`response` without secrets where a model writes as it likes: its name, and why it refuses."""
    if not secrets:
        return response
    answers: dict[str, Answer] = {
        name: Refusal(masked(answer.message, secrets)) if isinstance(answer, Refusal) else answer
        for name, answer in response.answers.items()
    }
    return replace(response, answers=answers, model=masked(response.model, secrets))


def mask_error(error: PlannerdError, secrets: tuple[str, ...]) -> None:
    """Take secrets out of what a client is told by `error`."""
    error.message = masked(error.message, secrets)
    error.args = (error.message,)
    error.metadata = {masked(key, secrets): masked(value, secrets) for key, value in error.metadata.items()}
