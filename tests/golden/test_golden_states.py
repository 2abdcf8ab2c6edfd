"""Each released format of execution states can be restored for ever (docs/contract.md, Versions)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plannerd.invocations.state_format import FORMATS, newest_format
from tests.golden.scenarios import SCENARIOS
from tests.golden.states import files, make, restored, seen, text_of, without_wording

KEPT = {f"{path.parent.name}/{path.stem}": json.loads(path.read_text(encoding="utf-8")) for path in files()}


@pytest.mark.parametrize("document", KEPT.values(), ids=KEPT)
async def test_a_state_that_was_kept_is_restored_and_goes_on(document: dict[str, Any]) -> None:
    """A state of any released format is restored with its calls and action, and the next step is the one of then."""
    client = await restored(document)
    assert seen(client) == document.get("then", document["there"])


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_format_that_is_written_has_not_changed(name: str) -> None:
    """This server writes the very states that were kept for its format; another form needs another version."""
    made = json.loads(text_of(await make(SCENARIOS[name])))
    assert without_wording(made) == without_wording(KEPT[f"v{newest_format()}/{name}"])


def test_every_format_that_is_restored_is_kept() -> None:
    """There are states of every format that this server says it restores, and of no other."""
    assert {path.parent.name for path in files()} == {f"v{version}" for version in FORMATS}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_states_hold_nothing_of_the_scope(name: str) -> None:
    """Neither values of the scope nor outputs appear in a state."""
    scenario = SCENARIOS[name]
    client = await scenario.client()
    data = client.state.data.decode()
    for value in ("t1", "t2", "f1", "a1", "x"):
        assert f'"{value}"' not in data
