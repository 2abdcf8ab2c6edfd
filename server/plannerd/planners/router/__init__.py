"""The decision router: a decision model chooses which agents handle a request."""

from plannerd.planners.router.options import RouterOptions, check_options
from plannerd.planners.router.planner import DecisionRouter

__all__ = ["DecisionRouter", "RouterOptions", "check_options"]
