"""The decision scheduler: the most useful agent next, until the goal is reached."""

from plannerd.planners.scheduler.options import SchedulerOptions, check_options
from plannerd.planners.scheduler.planner import DecisionScheduler

__all__ = ["DecisionScheduler", "SchedulerOptions", "check_options"]
