"""The rules of the state table hold for every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.engine import STORE_MAKER
from tests.support.redis import Stores

RULES = (
    "test_composition",
    "test_resume_with_changes",
    "test_state_table_attach",
    "test_state_table_endings",
    "test_state_table_in_flight",
    "test_state_table_init",
    "test_state_table_positions",
    "test_state_table_steps",
    "test_transactions",
)
STORES = ("memory", "redis", "redis read anew")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of these modules with each store."""
    if metafunc.module.__name__.rpartition(".")[2] in RULES:
        metafunc.parametrize("every_store", STORES, indirect=True)


@pytest.fixture(autouse=True)
def every_store(request: pytest.FixtureRequest) -> Iterator[None]:
    """The store of every server that the test makes."""
    kind = getattr(request, "param", "memory")
    if kind == "memory":
        yield
        return
    stores: Stores = request.getfixturevalue("stores")
    token = STORE_MAKER.set(
        lambda bounds, clock, definitions: stores.make(bounds, clock, definitions, forgetful=kind != "redis")
    )
    yield
    STORE_MAKER.reset(token)
