"""BDI: the most important desire that can be pursued, until a more important one comes up."""

from plannerd.planners.bdi.options import BdiOptions, Desire, check_options
from plannerd.planners.bdi.planner import BeliefDesireIntention

__all__ = ["BdiOptions", "BeliefDesireIntention", "Desire", "check_options"]
