"""`plannerd models`: what is configured, and whether it works."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from plannerd_protos.planner.v1 import decision_pb2
from tests.support.decision_servers import Failing, decision_server
from tests.support.hosts import Request, answer, host, status
from tests.support.servers import run_plannerd

TOKEN = "tangerine-7"


@contextmanager
def silent_port() -> Iterator[str]:
    """An address where nobody listens, and nobody else comes to listen meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def run(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `plannerd models`, beside the servers of the test."""
    command = ("models", *arguments, "--config", str(file))
    return await asyncio.to_thread(run_plannerd, *command, environment={"MODEL_TOKEN": TOKEN})


def config(tmp_path: Path, **models: dict[str, Any]) -> Path:
    """A file with these models."""
    file = tmp_path / "plannerd.yaml"
    file.write_text(
        yaml.safe_dump({"decisions": {"models": models, "default": next(iter(models))}}, sort_keys=False), "utf-8"
    )
    return file


def service(target: str, **settings: Any) -> dict[str, Any]:
    """A model behind a service."""
    authorization = {"authorization": {"env": "MODEL_TOKEN", "prefix": "Bearer "}}
    return {"provider": "grpc", "target": target, "metadata": authorization, "retries": 0, **settings}


def at_host(url: str, **settings: Any) -> dict[str, Any]:
    """A model behind a host of System One."""
    return {"provider": "systemone", "base_url": url, "model": "jev", "retries": 0, **settings}


def answers() -> list[decision_pb2.DecideResponse]:
    """An answer to each kind of question, the last of them a refusal."""
    kinds = (
        decision_pb2.Answer(question="yes_no", yes_no=decision_pb2.YesNoAnswer(probability=0.75)),
        decision_pb2.Answer(
            question="choice",
            choice=decision_pb2.ChoiceAnswer(value="shipping", probabilities={"shipping": 0.5, "billing": 0.5}),
        ),
        decision_pb2.Answer(question="scale", refusal=decision_pb2.RefusalAnswer(message=f"not for {TOKEN}")),
    )
    return [decision_pb2.DecideResponse(answers=[kind], model="theirs-1", retries=1) for kind in kinds]


async def test_models_that_work(tmp_path: Path) -> None:
    """Each model has its row with latency, name and limits, and what it answered to each kind of question."""
    (tmp_path / "script.yaml").write_text("{model: rehearsal, limits: {questions: 9}}", "utf-8")
    async with decision_server(*answers()) as server:
        file = config(
            tmp_path,
            small={"provider": "sparrow"},
            script={"provider": "fixed", "file": str(tmp_path / "script.yaml")},
            mine=service(server.target, max_options=7, images=False),
        )
        ended = await run(file, "check")
    assert (ended.returncode, ended.stderr) == (0, "")
    header, small, script, mine = [line.split() for line in ended.stdout.splitlines()[:4]]
    assert header == ["NAME", "PROVIDER", "STATE", "LATENCY", "MODEL", "LIMITS"]
    assert small[:3] == ["small", "sparrow", "ok"]
    assert small[4:6] == ["ms", "sparrow-nano-general-v1.1"]
    assert small[-4:] == ["10", "levels,", "no", "images"]
    assert script == ["script", "fixed", "ok", "-", "-", "9", "questions,", "images"]
    assert mine[:3] == ["mine", "grpc", "ok"]
    assert mine[5:] == ["theirs-1", "7", "options,", "no", "images"]
    assert ended.stdout.endswith(
        "\nmine:\n  yes_no: yes with 0.75\n  choice: shipping with 0.50\n  scale: refused: not for ***\n"
    )
    assert "script:\n  not asked: its answers are those of a file\n" in ended.stdout


async def test_models_that_fail(tmp_path: Path) -> None:
    """A model that can't be made, reached or used says why, and the others are asked all the same."""
    rejects = Failing(grpc.StatusCode.UNAUTHENTICATED, f"'Bearer {TOKEN}' is not known here")
    wrong = decision_pb2.DecideResponse(model="theirs-1")
    with silent_port() as nobody:
        async with decision_server(rejects) as strict, decision_server(wrong) as liar:
            file = config(
                tmp_path,
                small={"provider": "sparrow"},
                strict=service(strict.target),
                liar=service(liar.target),
                nobody=service(nobody),
                unset=service("127.0.0.1:1", metadata={"authorization": {"env": "NO_SUCH_VARIABLE"}}),
            )
            ended = await run(file, "check")
            reports = json.loads((await run(file, "check", "--json")).stdout)
    assert ended.returncode == 1
    rows = [line.split() for line in ended.stdout.splitlines()[1:6]]
    assert [row[2] for row in rows] == ["ok", "failed", "failed", "unreachable", "misconfigured"]
    assert "yes_no: DECISION_MODEL_CREDENTIALS: decision model 'strict' rejects the credentials" in ended.stdout
    assert "(because: '***' is not known here)" in ended.stdout
    assert "NO_SUCH_VARIABLE is not set" in ended.stdout
    assert [report["ok"] for report in reports] == [True, False, False, False, False]
    reasons = [report.get("error", {}).get("reason") for report in reports]
    assert reasons == [
        None,
        "DECISION_MODEL_CREDENTIALS",
        "DECISION_INVALID_ANSWER",
        "DECISION_MODEL_UNAVAILABLE",
        "CONFIGURATION",
    ]
    assert [report.get("reachable") for report in reports] == [True, True, True, False, None]
    assert len(liar.seen) == 3 * 2
    assert len(strict.seen) == 1 * 2
    for text in (ended.stdout, ended.stderr, json.dumps(reports)):
        assert TOKEN not in text
        assert "Traceback" not in text


async def test_why_a_model_is_not_reached(tmp_path: Path) -> None:
    """What the connection or the host says of a failure is shown, in one line, cut, without the key."""
    (tmp_path / "key").write_text(TOKEN, "utf-8")
    long = json.dumps({"error": f"{TOKEN} \x1b[2J\n " + "no" * 500}).encode()
    with silent_port() as nobody:
        async with (
            host(always=status(401, long)) as strict,
            host(always=status(400, b"")) as terse,
            decision_server(*answers()) as plain,
        ):
            file = config(
                tmp_path,
                dead=service(nobody),
                unknown=service("nowhere.invalid:443", allow_insecure=True),
                encrypted=service(plain.target, tls={"enabled": True}),
                refused=at_host(f"http://{nobody}"),
                nameless=at_host("http://nowhere.invalid"),
                strict=at_host(strict.url, api_key_file=str(tmp_path / "key")),
                terse=at_host(terse.url),
            )
            ended = await run(file, "check")
    lines = [line for line in ended.stdout.splitlines() if line.startswith("  yes_no: ")]
    causes = [line.partition(" (because: ")[2].removesuffix(")") for line in lines]
    words = ["refused", "nowhere.invalid", "handshake", "refused", "", '{"error": "*** \\u001b[2J\\n no', ""]
    for cause, word in zip(causes, words, strict=True):
        assert word.lower() in cause.lower()
    assert [bool(cause) for cause in causes] == [True] * 6 + [False]
    assert all(len(cause) < 400 for cause in causes)
    assert TOKEN not in ended.stdout + ended.stderr


async def test_what_models_say_harms_no_terminal(tmp_path: Path) -> None:
    """A name or a refusal with control characters is escaped, a long name is cut, and none has the key in it."""
    (tmp_path / "key").write_text(TOKEN, "utf-8")

    def hostile(request: Request) -> Any:
        refusal = {"type": "refusal", "message": f"\x1b]0;owned\x07 {TOKEN}\u009b"}
        return {
            "model": f"\x1b[31m{TOKEN} " + "m" * 200,
            "answers": dict.fromkeys(request.json["questions"], refusal),
        }

    async with host(always=answer(hostile)) as there:
        file = config(tmp_path, hostile=at_host(there.url, api_key_file=str(tmp_path / "key")))
        for arguments in ([], ["--json"]):
            ended = await run(file, "check", *arguments)
            assert ended.returncode == 0
            assert TOKEN not in ended.stdout
            assert all(line.isprintable() for line in ended.stdout.split("\n"))
            assert "\\u009b" in ended.stdout or "\\x9b" in ended.stdout
            assert "***" in ended.stdout
            if not arguments:
                assert max(map(len, ended.stdout.splitlines())) < 200


async def test_some_models_by_name(tmp_path: Path) -> None:
    """Only the models that are named are asked, within the time that is given."""
    async with decision_server(3600.0) as slow:
        file = config(tmp_path, small={"provider": "sparrow"}, slow=service(slow.target))
        assert (await run(file, "check", "small")).returncode == 0
        assert slow.seen == []
        ended = await run(file, "check", "slow", "--timeout", "0.5")
    assert ended.returncode == 1
    assert "DECISION_MODEL_UNAVAILABLE" in ended.stdout
    assert "small" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["check", "other"], "plannerd: there is no decision model 'other'; configured: 'small', 'big'\n"),
        (["check", "--timeout", "0"], "plannerd: --timeout must be more than 0\n"),
        (["check", "--timeout", "nan"], "plannerd: --timeout must be more than 0\n"),
    ],
)
async def test_wrong_command_lines(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    """A model that is not configured and a time that is none end with 2."""
    ended = await run(config(tmp_path, small={"provider": "sparrow"}, big={"provider": "sparrow"}), *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", complaint)


async def test_the_list(tmp_path: Path) -> None:
    """The list has every model with its provider and the default, and asks nobody."""
    ended = await run(config(tmp_path, small={"provider": "sparrow"}, far=service("127.0.0.1:1")), "list")
    assert ended.stdout == "NAME   PROVIDER\nsmall  sparrow   default\nfar    grpc\n"
    assert ended.returncode == 0
