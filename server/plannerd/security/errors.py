"""What can be wrong with the credentials of a call, as its client is told."""

from __future__ import annotations

from plannerd.errors import PlannerdError, Reason


class CredentialsError(PlannerdError):
    """UNAUTHENTICATED. The text helps who has the right credentials; it never quotes a token or names an identity.

    Args:
        problem: what is wrong, in a word for programs, in the metadata under `problem`.
        text: the same for people.
    """

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(Reason.UNAUTHENTICATED, text, metadata={"problem": problem})
