"""`DecisionModelService.Decide` of a real server: what it answers, and what it refuses before a model sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from google.protobuf.struct_pb2 import NULL_VALUE

from plannerd_client import Client, PlannerdError
from plannerd_protos.planner.v1 import decision_pb2, value_pb2
from tests.support.servers import ServerProcess, running_server

YES_NO = decision_pb2.Question(name="q", text="Is it?", yes_no=decision_pb2.YesNoQuestion())
TEXT = decision_pb2.InputField(name="request", value=value_pb2.Value(string_value="hello"))


def field(name: str = "request", **value: object) -> decision_pb2.InputField:
    return decision_pb2.InputField(name=name, value=value_pb2.Value(**value))  # type: ignore[arg-type]


def named(name: str, text: str = "x") -> decision_pb2.Question:
    return decision_pb2.Question(name=name, text=text, yes_no=decision_pb2.YesNoQuestion())


def choice(*names: str) -> decision_pb2.Question:
    options = [decision_pb2.ChoiceOption(name=name) for name in names]
    return decision_pb2.Question(name="q", text="Which?", choice=decision_pb2.ChoiceQuestion(options=options))


def scale(*levels: str) -> decision_pb2.Question:
    return decision_pb2.Question(name="q", text="How?", scale=decision_pb2.ScaleQuestion(levels=levels))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    script = tmp_path_factory.mktemp("decide") / "script.yaml"
    rules = {"no": {"refuse": "not today"}, "odd": {"probability": 1.0000005, "confidence": -3}}
    limits = {"questions": 3, "options": 3, "levels": 3, "images": False}
    script.write_text(yaml.safe_dump({"rules": rules, "defaults": {"yes_no": 0.25}, "limits": limits}), "utf-8")
    models = {"script": {"provider": "fixed", "file": str(script)}, "small": {"provider": "sparrow"}}
    limits = {"max_questions": 5, "max_scope_keys": 5}
    with running_server(config={"decisions": {"models": models, "default": "script"}, "limits": limits}) as running:
        yield running


def decide(
    server: ServerProcess,
    questions: Sequence[decision_pb2.Question] = (YES_NO,),
    fields: Sequence[decision_pb2.InputField] = (TEXT,),
    model: str = "",
) -> decision_pb2.DecideResponse:
    with Client(server.target) as client:
        return client.decide(decision_pb2.DecideRequest(model=model, input=fields, questions=questions), timeout=60)


def test_answers_in_the_order_of_the_questions(server: ServerProcess) -> None:
    """Each question has its answer, a refusal beside numbers, clamped, with the name of the model and its time."""
    response = decide(server, [named("no"), named("odd"), named("plain")])
    assert [answer.question for answer in response.answers] == ["no", "odd", "plain"]
    no, odd, plain = response.answers
    assert no.refusal.message == "not today"
    assert (odd.yes_no.probability, odd.yes_no.confidence) == (1.0, -3)
    assert (plain.yes_no.probability, plain.yes_no.HasField("confidence")) == (0.25, False)
    assert response.model == "fixed"
    assert response.HasField("latency")


def test_a_model_by_name(server: ServerProcess) -> None:
    """Any configured model can be asked, the default without a name, and a null is an input."""
    assert decide(server, model="small").model == "sparrow-nano-general-v1.1"
    assert decide(server, fields=[field(null_value=NULL_VALUE)]).model == "fixed"


@pytest.mark.parametrize(
    ("questions", "fields", "model", "reason", "where"),
    [
        ([], [TEXT], "", "INVALID_REQUEST", "questions"),
        ([decision_pb2.Question(name="q", text="x")], [TEXT], "", "INVALID_REQUEST", "questions[0]"),
        ([YES_NO, YES_NO], [TEXT], "", "INVALID_REQUEST", "questions[1].name"),
        ([named(" ")], [TEXT], "", "INVALID_REQUEST", "questions[0].name"),
        ([named("q", "\n")], [TEXT], "", "INVALID_REQUEST", "questions[0].text"),
        ([choice("a")], [TEXT], "", "INVALID_REQUEST", "questions[0].options"),
        ([choice("a", "a")], [TEXT], "", "INVALID_REQUEST", "questions[0].options[1].name"),
        ([scale("a")], [TEXT], "", "INVALID_REQUEST", "questions[0].levels"),
        ([scale("a", "")], [TEXT], "", "INVALID_REQUEST", "questions[0].levels[1]"),
        ([YES_NO], [TEXT, TEXT], "", "INVALID_REQUEST", "input[1].name"),
        ([YES_NO], [field("", string_value="x")], "", "INVALID_REQUEST", "input[0].name"),
        ([YES_NO], [], "", "EMPTY_DECISION_INPUT", None),
        ([YES_NO], [field()], "", "INVALID_VALUE", "input[0].value"),
        ([YES_NO], [field(double_value=float("nan"))], "", "INVALID_VALUE", "input[0].value"),
        ([YES_NO], [field(pending={})], "", "INVALID_VALUE", "input[0].value"),
        ([YES_NO], [field(opaque={"tag": b"x"})], "", "INVALID_VALUE", "input[0].value"),
        ([YES_NO], [field(bytes_value=b"x")], "", "UNSUPPORTED_INPUT", "request"),
        (
            [YES_NO],
            [field(content={"image": {"media_type": "image/png", "data": b"x"}})],
            "",
            "DECISION_MODEL_LIMIT",
            None,
        ),
        ([YES_NO], [TEXT], "other", "DECISION_MODEL_NOT_FOUND", None),
        ([choice("a", "b", "c", "d")], [TEXT], "", "DECISION_MODEL_LIMIT", None),
        ([scale("a", "b", "c", "d")], [TEXT], "", "DECISION_MODEL_LIMIT", None),
        ([choice("a", "b")], [TEXT], "", "DECISION_INVALID_ANSWER", None),
    ],
)
def test_what_is_refused(
    server: ServerProcess,
    questions: list[decision_pb2.Question],
    fields: list[decision_pb2.InputField],
    model: str,
    reason: str,
    where: str | None,
) -> None:
    """A request that can't be answered has its reason, with the path of the field where it is about one."""
    with pytest.raises(PlannerdError) as raised:
        decide(server, questions, fields, model)
    assert raised.value.reason == reason
    assert [violation.field for violation in raised.value.violations][:1] == ([where] if where else [])


@pytest.mark.parametrize(
    ("questions", "fields", "limit"), [(6, 1, "max_questions"), (1, 6, "max_scope_keys"), (4, 1, "questions")]
)
def test_how_much_one_request_may_hold(server: ServerProcess, questions: int, fields: int, limit: str) -> None:
    """More questions or fields than the server or the model takes are refused with the limit."""
    with pytest.raises(PlannerdError) as raised:
        decide(
            server,
            [named(f"q{i}") for i in range(questions)],
            [field(f"f{i}", string_value="x") for i in range(fields)],
        )
    assert raised.value.metadata["limit"] == limit
    assert raised.value.metadata["requested"] == str(max(questions, fields))


def test_no_content_is_logged(server: ServerProcess, tmp_path: Path) -> None:
    """Neither questions nor inputs nor answers are in the log."""
    decide(server, [named("no", "tangerine")])
    assert "tangerine" not in server.log()
    assert "not today" not in server.log()
