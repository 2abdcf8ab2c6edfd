"""The server: `planner.v1.DecisionModelService` around a function. There is nothing to change here."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from plannerd_protos.planner.v1.decision_pb2 import Answer, DecideRequest, DecideResponse, Question
from plannerd_protos.planner.v1.decision_pb2_grpc import (
    DecisionModelServiceServicer,
    add_DecisionModelServiceServicer_to_server,
)
from plannerd_protos.planner.v1.value_pb2 import Value

Function = Callable[[Mapping[str, Any], Question], Answer | Awaitable[Answer]]
SERVICE = "planner.v1.DecisionModelService"


@dataclass(frozen=True)
class Image:
    """An image in an input."""

    media_type: str
    data: bytes


class Unsupported(Exception):  # noqa: N818 -- it reads better where it is raised
    """The request is nothing for this model. Its text is shown to whoever asked plannerd."""


class DecisionModel(DecisionModelServiceServicer):
    """Answers requests by a function.

    Args:
        function: answers one question.
        name: the model as it names itself; requests for another one are refused.
        token: the bearer token that callers must have; empty: none.
    """

    def __init__(self, function: Function, name: str, token: str = "") -> None:
        self._function = function
        self._name = name
        self._token = token

    async def Decide(  # noqa: N802 -- the name is gRPC's
        self, request: DecideRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> DecideResponse:
        """Answer every question of a request."""
        if not self._may(context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        if request.model not in {"", self._name}:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no model '{request.model}'")
        if not request.questions:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no question")
        try:
            values = {field.name: to_python(field.value) for field in request.input}
            answers = [await self._answer(values, question) for question in request.questions]
        except Unsupported as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return DecideResponse(answers=answers, model=self._name)

    async def _answer(self, values: Mapping[str, Any], question: Question) -> Answer:
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(values, question)
        else:
            answer = await asyncio.to_thread(self._function, values, question)
        return _named(answer, question.name)

    def _may(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        if not self._token:
            return True
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        return hmac.compare_digest(str(shown).encode(), f"Bearer {self._token}".encode())


def _named(answer: Answer, question: str) -> Answer:
    named = Answer()
    named.CopyFrom(answer)
    named.question = question
    return named


def to_python(value: Value) -> Any:
    """A value of the wire as a plain object.

    Raises:
        Unsupported: it is of a kind that is no part of an input.
    """
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "bool_value" | "int_value" | "double_value" | "string_value" as kind:
            return getattr(value, kind)
        case "list_value":
            return [to_python(item) for item in value.list_value.values]
        case "map_value":
            return {key: to_python(item) for key, item in value.map_value.entries.items()}
        case "content" if value.content.WhichOneof("kind") == "text":
            return value.content.text.text
        case "content" if value.content.WhichOneof("kind") == "image":
            return Image(value.content.image.media_type, value.content.image.data)
        case _:
            raise Unsupported("the input has a value of a kind that this model does not read")


async def serve(
    model: DecisionModelServiceServicer,
    host: str = "127.0.0.1",
    port: int = 50061,
    credentials: grpc.ServerCredentials | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, which finish requests under way first; prints what is listened on.

    Args:
        model: what answers.
        host: where to listen.
        port: the port; 0 for a free one.
        credentials: for TLS.
    """
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_DecisionModelServiceServicer_to_server(model, server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if credentials is None:
        port = server.add_insecure_port(f"{host}:{port}")
    else:
        port = server.add_secure_port(f"{host}:{port}", credentials)
    await server.start()
    for name in ("", SERVICE):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"listening on {host}:{port}", flush=True)
    await stop.wait()
    await checks.enter_graceful_shutdown()
    await server.stop(grace=20)
