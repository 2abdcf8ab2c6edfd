"""What is settled about telemetry here; the rest is OpenTelemetry's own variables."""

from __future__ import annotations

from pydantic import Field

from plannerd.settings.base import Seconds, Section


class RecordSettings(Section):
    """Which content traces may have. Whoever can read the traces can then read it."""

    scope: bool = Field(False, description="Record in traces what requests write to the scope.")
    inputs: bool = Field(False, description="Record in traces the inputs of decisions.")
    outputs: bool = Field(False, description="Record in traces the outputs that agents report.")
    goals: bool = Field(False, description="Record in traces the goals of schedulers and the criteria of cascades.")
    questions: bool = Field(
        False,
        description="Record in traces the questions that models are asked. Goals and descriptions of agents are part "
        "of them.",
    )


class TelemetrySettings(Section):
    """Traces and metrics, which the usual OTEL_ variables switch on."""

    flush_seconds: Seconds = Field(
        2.0,
        description="On shutdown, after the last call, how long the last traces and metrics may take to reach the "
        "collector. Then they are lost.",
    )
    record: RecordSettings = RecordSettings()
