"""`plannerd replay` runs a recording again and says what differs."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plannerd.commands.common import FAILED, OK, Commands, add_command, quiet_grpc, shown, wrong

if TYPE_CHECKING:
    from plannerd.replay import Recording, Replayed


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "replay",
        _replay,
        help="run a recorded invocation again, without a model",
        description="Make each request of a recording again in this process, with the answers of the model that were "
        "recorded, and print where a step differs. Exit code 1 if one does.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the recording")
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        dest="changes",
        action="append",
        default=[],
        help="change a field of the recorded Init, such as scheduler.goal_threshold=0.7; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one step a line")


def _replay(arguments: argparse.Namespace) -> int:
    quiet_grpc()
    from plannerd.app import BuildError, planners
    from plannerd.replay import RecordingError, read_recording

    changes = []
    for change in arguments.changes:
        path, given, value = change.partition("=")
        if not given or not path:
            return wrong(f"--set {change}: must be PATH=VALUE")
        changes.append((path.split("."), _value(value)))
    try:
        recording = read_recording(arguments.file, changes)
        registry = planners()
    except (RecordingError, BuildError) as error:
        return wrong(error)
    steps = asyncio.run(_steps(recording, registry))
    if arguments.json:
        for step in steps:
            print(json.dumps({**asdict(step), "same": not step.differences}))
    else:
        _print(steps, len(recording))
    return FAILED if any(step.differences for step in steps) else OK


async def _steps(recording: Recording, registry: Any) -> list[Replayed]:
    from plannerd.replay import replay

    return [step async for step in replay(recording, registry)]


def _value(text: str) -> Any:
    """What is given on the command line: JSON, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(steps: Sequence[Replayed], recorded: int) -> None:
    for number, step in enumerate(steps, start=1):
        state = "different" if step.differences else "same"
        print(f"{number:>3}  {step.method:<11}  {state:<9}  {shown(step.summary)}".rstrip())
        for difference in step.differences:
            print(f"{'':>5}- {shown(difference)}")
    differing = sum(1 for step in steps if step.differences)
    print()
    if not differing:
        print(f"all {recorded} requests were answered as recorded")
        return
    print(f"{differing} of {len(steps)} answers differ")
    rest = recorded - len(steps)
    if rest == 1:
        print("the request after the last one can't be replayed: what it reports belongs to the recorded run")
    elif rest:
        print(f"the {rest} requests after the last one can't be replayed: what they report belongs to the recorded run")
