"""`plannerd invocations` against real servers: with the memory of one, and with a store that two share."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from plannerd_protos.planner.v1 import operator_pb2, operator_pb2_grpc, planner_pb2, planner_pb2_grpc
from tests.support.builders import agent, scheduler
from tests.support.redis import free_port, running_redis
from tests.support.servers import ROOT, ServerProcess, run_plannerd, running_server

HANGS = 30.0
SECRET = "tangerine"


@pytest.fixture(scope="module", params=["memory", "store"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[ServerProcess]]:
    """One server with operators, or two with a store; the last is the one to ask."""
    with ExitStack() as stack:
        config: dict[str, Any] = {"operations": {"enabled": True}}
        if request.param == "memory":
            yield [stack.enter_context(running_server(config=config))]
            return
        redis = stack.enter_context(running_redis())
        config["store"] = {"url": f"redis://127.0.0.1:{redis.port}"}
        yield [stack.enter_context(running_server(config=config)) for _ in range(2)]


def begin(server: ServerProcess, *ids: str) -> None:
    """Begin invocations whose first agent runs."""
    with grpc.insecure_channel(server.target) as channel:
        stub = planner_pb2_grpc.PlannerServiceStub(channel)
        for invocation_id in ids:
            request = scheduler(agent("lookup", "ticket", writes="facts"), activation_threshold=0.01)
            request.invocation_id = invocation_id
            started = stub.Init(request, timeout=HANGS)
            first = planner_pb2.FirstActionRequest(invocation_id=invocation_id, base=started.position)
            first.scope.set["ticket"].string_value = SECRET
            stub.FirstAction(first, timeout=HANGS)


def ask(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_plannerd("invocations", *arguments, "--target", server.target)


def test_list(servers: list[ServerProcess]) -> None:
    """A table, or a line of JSON each, of what was asked for."""
    begin(servers[0], "list-1", "list-2", "list-3")
    table = ask(servers[-1], "list", "--prefix", "list-")
    assert table.returncode == 0, table.stderr
    header, *rows = table.stdout.splitlines()
    assert header.split() == [
        "INVOCATION",
        "IDENTITY",
        "PLANNER",
        "STATUS",
        "REVISION",
        "CALLS",
        "AGE",
        "IDLE",
        "MODEL",
    ]
    assert sorted(row.split()[:6] for row in rows) == [
        [f"list-{number}", "-", "scheduler", "running", "1", "1"] for number in (1, 2, 3)
    ]
    lines = ask(servers[-1], "list", "--prefix", "list-", "--status", "running", "--limit", "2", "--json")
    assert len([json.loads(line) for line in lines.stdout.splitlines()]) == 2
    assert ask(servers[-1], "list", "--prefix", "list-", "--status", "suspended", "--json").stdout == ""
    assert ask(servers[-1], "list", "--age", "1h", "--json").stdout == ""


def test_show(servers: list[ServerProcess]) -> None:
    """One reads where it stands, what runs, and why; also at a replica that did not make the step."""
    begin(servers[0], "show-1")
    shown = ask(servers[-1], "show", "show-1")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "invocation  show-1"
    assert any(line.startswith("call ") and line.endswith("lookup$0  outstanding") for line in lines)
    assert any(line.startswith("step 1 ") and line.endswith("called") for line in lines)
    assert any(line.startswith("  lookup$0: candidate") and line.endswith("of 0.01  called") for line in lines)
    assert SECRET not in shown.stdout
    data = json.loads(ask(servers[-1], "show", "show-1", "--json").stdout)
    assert data["steps"][0]["explanation"]["outcome"] == "STEP_OUTCOME_CALLED"
    assert SECRET not in json.dumps(data)


def test_end(servers: list[ServerProcess]) -> None:
    """An invocation is ended for its client at any replica, which is told why; the log says who did it."""
    begin(servers[0], "end-1")
    ended = ask(servers[-1], "end", "end-1", "--reason", "it loops")
    assert (ended.returncode, ended.stdout) == (0, "end-1 is ended; it was running\n")
    with grpc.insecure_channel(servers[0].target) as channel:
        call = planner_pb2_grpc.PlannerServiceStub(channel).ExecutionState.future(
            planner_pb2.ExecutionStateRequest(invocation_id="end-1"), timeout=HANGS
        )
        assert call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "by an operator (it loops)" in call.details()
    assert ask(servers[-1], "end", "end-1", "--reason", "x").stdout == "end-1 was ended before\n"
    shown = ask(servers[-1], "show", "end-1").stdout
    assert "ended       by operator -: it loops" in shown
    [line] = [event for event in servers[-1].events() if event["event"] == "ended_by_operator"][:1]
    assert (line["level"], line["invocation_id"]) == ("warning", "end-1")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("show", "nowhere"), 1, "INVOCATION_NOT_FOUND: "),
        (("end", "nowhere", "--reason", "x"), 1, "INVOCATION_NOT_FOUND: "),
        (("end", "nowhere", "--reason", ""), 1, "INVALID_REQUEST: "),
        (("list", "--age", "soon"), 2, "'soon' is no time"),
        (("list", "--cert", "x"), 2, "--cert and --key"),
        (("list", "--ca", "/nowhere"), 2, "/nowhere: No such file"),
        (("list", "--token-file", "/nowhere"), 2, "/nowhere: No such file"),
    ],
)
def test_what_goes_wrong(servers: list[ServerProcess], arguments: tuple[str, ...], code: int, text: str) -> None:
    """What the server refuses ends with 1, a wrong command line with 2, both with a line that says why."""
    ended = ask(servers[-1], *arguments)
    assert ended.returncode == code
    assert ended.stderr.startswith("plannerd: ")
    assert text in ended.stderr


def test_it_is_off_by_default() -> None:
    """A server with default settings has no operators, whoever asks."""
    with running_server() as server:
        refused = ask(server, "list")
    assert refused.returncode == 1
    assert "SWITCHED_OFF" in refused.stderr


def test_nobody_there() -> None:
    """Where no server answers, that is what is said."""
    ended = run_plannerd("invocations", "list", "--target", f"127.0.0.1:{free_port()}", "--timeout", "5")
    assert ended.returncode == 1
    assert ended.stderr.startswith("plannerd: UNAVAILABLE: ")


def test_it_is_not_for_everybody() -> None:
    """Switched on without named operators, the server refuses to listen where other machines can reach it."""
    environment = {"PLANNERD_OPERATIONS__ENABLED": "true"}
    refused = run_plannerd("serve", "--host", "0.0.0.0", "--allow-insecure", "--port", "0", environment=environment)
    assert refused.returncode == 1
    assert "operations.enabled" in refused.stderr


SESSION = re.compile(r"```console\n(.*?)```", re.DOTALL)


def same_form(text: str) -> list[str]:
    """The lines of `text` without what differs from day to day: times, ids and durations."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC( \(\d+s ago\))?", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{10}\.", "BRANCH.", text)
    text = re.sub(r"\b[0-9.]+ ms\b", "SOME ms", text)
    return re.sub(r" +", " ", re.sub(r"\b\d+s\b", "SOMEs", text)).splitlines()


def test_the_session_in_the_documentation() -> None:
    """What the page about operators shows is what the commands print, apart from times and ids."""
    page = (ROOT / "docs" / "operators.md").read_text("utf-8")
    commands = [block.partition("\n") for block in SESSION.findall(page)]
    assert len(commands) == 4
    with running_server(config={"operations": {"enabled": True}}) as server:
        begin(server, "order-7")
        for command, _, shown in commands:
            words = shlex.split(command.removeprefix("$ plannerd invocations "))
            printed = ask(server, *words)
            assert same_form(printed.stdout + printed.stderr) == same_form(shown), printed.stdout + printed.stderr


def test_operators_have_names(tmp_path: Path) -> None:
    """With authentication, only who is named is an operator; they see whose an invocation is and end it by name."""
    for name in ("ops", "app"):
        (tmp_path / name).write_text(f"{name}-token-that-is-long-enough-0123456789")
    tokens = "".join(f"{name} {(tmp_path / name).read_text()}\n" for name in ("ops", "app"))
    (tmp_path / "tokens").write_text(tokens)
    config = {"auth": {"tokens_file": str(tmp_path / "tokens"), "operators": ["ops"]}}
    with running_server(config=config) as server:
        with grpc.insecure_channel(server.target) as channel:
            request = scheduler(agent("lookup", "ticket", writes="facts"))
            request.invocation_id = "named-1"
            authorization = (("authorization", f"Bearer {(tmp_path / 'app').read_text()}"),)
            planner_pb2_grpc.PlannerServiceStub(channel).Init(request, timeout=HANGS, metadata=authorization)
            stub = operator_pb2_grpc.OperatorServiceStub(channel)
            call = stub.ListInvocations.future(
                operator_pb2.ListInvocationsRequest(), timeout=HANGS, metadata=authorization
            )
            assert call.code() is grpc.StatusCode.PERMISSION_DENIED
        refused = ask(server, "list", "--token-file", str(tmp_path / "app"))
        assert (refused.returncode, refused.stderr.split(": ")[1]) == (1, "PERMISSION_DENIED")
        assert "UNAUTHENTICATED" in ask(server, "list").stderr
        ops = ("--token-file", str(tmp_path / "ops"))
        rows = ask(server, "list", *ops).stdout.splitlines()
        assert rows[1].split()[:4] == ["named-1", "app", "scheduler", "ready"]
        assert ask(server, "show", "named-1", *ops).returncode == 1
        ended = ask(server, "end", "named-1", "--identity", "app", "--reason", "x", *ops)
        assert (ended.returncode, ended.stdout) == (0, "named-1 is ended; it was ready\n")
        shown = ask(server, "show", "named-1", "--identity", "app", *ops).stdout
        assert "ended       by operator ops: x" in shown


def test_somebody_must_be_an_operator(tmp_path: Path) -> None:
    """Switched on where callers have identities and none is an operator's, the service is a wrong setting."""
    (tmp_path / "tokens").write_text("app a-token-that-is-long-enough-0123456789\n")
    environment = {"PLANNERD_OPERATIONS__ENABLED": "true", "PLANNERD_AUTH__TOKENS_FILE": str(tmp_path / "tokens")}
    ended = run_plannerd("config", "check", environment=environment)
    assert ended.returncode == 2
    assert "auth.operators" in ended.stderr
