"""The decision models of a server, by name, and the one way to ask them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from plannerd.decisions.answers import MAX_MODEL_CHARS, DecisionResponse
from plannerd.decisions.deadline import seconds_left
from plannerd.decisions.masking import mask_error, masked_response, secrets_of
from plannerd.decisions.model import DecisionModel
from plannerd.decisions.questions import DecisionRequest
from plannerd.decisions.retries import RETRIES_SPENT
from plannerd.decisions.validation import check_answers, check_limits, check_request, checked_usage, sendable
from plannerd.errors import PlannerdError, Reason

_DOWN: Final = (Reason.DECISION_MODEL_UNAVAILABLE, Reason.DECISION_MODEL_CREDENTIALS, Reason.DECISION_MODEL_REJECTED)
"""After these a model counts as down, until it answers again."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model under the `name` by which clients ask for it."""

    name: str
    model: DecisionModel


class DecisionModels:
    """Named decision models, one of which may be the default.

    Args:
        models: the models by name; may be empty, for planners that ask none.
        default: the name of the model for those who name none; the only model, if there is one alone.
        clock: monotonic seconds.

    Raises:
        ValueError: `default` is not among the names.
    """

    def __init__(
        self,
        models: Mapping[str, DecisionModel],
        default: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if default is not None and default not in models:
            raise ValueError(f"the default decision model '{default}' is none of those configured: {_list(models)}")
        self._models = {name: NamedModel(name, model) for name, model in models.items()}
        self._clock = clock
        self._down: dict[str, tuple[float, Reason]] = {}
        self._default = next(iter(models)) if default is None and len(models) == 1 else default
        self._open = dict.fromkeys(models, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The configured names, in order."""
        return tuple(self._models)

    @property
    def default(self) -> str | None:
        """The name of the default model."""
        return self._default

    @property
    def open(self) -> Mapping[str, int]:
        """How many requests each model was given and has not answered, by its name."""
        return self._open

    def get(self, name: str | None = None) -> NamedModel:
        """The model of that name, the default for None.

        Raises:
            PlannerdError: DECISION_MODEL_NOT_FOUND, with the configured names.
        """
        wanted = self._default if name is None else name
        if wanted is not None and wanted in self._models:
            return self._models[wanted]
        problem = "there is no default decision model" if wanted is None else f"there is no decision model '{wanted}'"
        raise PlannerdError(
            Reason.DECISION_MODEL_NOT_FOUND,
            f"{problem}; configured: {_list(self._models)}",
            metadata={"model": wanted or "", "configured": ",".join(self._models)},
        )

    async def ask(self, named: NamedModel, request: DecisionRequest, timeout: float | None = None) -> DecisionResponse:
        """Ask a model, with request and answers checked, and without its secrets in what it says.

        Args:
            named: the model, from `get`.
            request: what to ask.
            timeout: seconds after which the model counts as unavailable; None: no limit. The deadline of the
                call behind it (`deadline.call_deadline`) is another matter: who has one cancels this call. The
                model is told what is left of it, if that is less.

        Raises:
            PlannerdError: what `check_request`, `check_limits` and `check_answers` raise, what the model
                raises, and DECISION_MODEL_UNAVAILABLE, with `retries_spent`, when it took longer than `timeout`.
        """
        check_request(request)
        check_limits(request, named.model.limits, named.name)
        self._open[named.name] += 1
        try:
            response = masked_response(await _decide(named, request, timeout), secrets_of(named.model))
        except PlannerdError as error:
            mask_error(error, secrets_of(named.model))
            if error.reason in _DOWN:
                self._down[named.name] = (self._clock(), error.reason)
            raise
        finally:
            self._open[named.name] -= 1
        self._down.pop(named.name, None)
        answers = check_answers(request.questions, response.answers)
        return replace(
            response,
            answers=answers,
            model=sendable(response.model, MAX_MODEL_CHARS),
            usage=checked_usage(response.usage),
        )

    def down(self, name: str, seconds: float) -> Reason | None:
        """Why the last decision of a model failed, if that was not longer ago than `seconds`; None: it works."""
        failed = self._down.get(name)
        return failed[1] if failed is not None and self._clock() - failed[0] <= seconds else None

    async def close(self) -> None:
        """Close every model."""
        await asyncio.gather(*(named.model.close() for named in self._models.values()))


async def _decide(named: NamedModel, request: DecisionRequest, timeout: float | None) -> DecisionResponse:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await named.model.decide(request, seconds_left(timeout))
    except TimeoutError:
        if not limit.expired():
            raise
        raise PlannerdError(
            Reason.DECISION_MODEL_UNAVAILABLE,
            f"decision model '{named.name}' did not answer within {timeout:g} s",
            # All of its time went by: asking once more would take as long and as many attempts again.
            metadata={"model": named.name, "timeout_seconds": f"{timeout:g}", RETRIES_SPENT: "true"},
        ) from None


def _list(names: Mapping[str, object]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
