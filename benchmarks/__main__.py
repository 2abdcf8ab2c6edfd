"""`python -m benchmarks [NAME]`: run one benchmark, or those of speed."""

from __future__ import annotations

import argparse
import sys

from benchmarks import client, step, store
from benchmarks.quality import command as quality

BENCHMARKS = {"step": step.run, "client": client.run, "store": store.run}


def main() -> int:
    """Run what the command line names."""
    if sys.argv[1:2] == ["quality"]:
        return quality.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="There is also `quality`, what decision models are worth; see `quality --help`.",
    )
    parser.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="the benchmark; default: all of them")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument("--calls", type=int, default=400, help="calls in a round (default 400)")
    arguments = parser.parse_args()
    for name, run in BENCHMARKS.items():
        if arguments.name in (None, name):
            run(arguments.rounds, arguments.calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
