"""What all tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.redis import RedisProcess, Stores, running_redis


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisProcess]:
    """A Redis for all tests; they must not stop it, and use prefixes of their own."""
    with running_redis() as process:
        yield process


@pytest.fixture
async def stores(redis: RedisProcess) -> AsyncIterator[Stores]:
    """Makes stores on that Redis."""
    stores = Stores(redis.port)
    yield stores
    await stores.close()
