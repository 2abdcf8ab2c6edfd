"""What the tests over real connections share."""

from collections.abc import Iterator

import pytest

from tests.support.servers import ServerProcess, running_server


@pytest.fixture(scope="session")
def plannerd() -> Iterator[ServerProcess]:
    """A server with default settings on a free port, one for all tests; they must not stop it."""
    with running_server() as server:
        yield server
