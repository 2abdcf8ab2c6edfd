"""Messages as bytes: decoded and encoded here and not by grpc, so that what is wrong with one goes through the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from plannerd.errors import PlannerdError, Reason
from plannerd.services.codec.run import ENVELOPE_BYTES
from plannerd.services.failures import too_large

Reply: TypeAlias = Message | bytes

_ID_FIELD: Final = "invocation_id"


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """The largest messages.

    Attributes:
        request: bytes of a request.
        reply: bytes of a reply.
    """

    request: int
    reply: int

    def with_envelope(self) -> MessageBounds:
        """The bounds of the same messages inside those of a stream."""
        return MessageBounds(self.request + ENVELOPE_BYTES, self.reply + ENVELOPE_BYTES)


class Codec:
    """Decodes the requests of a method and encodes its replies."""

    def __init__(self, method: MethodDescriptor, bounds: MessageBounds) -> None:
        self.path = f"/{method.containing_service.full_name}/{method.name}"
        self.has_id = _ID_FIELD in method.input_type.fields_by_name
        self._request = GetMessageClass(method.input_type)
        self._reply = GetMessageClass(method.output_type)
        self._bounds = bounds

    def decode(self, raw: bytes) -> Message:
        """The message that `raw` holds.

        Raises:
            PlannerdError: LIMIT_EXCEEDED, or INVALID_REQUEST for bytes that are no such message.
        """
        if len(raw) > self._bounds.request:
            raise too_large("request", len(raw), self._bounds.request)
        try:
            return self._request.FromString(raw)
        except DecodeError:
            name = self._request.DESCRIPTOR.full_name
            raise PlannerdError(
                Reason.INVALID_REQUEST, f"the request is not a well-formed {name}, or is nested too deep"
            ) from None

    def encode(self, reply: Reply) -> bytes:
        """The bytes of `reply`.

        Raises:
            PlannerdError: LIMIT_EXCEEDED.
            TypeError: the reply is neither bytes nor the method's message.
        """
        if not isinstance(reply, bytes):
            if not isinstance(reply, self._reply):
                raise TypeError(f"{self.path} gave a {type(reply).__name__}, not a {self._reply.__name__}")
            reply = reply.SerializeToString()
        if len(reply) > self._bounds.reply:
            raise too_large("reply", len(reply), self._bounds.reply)
        return reply
