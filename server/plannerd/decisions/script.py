"""Answers that were written down beforehand: the script behind the provider `fixed`.

A script has steps, which answer one request each, in order; rules, which answer a question whenever it is
asked; and defaults for each kind of question. An answer is written as

- a number: the probability of yes, or the mean of a scale;
- a text: the chosen option;
- a map with `probability`, `value` or `mean`, and where wanted `probabilities` and `confidence`;
- `{refuse: message}`: the model declines to answer the question;
- `{error: REASON, message: ..., retry_after: seconds}`: the whole request fails.

A step is a map from question names to answers, or an error, or `{model: name, answers: {...}}` where the model
names itself otherwise for once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from plannerd.errors import Reason


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WrittenYesNo(_Strict):
    """A yes/no answer."""

    probability: float
    confidence: float | None = None


class WrittenChoice(_Strict):
    """A choice."""

    value: str
    probabilities: dict[str, float] | None = None
    confidence: float | None = None


class WrittenScale(_Strict):
    """A place on a scale."""

    mean: float
    probabilities: list[float] | None = None
    confidence: float | None = None


class WrittenRefusal(_Strict):
    """A refusal, with the model's word for why."""

    refuse: str


class WrittenError(_Strict):
    """A failure of the whole request: a reason, a message, and the seconds to wait before another try."""

    error: Annotated[Reason, Field(strict=False)]
    message: str = "the script says so"
    retry_after: Annotated[float, Field(ge=0)] | None = None


_FORMS: Final = ("probability", "value", "mean", "refuse", "error")


def _form_of_answer(written: object) -> str | None:
    # The names of forms are in <> so that they can be told from keys where a problem is reported.
    if isinstance(written, dict):
        return next((f"<{form}>" for form in _FORMS if form in written), None)
    return "<text>" if isinstance(written, str) else "<number>"


def _form_of_step(written: object) -> str:
    # Questions may be called `error`, `model` and `answers`, too; what they are answered with tells them apart.
    match written:
        case {"error": str()}:
            return "<error>"
        case {"model": str(), "answers": dict(), **rest} if not rest:
            return "<named>"
    return "<map>"


Written: TypeAlias = Annotated[
    Annotated[float, Tag("<number>")]
    | Annotated[str, Tag("<text>")]
    | Annotated[WrittenYesNo, Tag("<probability>")]
    | Annotated[WrittenChoice, Tag("<value>")]
    | Annotated[WrittenScale, Tag("<mean>")]
    | Annotated[WrittenRefusal, Tag("<refuse>")]
    | Annotated[WrittenError, Tag("<error>")],
    Discriminator(
        _form_of_answer,
        custom_error_type="answer",
        custom_error_message=f"Input should be a number, a text, or a map with one of {', '.join(_FORMS)}",
    ),
]


class WrittenStep(_Strict):
    """The answers to one request, and the name that the model gives itself in it."""

    model: Annotated[str, Field(min_length=1)]
    answers: dict[str, Written]


Step: TypeAlias = Annotated[
    Annotated[WrittenError, Tag("<error>")]
    | Annotated[WrittenStep, Tag("<named>")]
    | Annotated[dict[str, Written], Tag("<map>")],
    Discriminator(_form_of_step),
]


class Defaults(_Strict):
    """Answers by kind of question."""

    yes_no: Written | None = None
    choice: Written | None = None
    scale: Written | None = None


class Limits(_Strict):
    """What one request may hold; see `ModelLimits`."""

    questions: Annotated[int, Field(ge=1)] | None = None
    options: Annotated[int, Field(ge=2)] | None = None
    levels: Annotated[int, Field(ge=2)] | None = None
    images: bool = True


class Script(_Strict):
    """A script, and the name and limits of the model that follows it."""

    model: Annotated[str, Field(min_length=1)] = "fixed"
    steps: list[Step] = []
    rules: dict[str, Written] = {}
    defaults: Defaults = Defaults()
    limits: Limits = Limits()


def parse_script(written: object, source: str = "script") -> Script:
    """A script from plain maps, lists, texts and numbers.

    Args:
        written: a map with the fields of `Script`; unknown keys are refused.
        source: what to call it in errors.

    Raises:
        ValueError: it is no valid script; the message has a line for each problem.
    """
    try:
        return Script.model_validate(written)
    except ValidationError as error:
        problems = [f"{source}: {_path(problem['loc'])}{problem['msg']}" for problem in error.errors()]
        raise ValueError("\n".join(problems)) from None


def load_script(path: Path) -> Script:
    """A script from a file: YAML, or JSON if the file's name ends in `.json`.

    Raises:
        OSError: the file can't be read.
        ValueError: it is no valid script; each line of the message names the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        written = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return parse_script({} if written is None else written, str(path))


def _path(steps: tuple[int | str, ...]) -> str:
    """Where in a script, as `steps[1].goal.probability: `."""
    keys = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if not _is_form(step)]
    return "".join(keys).removeprefix(".") + ": " if keys else ""


def _is_form(step: int | str) -> bool:
    return isinstance(step, str) and step.startswith("<")


__all__ = [
    "Script",
    "Step",
    "Written",
    "WrittenChoice",
    "WrittenError",
    "WrittenRefusal",
    "WrittenScale",
    "WrittenStep",
    "WrittenYesNo",
    "load_script",
    "parse_script",
]
