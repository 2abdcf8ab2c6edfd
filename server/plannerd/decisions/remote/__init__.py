"""The provider `grpc`: a `DecisionModelService` of the operator's own."""

from plannerd.decisions.remote.connection import Keepalive, RemoteTls
from plannerd.decisions.remote.metadata import Entry
from plannerd.decisions.remote.model import RemoteModel, RemoteOptions

__all__ = ["Entry", "Keepalive", "RemoteModel", "RemoteOptions", "RemoteTls"]
