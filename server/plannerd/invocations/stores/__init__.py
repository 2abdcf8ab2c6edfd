"""Where invocations are kept between steps: the interface, and a module for each store."""

from plannerd.invocations.stores.memory import MemoryBounds, MemoryStore
from plannerd.invocations.stores.store import Kept, Key, OutdatedError, Page, Store

__all__ = ["Kept", "Key", "MemoryBounds", "MemoryStore", "OutdatedError", "Page", "Store"]
