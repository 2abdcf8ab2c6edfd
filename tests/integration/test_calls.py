"""Calls over real connections: what passes the gate, and what becomes of errors."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from plannerd.errors import PlannerdError, Reason, Violation, invalid
from plannerd.services.context import CallContext
from plannerd.services.failures import CODES, CORRELATION_ID, INTERNAL_TEXT
from plannerd_protos.planner.v1 import planner_pb2
from tests.support.errors import SeenError, seen
from tests.support.services import contract_methods, service, serving
from tests.support.streams import talking

METHODS = {method.full_name: method for method in contract_methods()}

# A deadline that only a call which hangs ever meets.
HANGS = 30.0


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, request: bytes = b"") -> bytes:
    """Call any method with bytes; of a stream the first reply."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming:
        stream = channel.stream_stream(path, bytes, bytes)(iter([request]), timeout=HANGS)
        return await anext(aiter(stream))
    return await channel.unary_unary(path, bytes, bytes)(request, timeout=HANGS)


async def failing(channel: grpc.aio.Channel, method: MethodDescriptor, request: bytes = b"") -> SeenError:
    """Call a method that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, method, request)
    return seen(caught.value)


def raising(method: MethodDescriptor, error: BaseException) -> Any:
    """An implementation of `method` that raises `error`."""
    if not method.client_streaming:

        async def unary(request: object, call: CallContext) -> bytes:
            raise error

        return unary

    async def work(request: object) -> bytes:
        raise error

    return talking(work)


@pytest.mark.parametrize("name", METHODS)
async def test_every_method_is_behind_the_gate(name: str) -> None:
    """Of an unexpected error in any method of any service its client learns a correlation id and no more."""
    method = METHODS[name]
    error = RuntimeError("what the client sent: tangerine")
    async with serving(service(method.containing_service, **{method.name: raising(method, error)})) as running:
        answer = await failing(running.channel, method)
    [logged] = running.events("unexpected_error")
    [line] = running.events("call")
    assert (answer.code, answer.text) == (grpc.StatusCode.INTERNAL, INTERNAL_TEXT)
    assert (answer.domain, answer.reason, set(answer.metadata)) == ("plannerd.dev", "INTERNAL", {CORRELATION_ID})
    assert logged[CORRELATION_ID] == line[CORRELATION_ID] == answer.metadata[CORRELATION_ID]
    assert (line["code"], line["reason"], line["level"]) == ("INTERNAL", "INTERNAL", "error")
    assert "RuntimeError" in logged["exception"]
    assert "tangerine" not in running.log()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reason", [Reason.INVALID_VALUE, Reason.STALE_REVISION, Reason.DECISION_QUEUE_FULL])
async def test_a_domain_error_arrives_whole(name: str, reason: Reason) -> None:
    """A domain error arrives with code, text, reason, metadata, bad fields and waiting time."""
    method = METHODS[name]
    error = PlannerdError(
        reason,
        "naïve: 100 % wrong\nreally",
        violations=[Violation("scope.set[a]", "must be finite")],
        metadata={"limit": "x"},
        retry_after=0.25,
    )
    async with serving(service(method.containing_service, **{method.name: raising(method, error)})) as running:
        answer = await failing(running.channel, method)
    [line] = running.events("call")
    assert answer == SeenError(
        code=CODES[reason],
        text="naïve: 100 % wrong\nreally",
        domain="plannerd.dev",
        reason=reason.value,
        metadata={"limit": "x"},
        violations=[("scope.set[a]", "must be finite")],
        retry_after=0.25,
    )
    assert (line["code"], line["reason"]) == (CODES[reason].name, reason.value)
    assert "naïve" not in str(line)


@pytest.mark.parametrize("name", METHODS)
async def test_requests_that_are_no_messages_are_refused(name: str) -> None:
    """Bytes that can't be decoded are the client's error, with its reason."""
    method = METHODS[name]
    async with serving(service(method.containing_service, **{method.name: raising(method, KeyError())})) as running:
        answer = await failing(running.channel, method, b"\xff\xff\xff")
    assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert method.input_type.full_name in answer.text


@pytest.mark.parametrize("name", METHODS)
async def test_replies_of_the_wrong_kind_are_internal(name: str) -> None:
    """A reply that is not the method's message is a bug, and is not sent."""
    method = METHODS[name]
    wrong = GetMessageClass(method.input_type)()

    async def unary(request: object, call: CallContext) -> Any:
        return wrong

    async def stream(requests: Any, call: CallContext) -> Any:
        yield wrong

    behave = stream if method.client_streaming else unary
    async with serving(service(method.containing_service, **{method.name: behave})) as running:
        answer = await failing(running.channel, method)
    assert (answer.code, answer.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")


async def test_bytes_are_sent_as_they_are() -> None:
    """A reply that is given as bytes arrives byte for byte, even if it is no encoding a library would choose."""
    # The same field twice: a message that was parsed and serialised again would have it once.
    stored = planner_pb2.InitResponse(model="a").SerializeToString() * 2

    async def init(request: planner_pb2.InitRequest, call: CallContext) -> bytes:
        return stored

    async with serving(service(Init=init)) as running:
        assert await call(running.channel, METHODS["planner.v1.PlannerService.Init"]) == stored


async def test_messages_are_encoded() -> None:
    """A reply that is given as a message arrives as that message, and the request as the client's."""

    async def init(request: planner_pb2.InitRequest, call: CallContext) -> planner_pb2.InitResponse:
        return planner_pb2.InitResponse(model=request.invocation_id)

    async with serving(service(Init=init)) as running:
        reply = await running.planner.Init(planner_pb2.InitRequest(invocation_id="x"), timeout=HANGS)
    assert reply == planner_pb2.InitResponse(model="x")


async def test_the_context_of_a_call() -> None:
    """A service learns the caller's trace context and how much time is left."""
    contexts = []

    async def end(request: planner_pb2.EndRequest, call: CallContext) -> planner_pb2.EndResponse:
        contexts.append((call.traceparent, call.time_remaining()))
        return planner_pb2.EndResponse()

    async with serving(service(End=end)) as running:
        await running.planner.End(planner_pb2.EndRequest())
        await running.planner.End(planner_pb2.EndRequest(), timeout=HANGS, metadata=(("traceparent", "00-a-b-01"),))
    assert contexts[0] == ("", None)
    traceparent, remaining = contexts[1]
    assert traceparent == "00-a-b-01"
    assert remaining is not None
    assert 0 < remaining < 2 * HANGS


async def test_one_line_for_each_call() -> None:
    """A call is logged once, with method, code, duration and invocation, and without anything it carried."""

    async def first_action(request: Any, call: CallContext) -> planner_pb2.FirstActionResponse:
        return planner_pb2.FirstActionResponse()

    request = planner_pb2.FirstActionRequest(invocation_id="order-7")
    request.scope.set["city"].string_value = "tangerine"
    async with serving(service(FirstAction=first_action)) as running:
        await running.planner.FirstAction(request, timeout=HANGS)
        await running.planner.FirstAction(planner_pb2.FirstActionRequest(invocation_id="a\n" * 500), timeout=HANGS)
    first, second = running.events("call")
    assert {key: first[key] for key in ("level", "method", "code", "invocation_id")} == {
        "level": "info",
        "method": "/planner.v1.PlannerService/FirstAction",
        "code": "OK",
        "invocation_id": "order-7",
    }
    assert first["duration_ms"] >= 0
    assert "reason" not in first
    assert "tangerine" not in running.log()
    assert "\n" not in second["invocation_id"]
    assert len(second["invocation_id"]) <= 256


async def test_requests_beyond_the_bound_are_refused() -> None:
    """A request larger than the setting is refused with the limit in its metadata; far larger ones unread."""

    async def init(request: planner_pb2.InitRequest, call: CallContext) -> planner_pb2.InitResponse:
        return planner_pb2.InitResponse()

    method = METHODS["planner.v1.PlannerService.Init"]
    fits, over, far_over = (planner_pb2.InitRequest(invocation_id="x" * n) for n in (2045, 2046, 5000))
    async with serving(service(Init=init), max_request_bytes=2048) as running:
        assert await call(running.channel, method, fits.SerializeToString()) == b""
        answer = await failing(running.channel, method, over.SerializeToString())
        assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert answer.metadata == {"limit": "max_request_bytes", "allowed": "2048", "requested": "2049"}
        answer = await failing(running.channel, method, far_over.SerializeToString())
        assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)


async def test_replies_beyond_the_bound_are_refused() -> None:
    """A reply larger than the setting becomes an error that says so."""

    async def init(request: planner_pb2.InitRequest, call: CallContext) -> planner_pb2.InitResponse:
        return planner_pb2.InitResponse(model="x" * 2048)

    async with serving(service(Init=init), max_reply_bytes=2048) as running:
        answer = await failing(running.channel, METHODS["planner.v1.PlannerService.Init"])
    assert (answer.code, answer.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert answer.metadata["limit"] == "max_reply_bytes"


async def test_the_longest_errors_arrive() -> None:
    """An error with the longest text and details arrives as itself every time, at a client with default limits."""
    long = "\u20ac" * 10_000
    error = PlannerdError(
        Reason.UNKNOWN_CALL, long, violations=[Violation(long, long)] * 100, metadata={long: long, "b": long}
    )
    method = METHODS["planner.v1.PlannerService.Init"]
    async with serving(service(Init=raising(method, error))) as running:
        for _ in range(20):
            answer = await failing(running.channel, method)
            assert (answer.code, answer.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_CALL")
            assert answer.violations


async def test_messages_of_exceptions_can_be_logged() -> None:
    """Where the operator wants them, messages of unexpected exceptions and of their causes are logged."""
    method = METHODS["planner.v1.PlannerService.Init"]
    error = RuntimeError("tangerine")
    error.__cause__ = ValueError("kumquat")
    async with serving(service(Init=raising(method, error)), error_messages=True) as running:
        await failing(running.channel, method)
    [logged] = running.events("unexpected_error")
    assert "RuntimeError: tangerine" in logged["exception"]
    assert "ValueError: kumquat" in logged["exception"]


async def test_invalid_is_a_bad_request() -> None:
    """The shortest way to raise an error about one field gives a client the field."""
    method = METHODS["planner.v1.PlannerService.End"]
    async with serving(service(End=raising(method, invalid("invocation_id", "must not be empty")))) as running:
        answer = await failing(running.channel, method)
    assert (answer.text, answer.violations) == (
        "invocation_id: must not be empty",
        [("invocation_id", "must not be empty")],
    )


async def test_calls_do_not_wait_for_each_other() -> None:
    """While one call waits, others are served."""
    release = asyncio.Event()

    async def init(request: Any, call: CallContext) -> planner_pb2.InitResponse:
        await release.wait()
        return planner_pb2.InitResponse()

    async def end(request: Any, call: CallContext) -> planner_pb2.EndResponse:
        release.set()
        return planner_pb2.EndResponse()

    async with serving(service(Init=init, End=end)) as running:
        waiting = asyncio.ensure_future(call(running.channel, METHODS["planner.v1.PlannerService.Init"]))
        await call(running.channel, METHODS["planner.v1.PlannerService.End"])
        assert await waiting == b""
