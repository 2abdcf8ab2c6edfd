"""Recording runs with the client, and replaying them by the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plannerd.cli import main
from plannerd_client import (
    AgentFailed,
    AsyncClient,
    Bdi,
    Cascade,
    Client,
    Desire,
    GaveUp,
    Router,
    RunStatus,
    Scheduler,
    agent,
    belief,
    cel,
    human,
)
from tests.support.servers import ServerProcess, running_server

TICKET = {"ticket": "The kettle leaks, I want my money back"}


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out what the ticket is about."""
    return "refund"


@agent(output_key="reply")
def draft(ticket: str, category: str) -> str:
    """Writes the reply to the customer."""
    return f"About your {category}: we will look into it today."


@agent(output_key="notes", async_=True)
def research(ticket: str) -> list[str]:
    """Looks up what is known about the product."""
    return ["kettles leak"]


PLANNER = Scheduler(goal="The customer has a reply", goal_threshold=0.6, activation_threshold=0.3)
AGENTS: list[Callable[..., Any]] = [classify, draft]


def scheduler(client: Client, **options: Any) -> object:
    return client.run(PLANNER, AGENTS, TICKET, output_key="reply", **options).result


def choice(client: Client, **options: Any) -> object:
    return client.run(Router(), AGENTS, {**TICKET, "category": "refund"}, **options).result


def threshold(client: Client, **options: Any) -> object:
    return client.run(Router(activation_threshold=0.1), [classify, research], TICKET, **options).result


def cascade(client: Client, **options: Any) -> object:
    return client.run(Cascade(acceptance_threshold=0.9), AGENTS, {**TICKET, "category": "refund"}, **options).result


def bdi(client: Client, **options: Any) -> object:
    planner = Bdi(
        [
            Desire(name="notes", agents=[research], achievable=cel("has(scope.ticket)"), satisfied="notes", priority=2),
            Desire(name="reply", agents=AGENTS, achievable=belief("open"), satisfied="reply"),
        ]
    )
    beliefs = {"open": lambda scope: "reply" not in scope}
    agents: list[Callable[..., Any]] = [*AGENTS, research]
    return client.run(planner, agents, TICKET, output_key="reply", beliefs=beliefs, **options).result


def giving_up(client: Client, **options: Any) -> object:
    planner = Scheduler(goal="The customer has a reply", goal_threshold=0.6, activation_threshold=0.99)
    with pytest.raises(GaveUp):
        client.run(planner, AGENTS, TICKET, output_key="reply", **options)
    return None


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def recording(server: ServerProcess, file: Path) -> Path:
    """A recording of the scheduler."""
    record(server, file, scheduler)
    return file


def record(server: ServerProcess, file: Path, run: Callable[..., object], **options: Any) -> None:
    with Client(server.target) as client, file.open("w", encoding="utf-8") as lines:
        run(client, record=lines.write, **options)


def edited(file: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the lines of a recording, apart from the first one."""
    header, *lines = file.read_text("utf-8").splitlines()
    exchanges = [json.loads(line) for line in lines]
    change(exchanges)
    file.write_text("\n".join([header, *(json.dumps(exchange) for exchange in exchanges)]), "utf-8")


def steps(file: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what is said of each step."""
    code = main(["replay", str(file), "--json", *arguments])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("run", [scheduler, choice, threshold, cascade, bdi, giving_up], ids=lambda run: run.__name__)
def test_a_run_replays_as_it_was(
    server: ServerProcess, file: Path, run: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    """A recorded run of every planner gives the same steps again, without a model."""
    record(server, file, run)
    code, replayed = steps(file, capsys)
    assert [step["differences"] for step in replayed] == [[]] * len(replayed)
    assert code == 0
    assert len(replayed) == len(file.read_text("utf-8").splitlines()) - 1 >= 2
    assert replayed[0]["method"] == "Init"


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029", "\x0b", "\x1c", "\r"])
def test_separators_in_texts(
    server: ServerProcess, file: Path, separator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Unicode calls an end of a line ends none of a recording."""
    ticket = {"ticket": f"The kettle leaks,{separator}I want my money back"}
    with Client(server.target) as client, file.open("w", encoding="utf-8") as lines:
        client.run(PLANNER, AGENTS, ticket, output_key="reply", record=lines.write)
    code, replayed = steps(file, capsys)
    assert [step["differences"] for step in replayed] == [[]] * 4
    assert code == 0


def test_files_of_other_editors(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A byte order mark, lines that end as on Windows and empty lines are no obstacle."""
    recording.write_bytes(b"\xef\xbb\xbf" + recording.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert main(["replay", str(recording)]) == 0
    assert capsys.readouterr().out.endswith("all 4 requests were answered as recorded\n")


def test_what_is_printed(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay prints a line for each request: whether it is the same, its outcome and its action."""
    assert main(["replay", str(recording)]) == 0
    assert capsys.readouterr().out == (
        "  1  Init         same       scheduler\n"
        "  2  FirstAction  same       CALLED: start classify$0\n"
        "  3  NextAction   same       CALLED: start draft$1\n"
        "  4  NextAction   same       NO_CANDIDATE: done\n"
        "\nall 4 requests were answered as recorded\n"
    )


def test_names_harm_no_terminal(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in what a recording has are escaped where they are printed."""
    main(["replay", str(recording), "--set", "scheduler.goal=\x1b[2J\u009b"])
    out = capsys.readouterr().out
    assert r"\x1b[2J\x9b" in out
    assert all(line.isprintable() for line in out.split("\n"))


def test_another_threshold(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another threshold the first step that goes another way is shown with its reasons, and is the last one."""
    assert main(["replay", str(recording), "--set", "scheduler.activation_threshold=0.6"]) == 1
    out = capsys.readouterr().out
    assert "  2  FirstAction  different  BELOW_THRESHOLD: give up: BELOW_THRESHOLD\n" in out
    assert "     - action: was start classify$0, is give up: BELOW_THRESHOLD\n" in out
    assert "     - agent classify$0: threshold: was 0.3, is 0.6\n" in out
    assert out.endswith(
        "the 2 requests after the last one can't be replayed: what they report belongs to the recorded run\n"
    )


def test_a_threshold_that_changes_no_step(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A threshold that no score crosses changes only itself, and the replay goes on to the end."""
    code, replayed = steps(recording, capsys, "--set", "scheduler.activation_threshold=0.31")
    assert code == 1
    assert [step["differences"] for step in replayed] == [
        [],
        ["agent classify$0: threshold: was 0.3, is 0.31"],
        ["agent draft$1: threshold: was 0.3, is 0.31"],
        [],
    ]


def test_other_questions(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that asks other questions has no answers in the recording, and says which they are."""
    code, replayed = steps(recording, capsys, "--set", "scheduler.goal=The kettle is repaired")
    assert code == 1
    assert len(replayed) == 2
    problem, was, now = replayed[-1]["differences"]
    assert problem == "asks what was not recorded, so there is no answer"
    assert was.startswith("question 'classify' was: How useful would it be")
    assert now.startswith("question 'classify' is: How useful would it be")
    assert "The kettle is repaired" in now


def test_another_answer(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that was changed in the file gives another score, and perhaps another step."""

    def change(exchanges: list[dict[str, Any]]) -> None:
        [answer] = exchanges[1]["reply"]["step"]["explanation"]["decisions"][0]["answers"]
        answer["scale"] = {"mean": 0.5}

    edited(recording, change)
    code, replayed = steps(recording, capsys)
    assert code == 1
    assert replayed[1]["summary"] == "BELOW_THRESHOLD: give up: BELOW_THRESHOLD"
    assert any(line.startswith("agent classify$0: score: was ") for line in replayed[1]["differences"])


def test_another_input(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the scope was another one it is said that the answers were not given to it."""

    def change(exchanges: list[dict[str, Any]]) -> None:
        exchanges[1]["request"]["scope"]["set"]["ticket"] = {"string_value": "Hello"}

    edited(recording, change)
    code, replayed = steps(recording, capsys)
    assert code == 1
    assert (
        "the input of the decision differs: the recorded answers were given to another one"
        in (replayed[1]["differences"])
    )


def test_another_list_of_agents(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An agent that is gone is no longer asked about; keys that are read besides have no recorded values."""

    def change(exchanges: list[dict[str, Any]]) -> None:
        agents = exchanges[0]["request"]["agents"]
        agents[0]["arguments"].append({"name": "order"})

    edited(recording, change)
    code, replayed = steps(recording, capsys)
    assert code == 1
    assert replayed[0]["differences"] == ["reads 'order', which was not read: the recording has no value of it"]
    assert "agent classify$0: status: was candidate, is missing_key" in replayed[1]["differences"]


def test_a_configuration_that_is_refused(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A change that can't be configured is told in the words of Init."""
    code, [init] = steps(recording, capsys, "--set", "scheduler.goal_threshold=7")
    assert code == 1
    assert init["differences"][0].startswith("is refused with INVALID_CONFIGURATION: scheduler.goal_threshold")


def test_a_human_and_a_second_process(
    server: ServerProcess, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was suspended is two recordings, each of which replays by itself."""
    approve = human("approve", arguments=["reply"], output_key="approved", request="May it be sent?")
    agents: list[Any] = [*AGENTS, approve]
    planner = Bdi([Desire(name="sent", agents=agents, achievable="ticket", satisfied="approved")])
    later = tmp_path / "later.jsonl"
    with Client(server.target) as client:
        with file.open("w") as lines:
            suspended = client.run(planner, agents, TICKET, output_key="approved", record=lines.write)
        assert suspended.status is RunStatus.SUSPENDED
        answers = {suspended.suspensions[0].response_id: True}
        with later.open("w") as lines:
            run = client.run(planner, agents, resume=suspended.snapshot, answers=answers, record=lines.write)
    assert run.result is True
    for recorded in (file, later):
        code, replayed = steps(recorded, capsys)
        assert [step["differences"] for step in replayed] == [[]] * len(replayed)
        assert code == 0
    assert json.loads(later.read_text("utf-8").splitlines()[1])["request"]["state"]


def test_a_run_that_failed_and_was_taken_over(
    server: ServerProcess, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose agent failed, and its continuation by somebody who took it over, replay as they were."""

    def fail(ticket: str, category: str) -> str:
        raise RuntimeError(category)

    broken = agent(output_key="reply", name="draft")(fail)
    later = tmp_path / "later.jsonl"
    with Client(server.target) as client:
        with file.open("w") as lines, pytest.raises(AgentFailed) as raised:
            client.run(PLANNER, [classify, broken], TICKET, output_key="reply", record=lines.write)
        with later.open("w") as lines:
            client.run(PLANNER, [classify, draft], resume=raised.value.snapshot, take_over=True, record=lines.write)
    assert steps(file, capsys)[0] == 0
    code, replayed = steps(later, capsys)
    assert code == 0, replayed
    assert replayed[1]["summary"].startswith("ATTACHED")


def test_the_client_for_asyncio_records_too(
    server: ServerProcess, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recorder may be a coroutine function, and what an asyncio client records replays."""
    lines: list[str] = []

    async def keep(line: str) -> None:
        lines.append(line)

    async def run() -> None:
        async with AsyncClient(server.target) as client:
            await client.run(PLANNER, AGENTS, TICKET, output_key="reply", record=keep)

    asyncio.run(run())
    file.write_text("".join(lines), "utf-8")
    assert main(["replay", str(file)]) == 0
    capsys.readouterr()


def test_a_recording_without_answers(server: ServerProcess, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording with short explanations can't be replayed where the model was asked, and says what to do."""
    record(server, file, scheduler, explain="summary")
    code, replayed = steps(file, capsys)
    assert code == 1
    assert replayed[-1]["differences"] == ["the recording has no answers of the model: record with explain='full'"]
    assert replayed[-1]["last"]


def test_a_recording_that_begins_in_the_middle(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its Init a recording can't be replayed."""
    edited(recording, lambda exchanges: exchanges.__delitem__(0))
    code, [step] = steps(recording, capsys)
    assert (code, step["differences"]) == (1, ["comes before any Init; record runs as a whole"])


HEADER = '{"plannerd_recording": 1}\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "there is nothing in this recording"),
        (HEADER, "there is nothing in this recording"),
        ("{", "line 1: this is not JSON"),
        ("[]", "line 1: each line must be a JSON object"),
        ('{"a": 1}', "line 1: this is no recording: its first line must be"),
        ('{"plannerd_recording": 2}', "line 1: version 2 of recordings is not known here"),
        (HEADER + '{"method": "Init"}', "line 2: a line has exactly method, reply, request"),
        (HEADER + '{"method": "End", "request": {}, "reply": {}}', "line 2: method must be one of Init, FirstAction"),
        (HEADER + '{"method": [], "request": {}, "reply": {}}', "line 2: method must be one of"),
        (HEADER + '{"method": "Init", "request": {"a": 1}, "reply": {}}', 'line 2: request: Message type "planner.v1.'),
        (HEADER + '{"method": "Init", "request": [], "reply": {}}', "line 2: request: "),
        (HEADER + '{"method": "Init", "request": {}, "reply": 7}', "line 2: reply: "),
        (HEADER + '{"method": "Init", "request": ' + "[" * 9999, "line 2: this is not JSON"),
        ("\udcff", "this is not UTF-8 text"),
    ],
)
def test_files_that_are_no_recordings(
    file: Path, text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no recording ends with 2 and a message with the line."""
    file.write_text(text, "utf-8", "surrogateescape")
    assert main(["replay", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"plannerd: {file}")
    assert complaint in error


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("goal_threshold", "must be PATH=VALUE"),
        ("=1", "must be PATH=VALUE"),
        ("nothing.goal=1", "the recording's Init has no 'nothing' there"),
        ("scheduler.goal.x=1", "there is nothing below 'goal'"),
        ("agents.9.name=x", "'9' must be a position from 0 to 1"),
        ("scheduler.gaol=1", 'has no field named "gaol"'),
        ("scheduler.goal_threshold=high", "request: "),
    ],
)
def test_changes_that_do_not_fit(
    recording: Path, change: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change of a field that is not there, or with a value that it can't have, ends with 2."""
    assert main(["replay", str(recording), "--set", change]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file ends with 2."""
    assert main(["replay", "missing.jsonl"]) == 2
    assert capsys.readouterr().err == "plannerd: missing.jsonl: No such file or directory\n"
