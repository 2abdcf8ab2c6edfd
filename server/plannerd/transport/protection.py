"""What protects a server: TLS, and who may call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plannerd.security.files import WatchedFiles
from plannerd.transport.admission import OPEN, Admission

if TYPE_CHECKING:
    from plannerd.security.certificates import ServerCertificate


@dataclass(frozen=True, slots=True)
class Protection:
    """What protects a server.

    Attributes:
        certificate: of TLS; None: plain text.
        admission: who may call.
        watched: files to look at while it runs, and every how many seconds.
    """

    certificate: WatchedFiles[ServerCertificate] | None = None
    admission: Admission = OPEN
    watched: Sequence[tuple[float, Sequence[WatchedFiles[Any]]]] = ()

    @property
    def checks_callers(self) -> bool:
        """Whether not everybody may call who reaches the server."""
        asks_for_certificates = self.certificate is not None and self.certificate.current.client_authorities is not None
        return asks_for_certificates or self.admission.asks


UNPROTECTED: Final = Protection()
