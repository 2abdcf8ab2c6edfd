"""planner.v1.OperatorService: decode, one call of the operations, encode."""

from __future__ import annotations

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.operations import Operations
from plannerd.services.codec.operations import (
    decode_key,
    decode_query,
    decode_reason,
    encode_shown,
    encode_status,
    encode_summary,
)
from plannerd.services.context import CallContext
from plannerd.telemetry.logging import get_logger, printable
from plannerd_protos.planner.v1 import operator_pb2


class OperatorService:
    """Serves operators.

    Args:
        operations: what they may do; None: the service is switched off.
        everybody: every caller is an operator.
        content: whether questions and inputs are shown, as far as clients asked for them.
    """

    def __init__(self, operations: Operations | None, *, everybody: bool = False, content: bool = False) -> None:
        self._operations = operations
        self._everybody = everybody
        self._content = content

    async def ListInvocations(
        self, request: operator_pb2.ListInvocationsRequest, call: CallContext
    ) -> operator_pb2.ListInvocationsResponse:
        """List invocations."""
        operations = self._for(call)
        query, size = decode_query(request)
        listing = await operations.list(query, size, request.page_token)
        return operator_pb2.ListInvocationsResponse(
            invocations=map(encode_summary, listing.summaries), next_page_token=listing.next_token
        )

    async def GetInvocation(
        self, request: operator_pb2.GetInvocationRequest, call: CallContext
    ) -> operator_pb2.GetInvocationResponse:
        """Show an invocation."""
        shown = await self._for(call).show(decode_key(request))
        return encode_shown(shown, content=self._content)

    async def EndInvocation(
        self, request: operator_pb2.EndInvocationRequest, call: CallContext
    ) -> operator_pb2.EndInvocationResponse:
        """End an invocation."""
        operations = self._for(call)
        key, reason = decode_key(request), decode_reason(request)
        before = await operations.end(call.identity, key, reason)
        get_logger().warning("ended_by_operator", operator=printable(call.identity), invocation_id=printable(key[1]))
        return operator_pb2.EndInvocationResponse(previous_status=encode_status(before.status))

    def _for(self, call: CallContext) -> Operations:
        """The operations, if this caller may use them.

        Raises:
            PlannerdError: SWITCHED_OFF, PERMISSION_DENIED.
        """
        if self._operations is None:
            raise PlannerdError(
                Reason.SWITCHED_OFF,
                "This server has no operators: name them in auth.operators, or set operations.enabled.",
            )
        if not (call.operator or self._everybody):
            raise PlannerdError(Reason.PERMISSION_DENIED, "Only operators of this server may do this.")
        return self._operations
