"""A well-behaved client beside hostile ones: `python -m tests.support.neighbour TARGET TOKEN FOLDER`.

It works through small invocations, one after the other, until its standard input is closed, and writes a line for
each to standard output: when it began, how many seconds it took, and `ok` or what went wrong.
"""

from __future__ import annotations

import sys
import threading
import time

from plannerd_client import Client, Scheduler, agent


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out what it is about."""
    return "kettle"


@agent(output_key="reply")
def draft(ticket: str, category: str) -> str:
    """Writes the reply."""
    return f"About your {category}."


def main(target: str, token: str) -> None:
    """Run invocations until nobody wants more."""
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    planner = Scheduler(goal="the ticket is answered", goal_threshold=0.9, activation_threshold=0.3)
    with Client(target, token=token) as client:
        while not over.is_set():
            started = time.monotonic()
            try:
                run = client.run(planner, [classify, draft], {"ticket": "it leaks"}, output_key="reply", timeout=30)
                outcome = "ok" if run.result == "About your kettle." else f"answered {run.result}"
            except Exception as error:  # noqa: BLE001 (the test looks at it)
                outcome = f"{type(error).__name__} {error}".replace("\n", " ")
            print(started, time.monotonic() - started, outcome, flush=True)
            over.wait(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
