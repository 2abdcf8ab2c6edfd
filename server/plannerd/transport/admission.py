"""Who may call: the credentials of a call as grpc has them, and how many calls one identity may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from plannerd.errors import PlannerdError, Reason
from plannerd.security.identity import NOBODY, Authentication, Caller, Credentials

# What grpc calls the names in a client's certificate.
_NAMES: Final[Mapping[str, str]] = {
    "uri": "peer_uri",
    "dns": "peer_dns",
    "email": "peer_email",
    "common_name": "x509_common_name",
    "subject": "x509_subject",
}
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Entrant:
    """A call that was let in.

    Attributes:
        caller: who calls.
        credentials: what they showed; None where nobody asks for any.
    """

    caller: Caller
    credentials: Credentials | None


_ANYBODY: Final = Entrant(NOBODY, None)


class Admission:
    """Lets calls in by who makes them, and counts them.

    Args:
        authentication: finds out who calls; None: nobody asks.
        max_calls: calls that one identity may have under way.
    """

    def __init__(self, authentication: Authentication | None = None, max_calls: int = 5000) -> None:
        self._authentication = authentication
        self._max_calls = max_calls
        self._calls: dict[str, int] = {}

    @property
    def asks(self) -> bool:
        """Whether calls need credentials."""
        return self._authentication is not None

    def enter(self, context: grpc.aio.ServicerContext[Any, Any]) -> Entrant:
        """Let a call in; it is counted until `leave`.

        Raises:
            PlannerdError: UNAUTHENTICATED, or LIMIT_EXCEEDED.
        """
        if self._authentication is None:
            return _ANYBODY
        credentials = _credentials(context, certificate=self._authentication.reads_certificates)
        caller = self._authentication.authenticate(credentials)
        calls = self._calls.get(caller.identity, 0)
        if calls >= self._max_calls:
            raise _too_many(self._max_calls)
        self._calls[caller.identity] = calls + 1
        return Entrant(caller, credentials)

    def leave(self, entrant: Entrant) -> None:
        """A call that was let in is over."""
        if entrant.credentials is None:
            return
        identity = entrant.caller.identity
        left = self._calls[identity] - 1
        if left:
            self._calls[identity] = left
        else:
            del self._calls[identity]

    def refusal(self, entrant: Entrant) -> PlannerdError | None:
        """Why a call would not be let in any more with what it showed; None if it would be."""
        if self._authentication is None or entrant.credentials is None:
            return None
        try:
            caller = self._authentication.authenticate(entrant.credentials)
        except PlannerdError as error:
            return error
        if caller == entrant.caller:
            return None
        return PlannerdError(
            Reason.UNAUTHENTICATED,
            "the credentials of this stream belong to another identity by now; open another stream",
            metadata={"problem": "changed"},
        )


OPEN: Final = Admission()
"""Lets everybody in."""


def _credentials(context: grpc.aio.ServicerContext[Any, Any], *, certificate: bool) -> Credentials:
    authorization = tuple(
        value if isinstance(value, str) else ""
        for key, value in context.invocation_metadata() or ()
        if key == "authorization"
    )
    return Credentials(authorization, _names(context.auth_context()) if certificate else None)


def _names(found: Mapping[str, Iterable[bytes]]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(name.decode("utf-8", "replace") for name in found.get(key, ())) for kind, key in _NAMES.items()}


def _too_many(allowed: int) -> PlannerdError:
    return PlannerdError(
        Reason.LIMIT_EXCEEDED,
        f"you have {allowed} calls and streams under way, and this server allows no more; let some end first",
        metadata={"limit": "max_calls_per_identity", "allowed": str(allowed), "requested": str(allowed + 1)},
        retry_after=_RETRY_SECONDS,
    )
