"""The provider `systemone`: models behind `POST /v1/systemone`, asked through the official client typesafe-sdk."""

from plannerd.decisions.systemone.credentials import ApiKey
from plannerd.decisions.systemone.host import HostOptions
from plannerd.decisions.systemone.model import SystemOneModel

__all__ = ["ApiKey", "HostOptions", "SystemOneModel"]
