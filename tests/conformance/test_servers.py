"""Every case, against two real servers over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.conformance import scripts
from tests.conformance.cases import Case, load
from tests.conformance.runner import run
from tests.conformance.scripts import MODES, Mode
from tests.conformance.servers import running
from tests.conformance.targets import Servers


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The addresses of two servers that have the scripts of all cases."""
    with running(scripts.write(tmp_path_factory.mktemp("servers"), load())) as started:
        yield started


@pytest.fixture
async def servers(addresses: list[str]) -> AsyncIterator[Servers]:
    """Both servers; the channels are of this test's event loop."""
    channels = [grpc.aio.insecure_channel(address) for address in addresses]
    yield Servers(channels)
    for channel in channels:
        await channel.close()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("case", load(), ids=lambda case: case.id)
async def test_servers(case: Case, mode: Mode, servers: Servers) -> None:
    """A server does what the case says, also where the invocation moves to another one after every step."""
    await run(case, servers, mode)
