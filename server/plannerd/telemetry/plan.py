"""What the environment's OTEL_ variables ask for, before anything of OpenTelemetry is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PROTOCOLS: Final = ("grpc", "http/protobuf")


class TelemetryError(Exception):
    """The environment asks for something that can't be. Its text is for the operator."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the environment asks for.

    Attributes:
        traces: the protocol for traces; None: they are off.
        metrics: likewise.
    """

    traces: str | None
    metrics: str | None


def planned(environment: Mapping[str, str]) -> Plan | None:
    """What to export; None where no endpoint is set, or telemetry is switched off.

    Raises:
        TelemetryError: a variable has a value that is not supported.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    plan = Plan(_protocol(environment, "TRACES"), _protocol(environment, "METRICS"))
    return plan if plan.traces or plan.metrics else None


def _protocol(environment: Mapping[str, str], signal: str) -> str | None:
    def chosen(*variables: str) -> tuple[str, str]:
        return next(((name, environment[name].strip()) for name in variables if environment.get(name)), ("", ""))

    if not chosen(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")[1]:
        return None
    variable, exporter = chosen(f"OTEL_{signal}_EXPORTER")
    if exporter not in ("", "otlp", "none"):
        raise TelemetryError(f"{variable}: '{exporter}' is not supported; there are otlp and none")
    if exporter == "none":
        return None
    variable, protocol = chosen(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol and protocol not in _PROTOCOLS:
        raise TelemetryError(f"{variable}: '{protocol}' is not supported; there are {' and '.join(_PROTOCOLS)}")
    return protocol or "grpc"
