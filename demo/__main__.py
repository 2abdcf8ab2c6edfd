"""`python -m demo`: a real server, a pile of support tickets, and every decision on the screen."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plannerd_client
from demo import bdi, cascade, router, scheduler, tune
from demo.screen import Screen
from tests.support.servers import running_server

DEMOS = {"bdi": bdi, "cascade": cascade, "router": router, "scheduler": scheduler, "tune": tune}


def main() -> int:
    """Run the demo that the command line names; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "planner",
        nargs="?",
        default="scheduler",
        choices=sorted(DEMOS),
        help="default: scheduler; tune: find thresholds for it and for the cascade",
    )
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--config", metavar="FILE", help="settings of the server, as for another default model")
    server.add_argument("--target", metavar="HOST:PORT", help="a server that runs already; default: start one")
    parser.add_argument("--tickets", type=int, metavar="N", help="stop after N tickets")
    parser.add_argument("--quiet", action="store_true", help="the summary only")
    arguments = parser.parse_args()
    # The client logs warnings of the server; what matters of them is on the screen.
    logging.getLogger("plannerd_client").setLevel(logging.ERROR)
    screen = Screen(sys.stdout, quiet=arguments.quiet)
    started = time.monotonic()
    screen.heading(f"plannerd demo: {arguments.planner}")
    with serving(arguments, screen) as target, plannerd_client.Client(target) as client:
        failed = DEMOS[arguments.planner].run(client, screen, arguments.tickets)
    screen.line(f"Done in {time.monotonic() - started:.1f} s.")
    return 1 if failed else 0


@contextmanager
def serving(arguments: argparse.Namespace, screen: Screen) -> Iterator[str]:
    """The address of the server that the command line names, or of one that runs as long as this does."""
    if arguments.target is not None:
        screen.line(f"Asking the server on {arguments.target}.")
        yield arguments.target
        return
    screen.line("Starting a server ...")
    started = time.monotonic()
    config = [] if arguments.config is None else ["--config", str(Path(arguments.config).resolve())]
    with running_server("--log-level", "warning", *config) as server:
        screen.line(f"Serving on {server.target} after {time.monotonic() - started:.1f} s.")
        yield server.target


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
