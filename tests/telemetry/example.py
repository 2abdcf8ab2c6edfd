"""The example of docs/reading-a-decision.md: a trace of a real run, as text. `python -m tests.telemetry.example`."""

from __future__ import annotations

import sys
from typing import Any

from plannerd_client import Client, Scheduler, agent
from tests.support.otlp import SeenSpan, receiving
from tests.support.servers import running_server

# Different in each run, or of no use on the page.
LEFT_OUT = (
    "rpc.",
    "server.",
    "plannerd.invocation.id",
    "plannerd.position.",
    "plannerd.step.calls",
    "plannerd.step.seconds",
    "plannerd.decision.seconds",
    "plannerd.decision.input_digest",
    "plannerd.stream",
)


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out what the ticket is about."""
    return "refund"


@agent(output_key="reply")
def draft(ticket: str, category: str) -> str:
    """Writes the reply to the customer."""
    return f"About your {category}: we will look into it today."


def example() -> str:
    """Run it and return its trace as text."""
    with receiving() as collector:
        with running_server(environment=collector.environment) as server, Client(server.target, stream=False) as client:
            client.run(
                Scheduler(goal="The customer has a reply", goal_threshold=0.6, activation_threshold=0.3),
                [classify, draft],
                {"ticket": "The kettle leaks, I want my money back"},
                output_key="reply",
            )
        spans = collector.spans
    lines = []
    for call in spans:
        if call.kind == "server":
            lines.append(call.name)
            lines += _below(spans, call, "  ")
    return "\n".join(lines)


def _below(spans: list[SeenSpan], above: SeenSpan, indent: str) -> list[str]:
    lines = []
    for span in spans:
        if span.parent_id == above.span_id and span.kind != "server":
            lines.append(f"{indent}{span.name}")
            lines += [
                f"{indent}    {name} = {_written(value)}"
                for name, value in span.attributes.items()
                if not name.startswith(LEFT_OUT)
            ]
            for event in span.events:
                said = ", ".join(
                    f"{name.removeprefix('plannerd.answer.')} {_written(value)}"
                    for name, value in event.attributes.items()
                )
                lines.append(f"{indent}    * {event.name}: {said}")
            lines += _below(spans, span, indent + "  ")
    return lines


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.stdout.write(example() + "\n")
