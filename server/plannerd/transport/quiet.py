"""What grpc logs as an error although nothing is wrong."""

from __future__ import annotations

import logging
from typing import Final

import grpc.aio

_LOGGER: Final = "grpc._cython.cygrpc"
_FAILED_TO_SEND: Final = "ExecuteBatchError"  # which grpc.aio does not export


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of grpc's says more than that a client left.

    A reply that can't be sent, as its client cancelled the call or its deadline passed, raises ExecuteBatchError in
    grpc. It drops that by itself if it has heard of the cancellation before; of thousands of cancelled calls, some
    fail first. The call has its line in the log anyway.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, grpc.aio.InternalError) and type(error).__name__ == _FAILED_TO_SEND)


def quieten_grpc() -> None:
    """Keep such lines out of the log of this process."""
    logging.getLogger(_LOGGER).addFilter(_is_news)
