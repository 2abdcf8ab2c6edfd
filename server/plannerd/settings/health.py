"""Settings of health: what of the server's dependencies makes it not ready."""

from __future__ import annotations

from pydantic import Field

from plannerd.settings.base import Seconds, Section


class HealthSettings(Section):
    """What health says about the store and the decision models."""

    interval_seconds: Seconds = Field(
        5.0, gt=0, description="How often the server looks whether what it depends on is there."
    )
    store_away_seconds: Seconds | None = Field(
        30.0,
        description="How long the shared store may be away until the server as a whole is NOT_SERVING. null: it stays "
        "SERVING, and calls fail with STORE_UNAVAILABLE.",
    )
    model_down_seconds: Seconds = Field(
        60.0,
        gt=0,
        description="How long a decision model counts as down after a decision failed, unless one succeeds before. "
        "Models are not asked for the sake of health.",
    )
    required_models: list[str] = Field(
        default_factory=list,
        description="The decision models without which the server as a whole is NOT_SERVING while they are down.",
    )
