"""CEL conditions: checked by cel-cpp, evaluated here, bounded in form and work."""

from plannerd.conditions.cel.compiled import CompiledCel, compile_cel
from plannerd.conditions.cel.limits import WORK
from plannerd.conditions.cel.operations import Work

__all__ = ["WORK", "CompiledCel", "Work", "compile_cel"]
