"""Handlers from descriptors, and the gate, where no connection is needed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from plannerd.app import build
from plannerd.settings import Settings
from plannerd.telemetry.logging import CallLog
from plannerd.transport.gate import Gate
from plannerd.transport.handlers import Service, service_handler
from plannerd.transport.messages import MessageBounds
from tests.support.services import PLANNER_SERVICE, captured_log, contract_services, service

BOUNDS = MessageBounds(1024, 1024)


@pytest.fixture
def gate() -> Gate:
    with captured_log():
        return Gate(CallLog())


def test_the_server_has_every_service_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plannerd serves is what the contract has, no service more and none less."""
    monkeypatch.setattr("plannerd.app.SparrowModel", lambda model, **_: SimpleNamespace())
    names = [served.name for served in build(Settings()).services]
    assert sorted(names) == sorted(descriptor.full_name for descriptor in contract_services())


def test_every_method_of_the_server_is_implemented(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Each method of each service has an implementation of the right form."""
    monkeypatch.setattr("plannerd.app.SparrowModel", lambda model, **_: SimpleNamespace())
    for served in build(Settings()).services:
        service_handler(served, gate, BOUNDS)


def test_missing_methods_are_found_at_once(gate: Gate) -> None:
    """A service that lacks a method can't be registered."""
    lacking = vars(service().implementation).copy()
    del lacking["End"]
    with pytest.raises(TypeError, match="PlannerService/End"):
        service_handler(Service(PLANNER_SERVICE, SimpleNamespace(**lacking)), gate, BOUNDS)


@pytest.mark.parametrize("name", ["Init", "Run"])
def test_methods_of_another_form_are_found_at_once(gate: Gate, name: str) -> None:
    """A unary method must be an async function, a stream must give an iterator."""

    def plain(request: object, call: object) -> bytes:
        return b""

    async def coroutine(request: object, call: object) -> bytes:
        return b""

    methods: dict[str, Any] = {name: coroutine if name == "Run" else plain}
    wrong = service(**methods)
    with pytest.raises(TypeError, match=f"PlannerService/{name}"):
        service_handler(wrong, gate, BOUNDS)


@pytest.mark.parametrize("side", ["client_streaming", "server_streaming"])
def test_streams_one_way_are_refused(gate: Gate, side: str) -> None:
    """A stream in one direction alone is no form that a service can have here."""
    file = descriptor_pb2.FileDescriptorProto(name=f"test/{side}.proto", package=f"test.{side}", syntax="proto3")
    file.message_type.add(name="Empty")
    name = f".test.{side}.Empty"
    method = file.service.add(name="One").method.add(name="Way", input_type=name, output_type=name)
    setattr(method, side, True)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindServiceByName(f"test.{side}.One")
    with pytest.raises(TypeError, match="one direction"):
        service_handler(Service(descriptor, SimpleNamespace(Way=None)), gate, BOUNDS)


async def test_an_abort_passes_through(gate: Gate) -> None:
    """The error by which grpc ends an answered call reaches grpc as the very same object."""
    sent: list[object] = []

    class Answered:
        def done(self) -> bool:
            return True

        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.NOT_FOUND

        async def abort(self, *arguments: object) -> None:
            sent.append(arguments)

    passage = gate.enter("/a/b", cast("Any", Answered()))
    error = grpc.aio.AbortError()
    with pytest.raises(grpc.aio.AbortError) as caught:
        await gate.fail(passage, error)
    assert caught.value is error
    assert sent == []


async def test_the_gate_counts_who_is_inside(gate: Gate) -> None:
    """The gate is empty before the first call and after the last one."""
    await gate.empty()
    first, second = gate.enter("/a/b", cast("Any", None)), gate.enter("/a/b", cast("Any", None))
    waiting = asyncio.ensure_future(gate.empty())
    gate.leave(first)
    await asyncio.sleep(0)
    assert (gate.inside, waiting.done()) == (1, False)
    gate.leave(second)
    await waiting
    assert gate.inside == 0
