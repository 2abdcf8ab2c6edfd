"""`python -m benchmarks [NAME]`: run one benchmark, or all of them."""

from __future__ import annotations

import argparse

from benchmarks import step, store

BENCHMARKS = {"step": step.run, "store": store.run}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="the benchmark; default: all of them")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument("--calls", type=int, default=400, help="calls in a round (default 400)")
    arguments = parser.parse_args()
    for name, run in BENCHMARKS.items():
        if arguments.name in (None, name):
            run(arguments.rounds, arguments.calls)


main()
