"""The composition root, where it does more than put parts together."""

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from plannerd.app import _log_warnings, build
from plannerd.decisions.answers import DecisionResponse
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option
from plannerd.decisions.sparrow import SparrowModel, library
from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.commands import StepEvent
from plannerd.planners.moves import WarningCode
from plannerd.settings import DecisionsSettings, Settings, SparrowSettings
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


def ask(settings: Settings, options: int) -> str:
    """How the default model of a server calls itself when it is asked to choose among so many options."""
    question = Choice("which", "Which one?", tuple(Option(f"option {i}") for i in range(options)))

    async def scenario() -> str:
        app = build(settings)
        try:
            request = DecisionRequest((Field("request", "I was charged twice"),), (question,))
            return (await app.models.ask(app.models.get(), request)).model
        finally:
            await app.close()

    return asyncio.run(scenario())


def sparrow(**chosen: object) -> Settings:
    """Settings with one model."""
    return Settings(decisions=DecisionsSettings(models={"m": SparrowSettings.model_validate(chosen)}))


@pytest.mark.parametrize("name", library.bundled_models())
def test_every_model_of_the_package_can_be_selected(name: str) -> None:
    """The settings name a sparrow model, and that one answers."""
    assert ask(sparrow(model=name), 2) == name


def test_limits_of_the_embedded_model_are_settings() -> None:
    """A choice may have as many options as the settings say, and not one more."""
    assert ask(sparrow(max_options=3), 3)
    with pytest.raises(PlannerdError) as caught:
        ask(sparrow(max_options=3), 4)
    assert caught.value.reason is Reason.DECISION_MODEL_LIMIT
    assert caught.value.metadata["allowed"] == "3"


def test_the_queue_of_the_embedded_model_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a queue of one, a request is refused as long as another one is being answered."""
    go_on = threading.Event()
    answer = SparrowModel.answer

    def wait(model: SparrowModel, request: DecisionRequest) -> DecisionResponse:
        assert go_on.wait(30)
        return answer(model, request)

    monkeypatch.setattr(SparrowModel, "answer", wait)
    question = Choice("which", "Which one?", (Option("a"), Option("b")))
    request = DecisionRequest((Field("request", "hello"),), (question,))

    async def scenario() -> None:
        app = build(sparrow(queue=1))
        first = asyncio.create_task(app.models.ask(app.models.get(), request))
        await asyncio.sleep(0)
        with pytest.raises(PlannerdError) as caught:
            await app.models.ask(app.models.get(), request)
        assert caught.value.reason is Reason.DECISION_QUEUE_FULL
        go_on.set()
        await first
        await app.close()

    asyncio.run(scenario())
