"""The provider `langchain` with real subclasses of LangChain's interface."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain_core.decisions import Choice as LcChoice
from langchain_core.decisions import ClassifierResponse, Noul, NoulCriteria, Score
from langsmith.run_helpers import get_current_run_tree
from langsmith.utils import tracing_is_enabled

from plannerd.app import BuildError, build
from plannerd.decisions.answers import ChoiceAnswer, DecisionResponse, ScaleAnswer, Usage, YesNoAnswer
from plannerd.decisions.langchain import LangChainModel, LangChainOptions
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Scale, YesNo
from plannerd.decisions.retries import RetryRules
from plannerd.errors import PlannerdError, Reason
from plannerd.settings import SettingsError, load
from plannerd.values import Image, Text
from plannerd_client import Client, Router, agent
from tests.support.langchain_models import Behaviour, Blocking, Scripted
from tests.support.servers import run_plannerd, running_server

ASKED = DecisionRequest((Field("text", "hello"),), (YesNo("q", "Is it?"),))
OK = {"model": "theirs", "answers": {"q": {"type": "noul", "noul": 0.75}}}
PATIENCE = 60.0


async def ask(
    behave: Behaviour, request: DecisionRequest = ASKED, timeout: float = PATIENCE, **options: Any
) -> DecisionResponse:
    """The checked response of a model that does what a function says."""
    model = LangChainModel("mine", Scripted(behave), LangChainOptions(**options))
    models = DecisionModels({"mine": model})
    try:
        return await models.ask(models.get(), request, timeout)
    finally:
        await models.close()


def answering(answer: Any) -> Behaviour:
    return lambda state, questions: ClassifierResponse.model_validate(answer)


async def test_questions_and_answers_of_all_kinds() -> None:
    """Names, texts, criteria, values and images become LangChain's own, and its answers ours."""
    seen: list[Any] = []

    def behave(state: Any, questions: Any) -> ClassifierResponse:
        seen.append((state, questions))
        answers = {
            "yes-no": {"type": "noul", "noul": 0.25},
            "pick": {"type": "choice", "choice": "b", "probabilities": {"a": 0.25, "b": 0.75}, "confidence": 0.5},
            "rate": {
                "type": "score",
                "score": 1.5,
                "legend": {0: "low", 1: "mid", 2: "high"},
                "probabilities": {1: 0.5, 2: 0.5},
                "confidence": 0.25,
            },
        }
        return ClassifierResponse.model_validate(
            {"model": "theirs-2", "answers": answers, "usage": {"input_tokens": 7, "output_tokens": 2}}
        )

    fields = (
        Field("order", {"id": 7, "lines": [1.5, None, True, Text("x")]}),
        Field("photo", Image("image/png", b"\x89PNG")),
    )
    questions = (
        YesNo("yes-no", "Is it?", "if so"),
        Choice("pick", "Which?", (Option("a", "the first"), Option("b"))),
        Scale("rate", "How?", ("low", "mid", "high")),
    )
    limits = LangChainOptions().limits
    response = await ask(behave, DecisionRequest(fields, questions), limits=type(limits)(images=True))
    [(state, asked)] = seen
    assert state == {
        "order": {"id": 7, "lines": [1.5, None, True, "x"]},
        "photo": {"type": "image", "base64": base64.b64encode(b"\x89PNG").decode(), "mime_type": "image/png"},
    }
    assert asked == {
        "yes-no": Noul(instructions="Is it?", criteria=NoulCriteria(true="if so")),
        "pick": LcChoice(instructions="Which?", criteria={"a": "the first", "b": None}),
        "rate": Score(instructions="How?", criteria=["low", "mid", "high"]),
    }
    assert response.answers == {
        "yes-no": YesNoAnswer(0.25),
        "pick": ChoiceAnswer("b", {"a": 0.25, "b": 0.75}, 0.5),
        "rate": ScaleAnswer(1.5, (0.0, 0.5, 0.5), 0.25),
    }
    assert (response.model, response.usage) == ("theirs-2", Usage(7, 2))


class StatusError(Exception):
    """An exception as client libraries have them."""

    def __init__(self, status: int) -> None:
        super().__init__("tangerine")
        self.status_code = status


def raising(error: Exception) -> Behaviour:
    def behave(state: Any, questions: Any) -> ClassifierResponse:
        raise error

    return behave


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (answering({"model": "m", "answers": {}}), "DECISION_INVALID_ANSWER"),
        (answering({"model": "m", "answers": {"q": {"type": "noul", "noul": 7}}}), "DECISION_INVALID_ANSWER"),
        (
            answering({"model": "m", "answers": {"q": {"type": "box", "box": dict.fromkeys(
                ("top", "bottom", "left", "right"), 0.5)}}}),
            "DECISION_INVALID_ANSWER",
        ),
        (
            answering({"model": "m", "answers": {"q": {
                "type": "score", "score": 1, "legend": {}, "probabilities": {9: 1.0}, "confidence": 1}}}),
            "DECISION_INVALID_ANSWER",
        ),
        (lambda state, questions: {"q": 1}, "DECISION_MODEL_UNAVAILABLE"),
        (raising(StatusError(401)), "DECISION_MODEL_CREDENTIALS"),
        (raising(StatusError(404)), "DECISION_MODEL_REJECTED"),
        (raising(StatusError(503)), "DECISION_MODEL_UNAVAILABLE"),
        (raising(ConnectionResetError("tangerine")), "DECISION_MODEL_UNAVAILABLE"),
        (raising(RuntimeError("tangerine")), "DECISION_MODEL_UNAVAILABLE"),
        (raising(KeyError("tangerine")), "DECISION_MODEL_UNAVAILABLE"),
    ],
    ids=["missing", "range", "box", "level", "no response", "401", "404", "503", "reset", "runtime", "key"],
)  # fmt: skip
async def test_each_failure_has_its_reason(behave: Behaviour, reason: str) -> None:
    """What a model answers wrongly or raises has a reason, and its text reaches no client."""
    with pytest.raises(PlannerdError) as raised:
        await ask(behave)
    assert raised.value.reason.value == reason
    assert "tangerine" not in raised.value.message


async def test_retries() -> None:
    """With retries set, what may pass is tried again and counted; what won't is not."""
    calls: list[int] = []

    def flapping(state: Any, questions: Any) -> ClassifierResponse:
        calls.append(1)
        if len(calls) < 3:
            raise StatusError(429)
        return ClassifierResponse.model_validate(OK)

    response = await ask(flapping, retries=RetryRules(2, 30.0, 0.01))
    assert (response.retries, len(calls)) == (2, 3)
    calls.clear()

    def broken(state: Any, questions: Any) -> ClassifierResponse:
        calls.append(1)
        raise StatusError(404)

    with pytest.raises(PlannerdError):
        await ask(broken, retries=RetryRules(2, 30.0, 0.01))
    assert len(calls) == 1


async def test_a_model_that_hangs() -> None:
    """An asynchronous model that hangs is given up, and one that blocks holds up nobody else."""
    with pytest.raises(PlannerdError) as raised:
        await ask(lambda state, questions: asyncio.sleep(3600), timeout=0.3)
    assert raised.value.reason is Reason.DECISION_MODEL_UNAVAILABLE
    blocking = Blocking()
    model = LangChainModel("mine", blocking, LangChainOptions(concurrent=1, retries=RetryRules(0, 0.3)))
    started = time.monotonic()
    with pytest.raises(PlannerdError) as raised:
        await model.decide(ASKED, PATIENCE)
    assert raised.value.reason is Reason.DECISION_MODEL_UNAVAILABLE
    assert await asyncio.to_thread(lambda: 1) == 1
    assert time.monotonic() - started < 30
    blocking.release()
    await model.close()


@pytest.mark.parametrize("tracing", [False, True])
async def test_content_is_traced_only_where_the_settings_say_so(tracing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """LangSmith's variables alone do not make plannerd send what clients sent."""
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    enabled: list[bool | str] = []

    def behave(state: Any, questions: Any) -> ClassifierResponse:
        enabled.append(bool(tracing_is_enabled()))
        get_current_run_tree()
        return ClassifierResponse.model_validate(OK)

    await ask(behave, tracing=tracing)
    assert enabled == [tracing]


def config(tmp_path: Path, **model: Any) -> Path:
    file = tmp_path / "plannerd.yaml"
    chosen = {"provider": "langchain", "factory": "tests.support.langchain_models:SparrowClassifier", **model}
    file.write_text(yaml.safe_dump({"decisions": {"models": {"mine": chosen}}}), "utf-8")
    return file


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ({"factory": "no_such_module:Model"}, "ModuleNotFoundError: No module named 'no_such_module'"),
        ({"factory": "tests.support.langchain_models:Nothing"}, "AttributeError"),
        ({"factory": "tests.support.langchain_models:NOT_A_MODEL"}, "TypeError: 'dict' object is not callable"),
        ({"factory": "tests.support.langchain_models:Path"}, "AttributeError"),
        ({"factory": "builtins:dict"}, "gives a dict, which is no BaseDecisionModel"),
        ({"factory": "tests.support.langchain_models:make"}, "TypeError: make() missing 1 required"),
        (
            {"factory": "tests.support.langchain_models:READY", "arguments": {"model": "x"}},
            "it is a model already and takes no arguments",
        ),
    ],
)
def test_factories_that_make_no_model_stop_the_start(tmp_path: Path, model: dict[str, Any], complaint: str) -> None:
    """What can't be imported, fails, or makes something else is told with the path of the setting."""
    with pytest.raises(BuildError) as raised:
        build(load(config(tmp_path, **model)))
    assert str(raised.value).startswith("decisions.models.mine: factory '")
    assert complaint in str(raised.value)


@pytest.mark.parametrize("factory", ["", "package", "package:", "a b:c", "../x:y", "x:y()", "x:y;z"])
def test_factories_that_are_no_names_are_refused(tmp_path: Path, factory: str) -> None:
    """Only `package.module:name` is a factory."""
    with pytest.raises(SettingsError, match=r"decisions\.models\.mine\.factory"):
        load(config(tmp_path, factory=factory))


def test_without_the_extra_the_start_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where langchain-core is not installed the message names the extra."""
    for name in list(sys.modules):
        if name.startswith("plannerd.decisions.langchain"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    with pytest.raises(BuildError, match=r"needs the extra plannerd\[langchain\]"):
        build(load(config(tmp_path)))


def test_a_router_decides_by_a_langchain_model(tmp_path: Path) -> None:
    """A real server decides by a LangChain model that the settings name, made with arguments."""

    @agent
    def billing(request: str) -> str:
        """Answers questions about invoices, payments and refunds."""
        return "billed"

    @agent
    def shipping(request: str) -> str:
        """Answers questions about parcels and deliveries."""
        return "shipped"

    file = config(
        tmp_path,
        factory="tests.support.langchain_models:make",
        arguments={"model": "sparrow-nano-general-v1.1"},
    )
    settings = yaml.safe_load(file.read_text("utf-8"))
    with running_server(config=settings) as server, Client(server.target) as client:
        run = client.run(Router(), [billing, shipping], {"request": "Where is my parcel?"}, explain="full")
    assert run.result == "shipped"
    record = run.steps[0].message.explanation.decisions[0]
    assert (record.model, record.provider, record.resolved_model) == ("mine", "langchain", "sparrow-nano-general-v1.1")
    ended = run_plannerd("models", "check", "--config", str(file))
    assert ended.returncode == 0, ended.stdout
    assert "langchain  ok" in ended.stdout
