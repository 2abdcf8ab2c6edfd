"""Planners on random invocations, against a second writing of their rules."""
