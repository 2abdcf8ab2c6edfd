"""The confidence cascade: cheap agents first, until a decision model accepts an answer."""

from plannerd.planners.cascade.options import CascadeOptions, check_options
from plannerd.planners.cascade.planner import ConfidenceCascade

__all__ = ["CascadeOptions", "ConfidenceCascade", "check_options"]
