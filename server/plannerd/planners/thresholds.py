"""Thresholds: strictly between 0 and 1, reached by `probability >= threshold`."""

from __future__ import annotations

from plannerd.planners.system import Problems


def check_threshold(value: float | None, path: str, problems: Problems) -> float:
    """The threshold; a problem is noted if it is unset, NaN, or not strictly between 0 and 1.

    Args:
        value: as the client sent it, None where it did not.
        path: the field it was sent in.
        problems: where problems are noted.
    """
    if value is None:
        problems.add(path, "is required: a number strictly between 0 and 1, tuned on the decision model in use")
        return 0.5
    if not 0 < value < 1:  # false for NaN
        problems.add(path, f"must lie strictly between 0 and 1, but is {value:g}")
    return value
