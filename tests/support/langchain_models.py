"""LangChain decision models: one that decides for real, and one that does as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from langchain_core.decisions import BaseDecisionModel, ClassifierResponse, Question, State
from pydantic import PrivateAttr

from plannerd.decisions.sparrow import library


class SparrowClassifier(BaseDecisionModel):
    """The package sparrow-decider as a LangChain model; not asynchronous."""

    model: str = "sparrow-nano-general-v1.1"
    _decider: Any = PrivateAttr(default=None)

    @property
    def _provider(self) -> str:
        return "sparrow"

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        if self._decider is None:
            self._decider = library.load(self.model).decider
        asked = {name: question.model_dump(exclude_none=True) for name, question in questions.items()}
        assert isinstance(state, dict)
        text = "\n".join(f"{name}: {value}" for name, value in state.items())
        return ClassifierResponse.model_validate({"model": self.model, "answers": self._decider.ask(text, asked)})


Behaviour = Callable[[State, dict[str, Question]], Any]


class Scripted(BaseDecisionModel):
    """An asynchronous model that does what a function says."""

    model: str = "scripted"
    _behave: Behaviour = PrivateAttr()

    def __init__(self, behave: Behaviour, **fields: Any) -> None:
        super().__init__(**fields)
        self._behave = behave

    @property
    def _provider(self) -> str:
        return "scripted"

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        raise AssertionError("this model is asynchronous")

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        made: ClassifierResponse = self._behave(state, questions)
        if asyncio.iscoroutine(made):
            made = await made
        return made


class Blocking(BaseDecisionModel):
    """A model that is not asynchronous and answers when it is let go."""

    model: str = "blocking"
    _gate: threading.Event = PrivateAttr(default_factory=threading.Event)

    @property
    def _provider(self) -> str:
        return "blocking"

    def release(self) -> None:
        """Let it answer."""
        self._gate.set()

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        self._gate.wait(60)
        return ClassifierResponse.model_validate({"model": self.model, "answers": {}})


def make(model: str) -> SparrowClassifier:
    """A factory with an argument."""
    return SparrowClassifier(model=model)


READY = SparrowClassifier()
NOT_A_MODEL = {"a": 1}
