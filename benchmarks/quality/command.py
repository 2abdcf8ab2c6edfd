"""`python -m benchmarks quality`: measure decision models on labelled requests."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.asking import Run, Texts, ask_all
from benchmarks.quality.data import FOLDER, Example, load
from benchmarks.quality.report import figures, lines
from plannerd.app import BuildError, build
from plannerd.errors import PlannerdError
from plannerd.settings import SettingsError
from plannerd.settings import load as load_settings

_TEXTS = {field.name: field for field in dataclasses.fields(Texts)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a request failed, 2 if the command line, the settings or the examples are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks quality",
        description="Ask a decision model the planners' questions about labelled requests, and print how often it is "
        "right. Each request is asked about six times. Nothing is listened on.",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings of the server; default: the embedded model"
    )
    parser.add_argument("--model", action="append", metavar="NAME", help="a model of the settings; may be repeated")
    parser.add_argument("--examples", type=Path, default=FOLDER, metavar="FOLDER", help="labelled requests of your own")
    parser.add_argument("--limit", type=int, metavar="N", help="only N requests, spread over all")
    parser.add_argument("--parallel", type=int, default=4, metavar="N", help="requests to the model at a time (4)")
    for text in _TEXTS.values():
        parser.add_argument(f"--{text.name}", metavar="TEXT", help=f"instead of: {text.default}")
    arguments = parser.parse_args(argv)
    if arguments.parallel < 1 or (arguments.limit is not None and arguments.limit < 1):
        parser.error("--parallel and --limit must be at least 1")
    try:
        examples = spread(load(arguments.examples), arguments.limit)
        texts = Texts(**{name: text for name in _TEXTS if (text := getattr(arguments, name)) is not None})
        runs = asyncio.run(measure(arguments.config, arguments.model or [None], examples, texts, arguments.parallel))
    except (BuildError, SettingsError, ValueError, PlannerdError) as error:
        print(error, file=sys.stderr)
        return 2
    for position, (name, run) in enumerate(runs):
        if position:
            print()
        print("\n".join(lines(name, examples, run, figures(examples, run))))
    return 1 if any(run.failures for _, run in runs) else 0


async def measure(
    config: Path | None, names: Sequence[str | None], examples: Sequence[Example], texts: Texts, parallel: int
) -> list[tuple[str, Run]]:
    """Ask the named models of a settings file, one after the other; None is the default model.

    Raises:
        SettingsError: the settings can't be read.
        BuildError: a model can't be made.
        PlannerdError: there is no model of that name.
    """
    app = build(load_settings(config))
    try:
        chosen = [app.models.get(name).name for name in names]
        timeout = app.settings.decisions.timeout_seconds
        return [
            (name, await ask_all(app.models, name, examples, texts, parallel=parallel, timeout=timeout))
            for name in chosen
        ]
    finally:
        await app.close()


def spread(examples: Sequence[Example], limit: int | None) -> list[Example]:
    """`limit` of the examples, from all over."""
    if limit is None or limit >= len(examples):
        return list(examples)
    return [examples[i * len(examples) // limit] for i in range(limit)]
