"""Through how many servers a question came, so that servers that ask each other in a circle find out."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from plannerd.errors import PlannerdError, Reason

HEADER: Final = "plannerd-hops"
"""The metadata key by which one plannerd tells the next one."""

MAX_HOPS: Final = 8

hops: ContextVar[int] = ContextVar("hops", default=0)
"""Of the request that is being answered."""


def arrived(header: str) -> None:
    """Note through how many servers the request came that this task answers.

    Args:
        header: what the caller sent; nothing where it is no plannerd.

    Raises:
        PlannerdError: DECISION_MODEL_LIMIT when there were too many.
    """
    count = int(header) if header.isascii() and header.isdigit() and len(header) < 4 else 0
    if count > MAX_HOPS:
        raise PlannerdError(
            Reason.DECISION_MODEL_LIMIT,
            f"the question came through more than {MAX_HOPS} servers: decision models of the provider grpc ask each "
            "other in a circle; the operator has to point one of them to a model",
            metadata={"limit": "hops", "allowed": str(MAX_HOPS), "requested": str(count)},
        )
    hops.set(count)
