"""Every case, against the service in this process."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Case, load
from tests.conformance.runner import run
from tests.conformance.scripts import MODES, Mode
from tests.conformance.targets import InProcess


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("case", load(), ids=lambda case: case.id)
async def test_in_process(case: Case, mode: Mode) -> None:
    """The service does what the case says, however much its client sends and wherever the invocation lives."""
    await run(case, InProcess(), mode)
