"""Conditions on the scope, as clients declare them."""

from plannerd.conditions.condition import (
    Belief,
    BeliefHolds,
    Beliefs,
    Cel,
    Condition,
    Facts,
    PresentKey,
    describe,
    evaluate,
)

__all__ = ["Belief", "BeliefHolds", "Beliefs", "Cel", "Condition", "Facts", "PresentKey", "describe", "evaluate"]
