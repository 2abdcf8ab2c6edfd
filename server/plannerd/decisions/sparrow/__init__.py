"""The provider `sparrow`: small decision models inside the package sparrow-decider, numpy only."""

from plannerd.decisions.sparrow.model import SparrowModel

__all__ = ["SparrowModel"]
