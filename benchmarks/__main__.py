"""`python -m benchmarks [NAME]`: run one benchmark, or those of speed."""

from __future__ import annotations

import argparse
import sys

from benchmarks import cancellations, client, invocations, step, store, telemetry, workers
from benchmarks.quality import command as quality

NAMES = ("step", "client", "store", "invocations", "cancellations", "telemetry", "workers")


def main() -> int:
    """Run what the command line names."""
    if sys.argv[1:2] == ["quality"]:
        return quality.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="There is also `quality`, what decision models are worth; see `quality --help`.",
    )
    parser.add_argument("name", nargs="?", choices=NAMES, help="the benchmark; default: all of them")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument("--calls", type=int, default=400, help="step, store: calls in a round (default 400)")
    parser.add_argument("--live", type=int, default=100_000, help="invocations: how many (default 100000)")
    parser.add_argument("--cancel", type=int, default=50_000, help="cancellations: how many calls (default 50000)")
    parser.add_argument("--seed", type=int, default=1, help="cancellations: of what is random (default 1)")
    arguments = parser.parse_args()
    good = True
    for name in (arguments.name,) if arguments.name else NAMES:
        match name:
            case "step":
                step.run(arguments.rounds, arguments.calls)
            case "client":
                client.run(arguments.rounds, arguments.calls)
            case "store":
                store.run(arguments.rounds, arguments.calls)
            case "telemetry":
                telemetry.run(arguments.rounds, arguments.calls)
            case "workers":
                workers.run(arguments.rounds, arguments.calls)
            case "invocations":
                invocations.run(arguments.live, arguments.rounds)
            case _:
                good = cancellations.run(arguments.cancel, arguments.seed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
