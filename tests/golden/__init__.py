"""Execution states of every released format, to be restored for ever."""
