"""`plannerd config` checks or lists the settings."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
import json

from plannerd.commands.common import OK, Commands, add_command, add_config, add_group, settings_of, wrong


def add(commands: Commands) -> None:
    """Add the commands."""
    group = add_group(commands, "config", help="check or list the settings")
    check = add_command(
        group,
        "check",
        _check,
        help="say whether a server would start with these settings",
        description="Read the file and the environment and make all parts of a server, without listening.",
    )
    add_config(check)
    add_command(
        group,
        "schema",
        _schema,
        help="print a JSON schema of the file",
        description="Print a JSON schema of the settings file, for editors and for checks of deployments. Some rules "
        "about several settings together are checked by `config check` alone.",
    )
    add_command(group, "reference", _reference, help="print a table of all settings, in Markdown")


def _check(arguments: argparse.Namespace) -> int:
    from plannerd.settings import SettingsError

    try:
        settings = settings_of(arguments)
    except SettingsError as error:
        return wrong(error)

    from plannerd.app import BuildError, build

    try:
        app = build(settings)
    except BuildError as error:
        return wrong(error)
    asyncio.run(app.close())
    print("the settings are fine")
    return OK


def _schema(_: argparse.Namespace) -> int:
    from plannerd.settings import schema

    print(json.dumps(schema(), indent=2))
    return OK


def _reference(_: argparse.Namespace) -> int:
    from plannerd.settings import reference_table

    print(reference_table())
    return OK
