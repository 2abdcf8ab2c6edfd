"""The composition root, where it does more than put parts together."""

import json
from types import SimpleNamespace
from typing import cast

from plannerd.app import _log_warnings
from plannerd.invocations.commands import StepEvent
from plannerd.planners.moves import WarningCode
from tests.support.services import captured_log


def test_warnings_of_steps_are_logged_without_their_text() -> None:
    """What a step warns of is in the log with the agent, but not in the words of planners and clients."""
    warning = SimpleNamespace(code=WarningCode.AGENT_DROPPED, message="tangerine", agent_id="writer$0")
    event = SimpleNamespace(invocation_id="order-7\n", reply=SimpleNamespace(warnings=[warning]))
    with captured_log() as stream:
        _log_warnings(cast("StepEvent", event))
    [line] = stream.getvalue().splitlines()
    logged = json.loads(line)
    assert (logged["event"], logged["code"], logged["agent_id"]) == ("step_warning", "AGENT_DROPPED", "writer$0")
    assert logged["invocation_id"] == "order-7\\n"
    assert "tangerine" not in line
