"""What commands share."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from plannerd.settings import Settings

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2

Command: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command; the exit code."""

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(commands: Commands, name: str, run: Command, **texts: Any) -> argparse.ArgumentParser:
    """A command that is done by `run`; `texts` are its help and description."""
    parser: argparse.ArgumentParser = commands.add_parser(name, allow_abbrev=False, **texts)
    parser.set_defaults(run=run)
    return parser


def add_group(commands: Commands, name: str, **texts: Any) -> Commands:
    """A command that consists of commands."""
    parser = commands.add_parser(name, allow_abbrev=False, **texts)
    return parser.add_subparsers(metavar="COMMAND", required=True)


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option for a file with settings."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="a YAML file with settings")


def settings_of(arguments: argparse.Namespace, overrides: dict[str, Any] | None = None) -> Settings:
    """The settings that `--config` and the environment have.

    Raises:
        SettingsError: something is wrong with them.
    """
    quiet_grpc()
    from plannerd.settings import load

    return load(arguments.config, overrides)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below each other."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def wrong(problem: object) -> int:
    """Say what is wrong with the command line or the settings; the exit code for it."""
    complain(problem)
    return WRONG


def complain(problem: object) -> None:
    """Say something on standard error, each line marked as ours."""
    for line in str(problem).splitlines():
        print(f"plannerd: {shown(line)}", file=sys.stderr)


def shown(text: str, most: int | None = None) -> str:
    """`text` as it may be written to a terminal: what is no printable character escaped, cut to `most` characters."""
    if most is not None and len(text) > most:
        text = f"{text[:most]}..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quiet_grpc() -> None:
    """Keep the C core of grpc from writing lines of its own into the log, unless somebody asked for them."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
