"""Run a storm: `python -m tests.faults --help`."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.faults.harness import Options
from tests.faults.report import calmly, run
from tests.faults.stores import STORES
from tests.support.redis import REDIS


def main() -> int:
    """Run it and print what came out; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many invocations (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of everything that is left to chance (default: a new one)")
    parser.add_argument("--pause", type=float, default=0.7, help="seconds between two events, on average")
    parser.add_argument("--width", type=int, default=24, help="invocations under way at a time")
    parser.add_argument("--store", choices=STORES, action="append", help="what servers keep (default: each in turn)")
    parser.add_argument("--keep", type=Path, help="a new folder for events and snapshots (default: thrown away)")
    chosen = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    if chosen.store != ["memory"] and shutil.which(REDIS) is None:
        parser.error(f"{REDIS} is not installed: install it, or use --store memory")
    broken = False
    options = Options(cases=chosen.cases, seed=seed, pause=chosen.pause, width=chosen.width)
    with tempfile.TemporaryDirectory(prefix="plannerd-faults-") as temporary:
        folder = chosen.keep or Path(temporary)
        calm = calmly(options, folder / "undisturbed")
        for store in chosen.store or STORES:
            report = run(replace(options, store=STORES[store]), calm, folder / store)
            print(report.text(), end="\n\n", flush=True)
            broken = broken or bool(report.wrong)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
