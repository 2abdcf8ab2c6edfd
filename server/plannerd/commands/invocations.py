"""`plannerd invocations` lists the invocations of a running server, shows one, and ends one."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plannerd.commands.common import (
    FAILED,
    OK,
    Commands,
    add_command,
    add_group,
    complain,
    print_table,
    quiet_grpc,
    wrong,
)
from plannerd.commands.reaching import TARGET, add_connection, connection_of, mismatch

if TYPE_CHECKING:
    from plannerd.transport.operator_client import OperatorClient

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_STATUSES: Final = ("ready", "running", "awaiting", "suspended", "done", "gave_up", "ended")
_NOBODY: Final = "-"


def add(commands: Commands) -> None:
    """Add the commands."""
    group = add_group(
        commands,
        "invocations",
        help="list, show or end the invocations of a running server",
        description="Ask a running server about the invocations of every identity. It must have its service for "
        "operators switched on (the settings `operations`), and whoever asks must be one of them.",
    )
    listing = add_command(
        group,
        "list",
        _list,
        help="list invocations",
        description="List what the server that is asked keeps in its memory, or what all replicas keep in a shared "
        "store.",
    )
    listing.add_argument("--planner", metavar="NAME", default="", help="of this planner")
    listing.add_argument(
        "--status", metavar="STATUS", action="append", choices=_STATUSES, default=[], help=", ".join(_STATUSES)
    )
    listing.add_argument("--identity", metavar="WHO", help="of this identity")
    listing.add_argument("--model", metavar="NAME", default="", help="with this decision model")
    listing.add_argument("--prefix", metavar="TEXT", default="", help="whose id begins like this")
    listing.add_argument("--age", metavar="TIME", default="0", help="begun at least so long ago: 90s, 10m, 2h, 1d")
    listing.add_argument("--idle", metavar="TIME", default="0", help="without a step for at least so long")
    listing.add_argument("--limit", metavar="N", type=int, default=100, help="at most so many (default 100; 0: all)")
    _add_connection(listing)

    showing = add_command(group, "show", _show, help="show an invocation and why its last steps did what they did")
    showing.add_argument("id", metavar="ID", help="the invocation")
    showing.add_argument("--identity", metavar="WHO", default="", help="whose it is; default: without authentication")
    _add_connection(showing)

    ending = add_command(
        group,
        "end",
        _end,
        help="end an invocation",
        description="End an invocation. Its client is told INVOCATION_ENDED, with the reason, at its next request.",
    )
    ending.add_argument("id", metavar="ID", help="the invocation")
    ending.add_argument("--reason", metavar="TEXT", required=True, help="why; the client is told")
    ending.add_argument("--identity", metavar="WHO", default="", help="whose it is; default: without authentication")
    _add_connection(ending)


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON; of a list one line for each invocation")
    add_connection(parser, target=TARGET, timeout=60.0)
    parser.add_argument("--token-file", metavar="FILE", type=Path, help="a file with the bearer token")


# --- the commands


def _list(arguments: argparse.Namespace) -> int:
    ages = {}
    for name, text in (("min_age", arguments.age), ("min_idle", arguments.idle)):
        seconds = _seconds(text)
        if seconds is None:
            return wrong(f"'{text}' is no time: give a number and s, m, h or d, such as 10m")
        ages[name] = seconds
    if arguments.limit < 0:
        return wrong("--limit must not be negative")
    wanted = {
        "planner": arguments.planner,
        "statuses": arguments.status,
        "model": arguments.model,
        "invocation_id_prefix": arguments.prefix,
        **ages,
    }
    if arguments.identity is not None:
        wanted["identity"] = arguments.identity

    def run(client: OperatorClient) -> int:
        found = client.list(wanted, arguments.limit)
        if arguments.json:
            for summary in found:
                print(json.dumps(summary))
            return OK
        rows = [_row(summary) for summary in found]
        print_table(["INVOCATION", "IDENTITY", "PLANNER", "STATUS", "REVISION", "CALLS", "AGE", "IDLE", "MODEL"], rows)
        if arguments.limit and len(rows) == arguments.limit:
            complain(f"there may be more than {arguments.limit}: see --limit")
        return OK

    return _with_client(arguments, run)


def _show(arguments: argparse.Namespace) -> int:
    def run(client: OperatorClient) -> int:
        shown = client.get(arguments.identity, arguments.id)
        if arguments.json:
            print(json.dumps(shown, indent=2))
            return OK
        for line in _lines(shown):
            print(line)
        return OK

    return _with_client(arguments, run)


def _end(arguments: argparse.Namespace) -> int:
    def run(client: OperatorClient) -> int:
        ended = client.end(arguments.identity, arguments.id, arguments.reason)
        before = _word(ended.get("previous_status", ""), "INVOCATION_STATUS_")
        if arguments.json:
            print(json.dumps(ended))
        elif before == "ended":
            print(f"{arguments.id} was ended before")
        else:
            print(f"{arguments.id} is ended; it was {before}")
        return OK

    return _with_client(arguments, run)


def _with_client(arguments: argparse.Namespace, run: Callable[[OperatorClient], int]) -> int:
    quiet_grpc()
    from plannerd.transport.operator_client import CallError, OperatorClient

    problem = mismatch(arguments)
    if problem is not None:
        return wrong(problem)
    try:
        with OperatorClient(connection_of(arguments)) as client:
            return run(client)
    except OSError as error:
        return wrong(f"{error.filename}: {error.strerror}")
    except CallError as error:
        complain(error)
        return FAILED


# --- how they are printed


def _row(summary: dict[str, Any]) -> list[str]:
    return [
        _printable(summary["invocation_id"]),
        _printable(summary.get("identity", "")) or _NOBODY,
        summary.get("planner", _NOBODY),
        _word(summary["status"], "INVOCATION_STATUS_"),
        str(summary["position"].get("revision", 0)),
        str(summary.get("live_calls", 0)),
        _since(summary.get("began_at")),
        _since(summary.get("changed_at")),
        summary.get("model", _NOBODY),
    ]


def _lines(shown: dict[str, Any]) -> Iterator[str]:
    summary = shown["summary"]
    position = summary["position"]
    yield f"invocation  {_printable(summary['invocation_id'])}"
    yield f"identity    {_printable(summary.get('identity', '')) or _NOBODY}"
    yield f"planner     {summary.get('planner', _NOBODY)}"
    status = _word(summary["status"], "INVOCATION_STATUS_")
    if "give_up_reason" in shown:
        status += f" ({_word(shown['give_up_reason'], 'GIVE_UP_REASON_')})"
    yield f"status      {status}"
    yield f"position    revision {position.get('revision', 0)}, epoch {position['epoch']}"
    yield f"model       {summary.get('model', _NOBODY)}"
    for name in ("began", "changed"):
        at = summary.get(f"{name}_at")
        if at:
            yield f"{name:<11} {_time(at)} ({_since(at)} ago)"
    if "traceparent" in shown:
        yield f"trace       {shown['traceparent']}"
    if "ending" in summary:
        yield f"ended       {_ended(summary['ending'])}"
    for call in shown.get("calls", ()):
        agent = _printable(call["agent_id"])
        yield f"call        {_printable(call['id'])}  {agent}  {_word(call['status'], 'CALL_STATUS_')}"
    for step in shown.get("steps", ()):
        yield ""
        yield from _step_lines(step)


def _step_lines(step: dict[str, Any]) -> Iterator[str]:
    explanation = step.get("explanation", {})
    outcome = _word(explanation.get("outcome", ""), "STEP_OUTCOME_")
    yield f"step {step['position'].get('revision', 0)}  {_time(step['made_at'])}  {outcome}"
    if "summary" in explanation:
        yield f"  {_printable(explanation['summary'], 400)}"
    for agent in explanation.get("agents", ()):
        score = f"  {agent['score']:.2f} of {agent['threshold']:.2f}" if {"score", "threshold"} <= agent.keys() else ""
        missing = f"  ({', '.join(map(_printable, agent['missing_keys']))})" if "missing_keys" in agent else ""
        called = "  called" if agent.get("called") else ""
        status = _word(agent["status"], "AGENT_STATUS_")
        yield f"  {_printable(agent['agent_id'])}: {status}{score}{missing}{called}"
    goal = explanation.get("goal")
    if goal and "probability" in goal:
        yield f"  goal: {goal['probability']:.2f} of {goal.get('threshold', 0.0):.2f}"
    for decision in explanation.get("decisions", ()):
        seconds = float(decision.get("latency", "0s").rstrip("s"))
        model = decision.get("resolved_model", decision["model"])
        yield f"  asked {_printable(model)} ({decision['provider']}), {seconds * 1000:.1f} ms"
    for warning in step.get("warnings", ()):
        yield f"  warning {_word(warning['code'], 'WARNING_CODE_')}: {_printable(warning['message'], 400)}"


def _ended(ending: dict[str, Any]) -> str:
    by = (
        f"by operator {_printable(ending.get('operator', '')) or _NOBODY}"
        if ending.get("by_operator")
        else "by its client"
    )
    outcome = _word(ending.get("outcome", ""), "END_OUTCOME_")
    how = f", {outcome}" if outcome else ""
    return f"{by}{how}" + (f": {_printable(ending['message'], 500)}" if "message" in ending else "")


def _word(name: str, prefix: str) -> str:
    """`CALL_STATUS_OUTSTANDING` as one reads it."""
    return name.removeprefix(prefix).lower().replace("_", " ")


def _printable(text: str, length: int = 128) -> str:
    """`text`, which somebody else chose, without characters that change the terminal."""
    text = text[:length]
    return text if text.isprintable() else ascii(text)[1:-1]


def _time(at: str) -> str:
    return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def _since(at: str | None) -> str:
    """How long ago something was, in a word."""
    if at is None:
        return _NOBODY
    seconds = max(0, round((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _seconds(text: str) -> float | None:
    found = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]+)?)([smhd]?)", text)
    return float(found[1]) * _UNITS[found[2]] if found else None
