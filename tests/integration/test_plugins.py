"""A planner that a package brings, installed the way an operator would, behind a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from plannerd_client import Client, GaveUp, PlannerdError, Plugin, agent
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planner_pb2_grpc, planners_pb2
from tests.support.servers import ROOT, ServerProcess, run_plannerd, running_server


@agent(output_key="draft")
def write(request: str, draft: str | None = None) -> str:
    """Writes a draft, or a longer one."""
    return f"{draft or request}!"


@agent(output_key="reply")
def sign(draft: str) -> str | None:
    """Signs a draft that is long enough."""
    return draft if draft.endswith("!!") else None


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, installed by pip."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(ROOT / "examples" / "until-planner")], check=True)
    return target


@pytest.fixture(scope="module")
def server(installed: Path) -> Iterator[ServerProcess]:
    """A server in whose environment the package is installed."""
    with running_server(environment={"PYTHONPATH": str(installed)}) as running:
        yield running


def test_a_client_runs_an_invocation_through_a_plug_in(server: ServerProcess) -> None:
    """A planner from another package plans a real run: rounds of both agents until the key is there."""
    with Client(server.target) as client:
        run = client.run(
            Plugin("until", {"key": "reply", "max_rounds": 3}), [write, sign], {"request": "hi"}, output_key="reply"
        )
    assert run.result == "hi!!"
    assert [agent_id for step in run.steps for _, agent_id in step.started] == ["write$0", "sign$1"] * 2


def test_a_plug_in_gives_up_with_its_own_words(server: ServerProcess) -> None:
    """What a plug-in says when it gives up reaches the client."""
    with Client(server.target) as client, pytest.raises(GaveUp, match="'reply' is not there after 2 calls"):
        client.run(Plugin("until", {"key": "reply", "max_rounds": 1}), [write, sign], {"request": "hi"})


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({}, "plugin.configuration.key"),
        ({"key": "reply", "rounds": 1}, "plugin.configuration.rounds"),
        ({"key": "reply", "max_rounds": "two"}, "plugin.configuration.max_rounds"),
        ({"key": "nobody"}, "plugin.configuration.key"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_field(
    server: ServerProcess, configuration: dict[str, object], field: str
) -> None:
    """Missing, misspelt, mistyped and impossible options are INVALID_CONFIGURATION with the path of the field."""
    with Client(server.target) as client, pytest.raises(PlannerdError) as raised:
        client.run(Plugin("until", configuration), [write, sign], {"request": "hi"})
    assert raised.value.reason == "INVALID_CONFIGURATION"
    assert [violation.field for violation in raised.value.violations] == [field]


def test_list_planners_shows_the_schema_of_a_plug_in(server: ServerProcess) -> None:
    """ListPlanners names the plug-in among the others, with its topology and the JSON schema of its options."""
    with grpc.insecure_channel(server.target) as channel:
        listed = planner_pb2_grpc.PlannerServiceStub(channel).ListPlanners(planner_pb2.ListPlannersRequest())
    assert [info.name for info in listed.planners] == ["bdi", "cascade", "router", "scheduler", "until"]
    until = listed.planners[-1]
    assert until.topology == planners_pb2.TOPOLOGY_LOOP
    request = planner_pb2.InitRequest(invocation_id="i", planner_agent=agent_pb2.PlannerAgent(name="support"))
    request.plugin.name = "until"
    request.plugin.configuration.entries["key"].string_value = "signed"
    request.agents.add(name="sign", output_key="signed")
    with grpc.insecure_channel(server.target) as channel:
        started = planner_pb2_grpc.PlannerServiceStub(channel).Init(request)
    assert started.topology == until.topology, "Init says what ListPlanners says"
    schema = json.loads(until.configuration_schema)
    assert schema["required"] == ["key"]
    assert schema["properties"]["max_rounds"]["minimum"] == 1


def test_an_unknown_planner_is_not_found(server: ServerProcess) -> None:
    """A name that no package brings is NOT_FOUND PLANNER_NOT_FOUND."""
    with Client(server.target) as client, pytest.raises(PlannerdError) as raised:
        client.run(Plugin("other", {}), [write, sign], {"request": "hi"})
    assert raised.value.reason == "PLANNER_NOT_FOUND"


def test_a_plug_in_that_can_not_be_loaded_stops_the_start(tmp_path: Path) -> None:
    """A broken package is named in the message with which the server refuses to start."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[plannerd.planners]\nbroken = no_such_module:PLUGIN\n", "utf-8")
    ended = run_plannerd("serve", "--port", "0", environment={"PYTHONPATH": str(tmp_path)})
    assert ended.returncode != 0
    assert "'broken' (no_such_module:PLUGIN)" in ended.stderr
    assert "Traceback" not in ended.stderr
