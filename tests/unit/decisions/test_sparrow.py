"""The embedded model answers as the library does, only faster, and behaves under load."""
# ruff: noqa: RUF001 - texts in many scripts, with characters that resemble others

from __future__ import annotations

import asyncio
import random
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sparrow_decider import Decider  # type: ignore[import-untyped]

from plannerd.decisions.answers import ChoiceAnswer, DecisionResponse, ScaleAnswer, YesNoAnswer
from plannerd.decisions.model import DecisionModel, ModelLimits
from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Question, Scale, YesNo
from plannerd.decisions.sparrow import SparrowModel, library, scoring, tokens
from plannerd.decisions.text import InputText
from plannerd.errors import PlannerdError, Reason

RARE = ("Cn", "Co", "Cs")  # characters without meaning: all alike
LEVELS = ("USELESS", "MARGINAL", "USEFUL", "ESSENTIAL")

TEXTS = {
    "empty": "",
    "blank": " \t\r\n\u00a0\u3000 ",
    "English": "User: I was charged twice for order 1182, I want my money back!",
    "German": "Die Rechnung für Größe „M“ ist falsch; bitte ändern Sie das — schnellstmöglich.",
    "French": "Où est ma commande n° 42 ? C'est l'été, j'ai déjà payé 12,50 €…",
    "Spanish": "¿Dónde está mi niño? ¡Qué vergüenza!",
    "Vietnamese": "Tôi không nhận được đơn hàng của mình",
    "Turkish": "İSTANBUL'da ışık yok, IĞDIR'a gidiyorum",
    "Greek": "Ο ΟΔΥΣΣΕΥΣ ΚΑΙ ΟΙ ΣΕΙΡΗΝΕΣ. Σ ΑΣ. ΌΣΟΣ\u0301 ἄνδρα μοι ἔννεπε, Μοῦσα",
    "Russian": "Где мой заказ? Ёлки-палки, йод",
    "Arabic": "أَيْنَ طَلَبِي؟ ١٢٣",
    "Hebrew": "שָׁלוֹם עוֹלָם",
    "Hindi": "मेरा ऑर्डर कहाँ है? क़ीमत ₹१२३",
    "Tamil": "என் ஆர்டர் எங்கே?",
    "Thai": "คำสั่งซื้อของฉันอยู่ที่ไหน",
    "Chinese": "我的订单在哪里？已付款１２３元。",
    "Japanese": "注文はどこですか？ガガガ か\u3099 ﾊﾝｶｸ",
    "Korean": "내 주문은 어디에 있나요? 각",
    "emoji": "great 👍🏽 👩‍👩‍👧 🇩🇪 ❤️ok :-)",
    "combining": "e\u0301a\u0328\u0301 Z\u0351\u036b\u0343alg\u0328o \u1d165\u302e\u302f x\u0327\u0323",
    "reordered": "a\u302e\U0001d165b \U0001d165\u302e \u0f71\u0f74\U00011134",
    "controls": "a\x00b\x07c\x0bd\x0ce\x1cf\x85g\u200bh\ufeffi\ufffdj\u2028k\u2029l\x7fm\u00adn\ud800o\ue000p",
    "punctuation": "a_b-c(d)[e]{f}<g>|h`i^j~k$l+m=n @#%&*'\"\\/.,;:!? «»‹›—…·¿§¶†",
    "math": "ℵ₀ ≤ 2^ℵ₀, ½ ﬁ ﬀ Å K Ω 𝒜𝓑 ①②",
    "long words": "x" * 99 + " " + "y" * 100 + " " + "z" * 101 + " " + "deadbeef" * 12 + " " + "é" * 101,
    "long": "the customer says that order 1182 was charged twice, " * 40,
    "long Chinese": "我的订单在哪里" * 100,
    "readings": "battery: 6%\nzone_a: dirt_level=34, zone_b: dirt_level = -0.5\nfront_obstacle_m: 7.0 path: clear",
    "readings in prose": "we have: 12 boxes = 3 pallets " * 30 + "\r\nx = 99999\u2028y: 5 % z:६",
    "huge reading": "battery: " + "9" * 400,
}

QUESTIONS: tuple[Question, ...] = (
    YesNo("refund", "Is the user asking for money back?"),
    YesNo("criteria", "Wants a refund?", yes_when="money is wanted back", no_when=""),
    YesNo("half", "Größe?", yes_when="it is about sizes"),
    Choice("route", "Who?", (Option("billing", "charges, invoices"), Option("bug"), Option("other", "anything else"))),
    Choice("many", "Which?", tuple(Option(f"option {i}", f"it is about {i}") for i in range(255))),
    Scale("use", "How useful would it be to run the agent 'a' now?", LEVELS),
    Scale("two", "好吗？", ("nein", "já")),
    Scale("ten", "How much?", tuple(f"level {i}" for i in range(10))),
)


def as_library(question: Question) -> dict[str, Any]:
    """A question in the library's own form."""
    if isinstance(question, Choice):
        criteria = {option.name: option.description for option in question.options}
        return {"type": "choice", "instructions": question.text, "criteria": criteria}
    if isinstance(question, Scale):
        return {"type": "score", "instructions": question.text, "criteria": list(question.levels)}
    meanings = {"true": question.yes_when, "false": question.no_when}
    meanings = {answer: meaning for answer, meaning in meanings.items() if meaning is not None}
    return {"type": "noul", "instructions": question.text, "criteria": meanings}


class Loaded:
    """A model here, and the same one in the library."""

    def __init__(self, name: str) -> None:
        self.weights = library.load(name)
        self.decider = Decider.load(name)
        self.pieces = tokens.WordPieces(self.weights.tokenizer)
        self.scorer = scoring.Scorer(self.weights, self.pieces)

    def library_pieces(self, text: str) -> list[int]:
        pieces: list[int] = self.decider.static.tok.encode(text, 10**9)
        return pieces

    def difference(self, text: str, questions: tuple[Question, ...]) -> float:
        """The largest difference between two probabilities, here and there."""
        state = scoring.State(text, self.pieces.encode(text)[: self.weights.max_tokens])
        ours = self.scorer.probabilities(state, questions)
        theirs = [self.decider.probs(text, as_library(question))[-1] for question in questions]
        return max(float(np.abs(np.array(a) - b).max()) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module", params=library.bundled_models())
def loaded(request: pytest.FixtureRequest) -> Loaded:
    return Loaded(request.param)


@pytest.fixture
def model() -> Iterator[SparrowModel]:
    made = SparrowModel(queue=2, retry_after=0.5)
    yield made
    asyncio.run(made.close())


def request(*fields: Field, questions: tuple[Question, ...] = QUESTIONS) -> DecisionRequest:
    return DecisionRequest(fields or (Field("request", "hello"),), questions)


# --- word pieces


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_word_pieces(loaded: Loaded, text: str) -> None:
    """A text has the word pieces that the library's tokenizer gives it, also next to other text."""
    for variant in (text, text.upper(), f"x{text}y", "".join(reversed(text))):
        assert loaded.pieces.encode(variant) == loaded.library_pieces(variant)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_first_word_pieces_of_a_long_text(loaded: Loaded, text: str) -> None:
    """The first word pieces of a text that is split in parts are those of the whole text."""
    for separator in ("", " ", "\n", "\u00a0"):
        long = separator.join([text] * (1 + 15_000 // (len(text) + 1)))
        if " " in long or "\n" in long or len(long) < 60_000:
            whole = loaded.library_pieces(long)
            for most in (1, 512, 5_000, 10**9):
                assert loaded.pieces.encode(long, most) == whole[:most]


def test_vocabulary(loaded: Loaded) -> None:
    """Each entry of the vocabulary, as a word and inside of one, has the library's word pieces."""
    vocabulary = list(loaded.weights.tokenizer.vocabulary)
    for text in (" ".join(vocabulary), " ".join(entry.removeprefix("##") * 2 for entry in vocabulary)):
        assert loaded.pieces.encode(text) == loaded.library_pieces(text)


@settings(deadline=None)
@given(st.text())
def test_any_text(loaded: Loaded, text: str) -> None:
    """Whatever the characters, the word pieces are the library's."""
    assert loaded.pieces.encode(text) == loaded.library_pieces(text)


def test_every_character() -> None:
    """Every character, inside a word and by itself, is treated as the library treats it."""
    loaded = Loaded(library.bundled_models()[0])  # what becomes of characters is the same in all models
    codes = range(0x110000)
    characters = [chr(code) for code in codes if code % 997 == 0 or unicodedata.category(chr(code)) not in RARE]
    for start in range(0, len(characters), 500):
        text = "".join(f"x{character}y {character} " for character in characters[start : start + 500])
        assert loaded.pieces.encode(text) == loaded.library_pieces(text)


def test_marks_in_any_order(loaded: Loaded) -> None:
    """Marks and letters whose form depends on their neighbours make the same words in any order."""
    library_tokenizer = loaded.decider.static.tok
    marks = [chr(code) for code in range(0x20000) if unicodedata.combining(chr(code))]
    marks += [mark for mark in marks if unicodedata.category(mark) != "Mn"] * 20
    chance = random.Random(1)
    for _ in range(2000):
        text = "".join(chance.choices([*marks, *"aΣσΑ.' \u00ad\x01" * 20], k=8))
        assert loaded.pieces.split(text) == library_tokenizer.pretokenize(library_tokenizer.normalize(text))


def test_bounded_tables(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of words, characters and questions is bounded, and full tables change no result."""
    monkeypatch.setattr(tokens, "_MAX_WORDS", 5)
    monkeypatch.setattr(tokens, "_MAX_CHARACTERS", 5)
    monkeypatch.setattr(scoring, "_MAX_TEXTS", 20)
    pieces = tokens.WordPieces(loaded.weights.tokenizer)
    for text in TEXTS.values():
        assert pieces.encode(text) == loaded.library_pieces(text)
        assert len(pieces._words) <= 5
        assert len(pieces._characters) <= 5
    scorer = scoring.Scorer(loaded.weights, pieces)
    state = scoring.State("hello", pieces.encode("hello"))
    for questions in (QUESTIONS[5:], QUESTIONS[:4], QUESTIONS):
        for ours, same in zip(
            scorer.probabilities(state, questions), loaded.scorer.probabilities(state, questions), strict=True
        ):
            assert ours == pytest.approx(same, abs=1e-6)
        assert len(scorer._averages) <= 20


# --- answers


@pytest.mark.parametrize("name", TEXTS)
def test_probabilities(loaded: Loaded, name: str) -> None:
    """All questions at once get the probabilities that the library computes one by one."""
    assert loaded.difference(TEXTS[name], QUESTIONS) < 1e-4


def test_one_question(loaded: Loaded) -> None:
    """A question gets the same answer alone and among others."""
    for question in QUESTIONS:
        assert loaded.difference(TEXTS["readings"], (question,)) < 1e-4


def test_many_long_questions(loaded: Loaded) -> None:
    """Questions whose word pieces are looked up in several batches get the library's answers, in order."""
    questions = tuple(YesNo(f"q{i}", f"{i} {TEXTS['long']} {i}", yes_when=TEXTS["German"] * i) for i in range(30))
    assert sum(len(loaded.library_pieces(question.text)) for question in questions) > 3 * scoring._MAX_BATCH / 2
    assert loaded.difference(TEXTS["English"], questions) < 1e-4


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=50), st.lists(st.text(max_size=20), min_size=2, max_size=10))
def test_any_question(loaded: Loaded, text: str, question: str, levels: list[str]) -> None:
    """Whatever is asked about whatever text, the probabilities are the library's."""
    assert loaded.difference(text, (Scale("s", question, tuple(levels)), YesNo("y", question))) < 1e-4


@pytest.mark.parametrize("name", library.bundled_models())
def test_answers(name: str) -> None:
    """The answers are those of `Decider.ask`, unrounded, to the input as text."""
    model: DecisionModel = SparrowModel(name)
    fields = (Field("request", TEXTS["English"]), Field("robot", {"battery": 6, "zones": [{"dirt_level": 34.5}]}))
    theirs = Decider.load(name).ask(InputText(fields).cut(10_000).text, {q.name: as_library(q) for q in QUESTIONS})
    models = DecisionModels({"m": model})
    response = asyncio.run(models.ask(models.get(), request(*fields)))
    asyncio.run(model.close())
    assert response.model == name
    assert response.truncation is None
    assert list(response.answers) == [question.name for question in QUESTIONS]
    for question in QUESTIONS:
        ours, their = response.answers[question.name], theirs[question.name]
        if isinstance(ours, YesNoAnswer):
            assert ours.probability == pytest.approx(their["noul"], abs=1e-4)
            continue
        assert isinstance(ours, ChoiceAnswer | ScaleAnswer)
        assert ours.probabilities is not None
        assert ours.confidence == pytest.approx(their["confidence"], abs=1e-4)
        if isinstance(ours, ChoiceAnswer):
            assert ours.value == their["choice"]
            assert ours.probabilities == pytest.approx(their["probabilities"], abs=1e-4)
        else:
            assert ours.mean == pytest.approx(their["score"], abs=1e-4)
            assert list(ours.probabilities) == pytest.approx(list(their["probabilities"].values()), abs=1e-4)


def test_limits(model: SparrowModel) -> None:
    """A scale has at most ten levels, a choice as many options as it is told, and images are not read."""
    assert (model.provider, model.limits) == ("sparrow", ModelLimits(options=1000, levels=10, images=False))
    assert SparrowModel(options=2).limits.options == 2


def choice_of(count: int) -> DecisionRequest:
    """A choice among that many options."""
    options = tuple(Option(f"option {i}", f"it is about {i}") for i in range(count))
    return request(questions=(Choice("which", "Which one?", options),))


def test_as_many_options_as_allowed_and_no_more(model: SparrowModel) -> None:
    """A choice among 1,000 options is answered, one among 1,001 is refused with the limit before the model is asked."""
    models = DecisionModels({"m": model})
    answer = asyncio.run(models.ask(models.get(), choice_of(1000))).answers["which"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.probabilities is not None
    assert len(answer.probabilities) == 1000
    with pytest.raises(PlannerdError) as caught:
        asyncio.run(models.ask(models.get(), choice_of(1001)))
    assert caught.value.reason is Reason.DECISION_MODEL_LIMIT
    assert (caught.value.metadata["limit"], caught.value.metadata["allowed"]) == ("options", "1000")


# --- the input


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_read(name: str, model: SparrowModel) -> None:
    """An input that is too long is cut until the model uses all that is left; no key is lost."""
    fields = [Field("first", TEXTS[name] * 50), Field("other", 1), Field("last", TEXTS[name] * 3, rank=1)]
    whole = InputText(fields)
    state, truncation = model.read(fields)
    assert len(state.pieces) <= 512
    assert state.pieces == model._pieces.encode(state.text)
    assert state.text.startswith("first:")
    assert "\nother: 1\nlast:" in state.text
    if truncation is None:
        assert state.text == whole.cut(whole.size).text
    else:
        assert (truncation.original_chars, truncation.used_chars) == (whole.size, len(state.text))
        assert len(state.pieces) > 400 or len(state.text) > 2900


def test_too_many_keys(model: SparrowModel) -> None:
    """An input whose keys alone are too long is read as far as the model can."""
    fields = [Field(f"key {i}", i) for i in range(10_000)]
    state, truncation = model.read(fields)
    assert len(state.pieces) == 512
    assert state.text.startswith("key 0:")
    assert truncation is not None
    assert truncation.original_chars == InputText(fields).size
    assert truncation.used_chars == len(state.text)


# --- speed


def best(times: int, work: Callable[[], object]) -> float:
    """The shortest of several durations, in seconds."""
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        durations.append(time.perf_counter() - start)
    return min(durations)


def test_many_questions_about_a_long_input(model: SparrowModel) -> None:
    """Twenty questions about 10 KB take a small part of the time that the library needs for them."""
    text = (TEXTS["English"] + " " + TEXTS["German"] + " ") * 75
    questions = tuple(Scale(f"agent{i}", f"How useful would agent {i} be now?", LEVELS) for i in range(20))
    asked = {question.name: as_library(question) for question in questions}
    decider = Decider.load(model.name)
    theirs = best(2, lambda: decider.ask(text, asked))
    ours = best(20, lambda: model.answer(request(Field("request", text), questions=questions)))
    assert ours < theirs / 20


def test_long_values_cost_little(model: SparrowModel) -> None:
    """A value of a megabyte takes about as long as one of 10 KB, since no more of it is used."""
    text = TEXTS["English"] + " "
    small, large = (request(Field("request", text * times), questions=QUESTIONS[:1]) for times in (150, 15_000))
    assert best(20, lambda: model.answer(large)) < 5 * best(20, lambda: model.answer(small))


def test_long_questions_cost_little(model: SparrowModel) -> None:
    """A question of four megabytes takes not much longer than one of 40 KB, since no more of it is used."""
    text = TEXTS["English"] + " "
    small, large = (request(questions=(YesNo("long", text * times),)) for times in (600, 60_000))
    assert best(5, lambda: model.answer(large)) < 10 * best(5, lambda: model.answer(small))


# --- many requests at a time


class Gate:
    """Makes a model's thread wait, inside a request, until it is opened."""

    def __init__(self, model: SparrowModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered: list[str] = []
        self._open = threading.Event()
        self._entered = threading.Semaphore(0)
        answer = model.answer

        def wait(request: DecisionRequest) -> DecisionResponse:
            self._entered.release()
            assert self._open.wait(30)
            self.answered.append(request.questions[0].name)
            return answer(request)

        monkeypatch.setattr(model, "answer", wait)

    async def entered(self) -> None:
        """Return when the thread has begun one more request."""
        assert await asyncio.to_thread(self._entered.acquire, timeout=30)

    def open(self) -> None:
        self._open.set()


def named(name: str) -> DecisionRequest:
    return request(questions=(YesNo(name, "Is it?"),))


def test_full_queue(model: SparrowModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests than the queue holds are refused at once with a time to wait, and none later."""
    gate = Gate(model, monkeypatch)

    async def scenario() -> None:
        running, waiting = (asyncio.create_task(model.decide(named(name))) for name in ("running", "waiting"))
        await gate.entered()
        with pytest.raises(PlannerdError) as caught:
            await model.decide(named("refused"))
        assert caught.value.reason is Reason.DECISION_QUEUE_FULL
        assert caught.value.retry_after == 0.5
        assert caught.value.metadata["queue"] == "2"
        gate.open()
        await asyncio.gather(running, waiting)
        await asyncio.gather(model.decide(named("later")), model.decide(named("last")))

    asyncio.run(scenario())
    assert gate.answered == ["running", "waiting", "later", "last"]


def test_cancelled_while_waiting(model: SparrowModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is cancelled while it waits is never computed, and its place is free at once."""
    gate = Gate(model, monkeypatch)

    async def scenario() -> None:
        running, waiting = (asyncio.create_task(model.decide(named(name))) for name in ("running", "cancelled"))
        await gate.entered()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        next_one = asyncio.create_task(model.decide(named("next")))
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(running, next_one)

    asyncio.run(scenario())
    assert gate.answered == ["running", "next"]


def test_cancelled_while_running(model: SparrowModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is cancelled while it runs lets its caller go at once, and its place when it ends."""
    gate = Gate(model, monkeypatch)

    async def scenario() -> None:
        running = asyncio.create_task(model.decide(named("running")))
        await gate.entered()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        waiting = asyncio.create_task(model.decide(named("waiting")))
        await asyncio.sleep(0)
        with pytest.raises(PlannerdError):
            await model.decide(named("refused"))
        gate.open()
        await waiting
        await asyncio.gather(model.decide(named("a")), model.decide(named("b")))

    asyncio.run(scenario())
    assert gate.answered == ["running", "waiting", "a", "b"]


def test_failures_of_the_library(model: SparrowModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected failure reaches the caller as it is, and takes no place away."""
    error = RuntimeError("library")

    def fail(_: DecisionRequest) -> DecisionResponse:
        raise error

    async def scenario() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(model, "answer", fail)
            for _ in range(5):
                with pytest.raises(RuntimeError) as caught:
                    await model.decide(named("a"))
                assert caught.value is error
        await asyncio.gather(model.decide(named("a")), model.decide(named("b")))

    asyncio.run(scenario())


def test_close_answers_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a model lets the requests that it has taken finish, and no new ones in."""
    model = SparrowModel()
    gate = Gate(model, monkeypatch)

    async def scenario() -> None:
        tasks = [asyncio.create_task(model.decide(named(name))) for name in "abc"]
        await gate.entered()
        closing = asyncio.create_task(model.close())
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(closing, *tasks)
        with pytest.raises(RuntimeError, match="shutdown"):
            await model.decide(named("late"))

    asyncio.run(scenario())
    assert gate.answered == ["a", "b", "c"]


# --- loading


@pytest.mark.parametrize("name", ["no-such-model", "", "../models/sparrow-nano-general-v1.1", __file__])
def test_unknown_model(name: str) -> None:
    """Only models inside the package are loaded, by their exact names, never a path."""
    with pytest.raises(ValueError, match=r"sparrow-nano-general-v1\.1"):
        SparrowModel(name)


def test_limits_that_allow_nothing() -> None:
    """A queue without places, and choices of fewer than two options, are refused."""
    with pytest.raises(ValueError, match="at least 1"):
        SparrowModel(queue=0)
    with pytest.raises(ValueError, match="at least 2"):
        SparrowModel(options=1)


def test_other_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of another architecture is refused when it is loaded, not when it is asked."""
    decider = Decider.load()
    monkeypatch.setattr(Decider, "load", lambda _: decider)
    monkeypatch.setitem(decider.cfg, "arch", "encoder")
    with pytest.raises(RuntimeError, match="'encoder'"):
        SparrowModel()


def test_other_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose weights are laid out differently is refused when it is loaded."""
    decider = Decider.load()
    monkeypatch.setattr(Decider, "load", lambda _: decider)
    with monkeypatch.context() as patched:
        patched.setattr(decider.static, "kv", True)
        with pytest.raises(RuntimeError, match="features"):
            SparrowModel()
    with monkeypatch.context() as patched:
        patched.delitem(decider.static.w, "mlp.2.bias")
        with pytest.raises(RuntimeError, match="not laid out as expected"):
            SparrowModel()


def test_other_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that computes its answers differently is found out when a model is loaded."""
    monkeypatch.setattr(Decider, "probs", lambda *_: ("noul", [], [], np.array([0.25, 0.75])))
    with pytest.raises(RuntimeError, match="unknown here"):
        SparrowModel()
