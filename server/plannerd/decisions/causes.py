"""Why the server of a model failed, in its own words or those of the connection.

They may have addresses in them, so they are no part of what clients are told. They stand behind an error as its
`__cause__`, for `plannerd models check`.
"""

from __future__ import annotations

from typing import Any, Final

from plannerd.decisions.masking import masked

_MAX_TEXT: Final = 1000


class CauseError(Exception):
    """A cause of which only the text is kept."""


def cause_of_connection(error: BaseException) -> CauseError:
    """What is at the bottom of a failed connection, such as the system's own error."""
    seen = {id(error)}
    while True:
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
        if inner is None or id(inner) in seen:
            return CauseError(_told(error))
        seen.add(id(inner))
        error = inner


def _told(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    # Its type tells more than its text: asyncio says "Connect call failed" and a number.
    return f"{type(error).__name__}: {text}" if isinstance(error, ConnectionError) else text


def cause_text(error: BaseException, secrets: tuple[str, ...] = ()) -> str:
    """The text of the cause of `error`, without secrets, cut; empty if it has none."""
    cause = error.__cause__
    if cause is None:
        return ""
    details: Any = getattr(cause, "details", None)  # of a gRPC status
    text = str(details() if callable(details) else cause) or type(cause).__name__
    return masked(text, secrets)[:_MAX_TEXT]
