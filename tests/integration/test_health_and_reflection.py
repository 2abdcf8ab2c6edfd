"""Health and reflection, as clients that know only these two services use them."""

from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from plannerd.transport import server as server_module
from tests.support.services import contract_services, service, serving

SERVING = health_pb2.HealthCheckResponse.SERVING


async def reflected(channel: grpc.aio.Channel, **question: Any) -> Any:
    """Ask the reflection service one question."""
    stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
    await stream.write(reflection_pb2.ServerReflectionRequest(**question))
    await stream.done_writing()
    return await stream.read()


async def test_health_of_the_server_and_of_each_service() -> None:
    """Health knows the server as a whole and every service, and no others."""
    services = [service(descriptor) for descriptor in contract_services()]
    async with serving(*services) as running:
        check = health_pb2_grpc.HealthStub(running.channel).Check
        for name in ("", *(descriptor.full_name for descriptor in contract_services())):
            assert (await check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(health_pb2.HealthCheckRequest(service="planner.v1.Nothing"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("setting", [None, True])
async def test_reflection_shows_the_contract(setting: bool | None) -> None:
    """On loopback, by default, clients can learn all services, and the contract behind each."""
    services = [service(descriptor) for descriptor in contract_services()]
    async with serving(*services, reflection=setting) as running:
        listed = await reflected(running.channel, list_services="*")
        names = {entry.name for entry in listed.list_services_response.service}
        assert names >= {descriptor.full_name for descriptor in contract_services()} | {"grpc.health.v1.Health"}
        found = await reflected(running.channel, file_containing_symbol="planner.v1.PlannerService")
        files = [FileDescriptorProto.FromString(raw) for raw in found.file_descriptor_response.file_descriptor_proto]
        assert "planner/v1/planner.proto" in {file.name for file in files}


async def test_reflection_can_be_switched_off() -> None:
    """With the setting off nobody can list services."""
    async with serving(service(), reflection=False) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reflected(running.channel, list_services="*")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("setting", [None, True, False])
async def test_reflection_beyond_loopback_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, setting: bool | None
) -> None:
    """Where other machines can reach the server, reflection is off unless it is switched on."""
    # As if the address were not loopback: what else there is differs from machine to machine.
    monkeypatch.setattr(server_module, "check_exposure", lambda host, addresses, tls, allow_insecure: True)
    async with serving(service(), reflection=setting) as running:
        pass
    [started] = running.events("serving")
    assert started["reflection"] is (setting is True)
    assert len(running.events("insecure")) == 1
