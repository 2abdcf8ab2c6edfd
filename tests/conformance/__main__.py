"""Runs the conformance suite from the command line; README.md says how."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc

from tests.conformance import scripts
from tests.conformance.cases import Case, load
from tests.conformance.runner import MismatchError, run
from tests.conformance.scripts import INSTANCES, MODES, Mode
from tests.conformance.targets import InProcess, RefusedError, Servers, Target


def main() -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="The conformance suite.")
    commands = parser.add_subparsers(dest="command", required=True)

    settings = commands.add_parser("settings", help="write settings and scripts for servers to be tested")
    settings.add_argument("folder", type=Path)
    settings.add_argument("--servers", type=int, default=INSTANCES, choices=range(1, INSTANCES + 1))

    runs = commands.add_parser("run", help="run cases; without a target in this process")
    runs.add_argument("--target", action="append", default=[], metavar="HOST:PORT", help="a server; give one or two")
    runs.add_argument("--mode", action="append", choices=[mode.name for mode in MODES], help="default: all")
    runs.add_argument("-k", metavar="TEXT", default="", help="only cases whose id contains this")

    arguments = parser.parse_args()
    if arguments.command == "settings":
        for path in scripts.write(arguments.folder, load(), arguments.servers):
            print(path)
        return 0
    if len(arguments.target) > INSTANCES:
        parser.error(f"at most {INSTANCES} targets")
    cases = [case for case in load() if arguments.k in case.id]
    modes = [mode for mode in MODES if not arguments.mode or mode.name in arguments.mode]
    return asyncio.run(_run(cases, modes, arguments.target))


async def _run(cases: Sequence[Case], modes: Sequence[Mode], addresses: Sequence[str]) -> int:
    channels = [grpc.aio.insecure_channel(address) for address in addresses]
    target: Target = Servers(channels) if channels else InProcess()
    failed = 0
    for case in cases:
        for mode in modes:
            try:
                await run(case, target, mode)
            except (MismatchError, RefusedError) as error:
                failed += 1
                print(f"FAILED {error}\n", file=sys.stderr)
    for channel in channels:
        await channel.close()
    print(f"{len(cases)} cases, {len(modes)} modes: {len(cases) * len(modes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
