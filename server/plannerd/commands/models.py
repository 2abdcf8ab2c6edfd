"""`plannerd models` lists the decision models, and asks each one whether it works."""

# ruff: noqa: PLC0415 (imports inside functions)

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from plannerd.commands.common import (
    FAILED,
    OK,
    Commands,
    add_command,
    add_config,
    add_group,
    print_table,
    settings_of,
    shown,
    wrong,
)

if TYPE_CHECKING:
    from plannerd.decisions.checkup import Asked, Checkup
    from plannerd.settings import Settings

_MAX_NAME: Final = 64  # characters of a model's own name, so that the table stays one
_MAX_TEXT: Final = 300  # characters of what a model or its server says


def add(commands: Commands) -> None:
    """Add the commands."""
    group = add_group(commands, "models", help="list or check the decision models")
    check = add_command(
        group,
        "check",
        _check,
        help="ask each model a question of each kind",
        description="Ask each configured decision model one question of each kind, all models at the same time, and "
        "print what came of it. Exit code 1 if one of them fails. The models are asked from here, with the settings "
        "that a server would have; secrets are not shown.",
    )
    add_config(check)
    check.add_argument("names", metavar="NAME", nargs="*", help="the models to ask; default: all")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="for each question; default: decisions.timeout_seconds"
    )
    listing = add_command(group, "list", _list, help="list the models by name, without asking them")
    add_config(listing)


def _list(arguments: argparse.Namespace) -> int:
    from plannerd.settings import SettingsError

    try:
        settings = settings_of(arguments)
    except SettingsError as error:
        return wrong(error)
    decisions = settings.decisions
    default = decisions.default or (next(iter(decisions.models)) if len(decisions.models) == 1 else None)
    rows = [[name, model.provider, "default" if name == default else ""] for name, model in decisions.models.items()]
    print_table(["NAME", "PROVIDER", ""], rows)
    return OK


def _check(arguments: argparse.Namespace) -> int:
    from plannerd.settings import SettingsError

    if arguments.timeout is not None and not 0 < arguments.timeout <= 1_000_000:
        return wrong("--timeout must be more than 0")
    try:
        settings = settings_of(arguments)
    except SettingsError as error:
        return wrong(error)
    configured = settings.decisions.models
    unknown = [name for name in arguments.names if name not in configured]
    if unknown:
        there = ", ".join(f"'{name}'" for name in configured) or "none"
        return wrong(f"there is no decision model '{unknown[0]}'; configured: {there}")
    names = tuple(dict.fromkeys(arguments.names)) or tuple(configured)
    reports = asyncio.run(_reports(settings, names, arguments.timeout or settings.decisions.timeout_seconds))
    if arguments.json:
        print(json.dumps(reports, indent=2))
    else:
        _print_reports(reports)
    return OK if all(report["ok"] for report in reports) else FAILED


async def _reports(settings: Settings, names: tuple[str, ...], timeout: float) -> list[dict[str, Any]]:
    """What is known of each model, in order; one that can't even be made does not keep the others from being asked."""
    from plannerd.app import BuildError, build_model
    from plannerd.decisions.checkup import check_all
    from plannerd.decisions.masking import secrets_of
    from plannerd.decisions.models import DecisionModels

    made, broken = {}, {}
    for name in names:
        try:
            made[name] = build_model(name, settings.decisions.models[name])
        except BuildError as error:
            broken[name] = str(error)
    models = DecisionModels(made)
    try:
        checkups = {checkup.name: checkup for checkup in await check_all(models, tuple(made), timeout)}
    finally:
        await models.close()
    secrets = tuple(secret for model in made.values() for secret in secrets_of(model))
    return [
        _report(checkups[name], secrets)
        if name in checkups
        else {
            "name": name,
            "provider": settings.decisions.models[name].provider,
            "ok": False,
            "error": {"reason": "CONFIGURATION", "message": broken[name]},
        }
        for name in names
    ]


def _report(checkup: Checkup, secrets: tuple[str, ...]) -> dict[str, Any]:
    """The report of one model as it is printed in JSON. Secrets of one model are hidden in what all of them say."""
    from plannerd.decisions.masking import masked

    report: dict[str, Any] = {
        "name": checkup.name,
        "provider": checkup.provider,
        "ok": checkup.well,
        "reachable": checkup.reachable,
        "model": masked(checkup.model, secrets),
        "limits": asdict(checkup.limits),
        "answers": {one.kind: _answer(one, secrets) for one in checkup.asked},
    }
    answered = [one for one in checkup.asked if one.response is not None]
    if answered:
        report["latency_ms"] = round(1000 * sum(one.seconds for one in answered) / len(answered), 1)
        report["retries"] = sum(one.response.retries for one in answered if one.response)
    failed = next((one for one in checkup.asked if one.error is not None), None)
    if failed is not None:
        report["error"] = _error(failed, secrets)
    return report


def _answer(asked: Asked, secrets: tuple[str, ...]) -> dict[str, Any]:
    from plannerd.decisions.answers import Refusal
    from plannerd.decisions.masking import masked

    if asked.answer is None:
        return {"error": _error(asked, secrets)}
    if isinstance(asked.answer, Refusal):
        return {"refused": masked(asked.answer.message, secrets)}
    return asdict(asked.answer)


def _error(asked: Asked, secrets: tuple[str, ...]) -> dict[str, str]:
    from plannerd.decisions.causes import cause_text
    from plannerd.decisions.masking import masked

    error = asked.error
    if error is None:
        return {}
    told = {"reason": error.reason.value, "message": masked(error.message, secrets), "question": asked.kind}
    cause = cause_text(error, secrets)
    return {**told, "cause": cause} if cause else told


# --- the table


def _print_reports(reports: Sequence[dict[str, Any]]) -> None:
    header = ["NAME", "PROVIDER", "STATE", "LATENCY", "MODEL", "LIMITS"]
    print_table(header, [_row(report) for report in reports])
    for report in reports:
        print(f"\n{report['name']}:")
        for line in _details(report):
            print(f"  {line}")


def _row(report: dict[str, Any]) -> list[str]:
    latency = f"{report['latency_ms']:.1f} ms" if "latency_ms" in report else "-"
    state = "ok" if report["ok"] else "failed" if report.get("reachable") else "unreachable"
    if "limits" not in report:
        state = "misconfigured"
    return [
        report["name"],
        report["provider"],
        state,
        latency,
        shown(report.get("model") or "-", _MAX_NAME),
        _limits(report.get("limits", {})),
    ]


def _limits(limits: dict[str, Any]) -> str:
    numbers = [f"{allowed} {what}" for what, allowed in limits.items() if type(allowed) is int]
    switches = [what if allowed else f"no {what}" for what, allowed in limits.items() if type(allowed) is bool]
    return ", ".join([*numbers, *switches]) or "-"


def _details(report: dict[str, Any]) -> Iterable[str]:
    for kind, answer in report.get("answers", {}).items():
        yield f"{kind}: {_answered(answer)}"
    if report["ok"] and not report["answers"]:
        yield "not asked: its answers are those of a file"
    if "limits" not in report:
        yield shown(report["error"]["message"])


def _answered(answer: dict[str, Any]) -> str:
    match answer:
        case {"error": {"reason": reason, "message": message, **others}}:
            because = f" (because: {shown(str(others['cause']), _MAX_TEXT)})" if "cause" in others else ""
            return f"{reason}: {shown(message)}{because}"
        case {"refused": message}:
            return f"refused: {shown(message, _MAX_TEXT)}" if message else "refused"
        case {"value": value, "probabilities": probabilities}:
            probability = (probabilities or {}).get(value)
            return str(value) if probability is None else f"{value} with {probability:.2f}"
        case {"mean": mean}:
            return f"{mean:.2f} on a scale from 0 to 1"
        case _:
            return f"yes with {answer['probability']:.2f}"
