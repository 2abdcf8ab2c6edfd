"""The files of execution states: what is in one, how it is read, and how it is made.

One file per situation under `v<format version>/`: the Init, the state, the scope and how to go on, and what a
server must answer to it. A file of a released version is never changed; `python -m tests.golden.write` makes
those that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict

from plannerd_protos.planner.v1 import planner_pb2, step_pb2
from tests.golden.scenarios import Scenario
from tests.support.builders import scope_update
from tests.support.engine import Client, Server
from tests.support.models import answering

FOLDER: Final = Path(__file__).parent


def files() -> list[Path]:
    """Every file of every version."""
    return sorted(FOLDER.glob("v*/*.json"))


def text_of(document: Mapping[str, Any]) -> str:
    """A document as it is written to its file."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


async def make(scenario: Scenario) -> dict[str, Any]:
    """The document of a situation, as this version of the server has it."""
    before = await scenario.client()
    document: dict[str, Any] = {
        "says": scenario.says,
        "init": MessageToDict(scenario.request),
        "scope": MessageToDict(scope_update(scenario.scope)),
        "state": _plain_state(before.state),
        "there": _seen(before),
    }
    if scenario.reports is not None:
        document["answers"] = dict(scenario.later)
        document["results"] = [MessageToDict(result) for result in scenario.reports(before)]
        document["then"] = _seen(await restored(document))
    return document


async def restored(document: Mapping[str, Any]) -> Client:
    """A client that resumed from a document on a fresh server and, where there is more to do, went one step on."""
    client = resuming(document)
    state = state_of(document)
    await client.init(state)
    if "results" not in document:
        client.step.CopyFrom(await client.where())
        return client
    await client.send(first_action(document, client))
    assert _seen(client) == document["there"]
    await client.next(*(ParseDict(item, planner_pb2.AgentResult()) for item in document["results"]))
    return client


def resuming(document: Mapping[str, Any]) -> Client:
    """A client of a fresh server, about to resume from a document."""
    server = Server(answering(**document.get("answers", {})), new_branch=lambda: "unused")
    return server.client(ParseDict(document["init"], planner_pb2.InitRequest()))


def first_action(document: Mapping[str, Any], client: Client) -> planner_pb2.FirstActionRequest:
    """The FirstAction that attaches with a document's scope."""
    request = planner_pb2.FirstActionRequest(invocation_id=client.invocation_id, base=client.position)
    ParseDict(document["scope"], request.scope)
    return request


def state_of(document: Mapping[str, Any]) -> step_pb2.ExecutionState:
    """The state of a document."""
    plain = dict(document["state"])
    data = plain.pop("data")
    state = ParseDict(plain, step_pb2.ExecutionState())
    state.data = data.encode()
    return state


def seen(client: Client) -> dict[str, Any]:
    """What matters of a client's last step."""
    return _seen(client)


def _seen(client: Client) -> dict[str, Any]:
    action = MessageToDict(client.step.action)
    action.get("giveUp", {}).pop("message", None)  # its wording may change
    return {"action": action, "calls": [MessageToDict(call) for call in client.step.calls]}


def without_wording(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document whose state is plain data, without the sentences in it."""
    data = json.loads(document["state"]["data"])
    for part in (data["action"], data["held"], (data["held"] or {}).get("action")):
        for wording in ("message", "summary"):
            (part or {}).pop(wording, None)
    return {**document, "state": {**document["state"], "data": data}}


def _plain_state(state: step_pb2.ExecutionState) -> dict[str, Any]:
    plain: dict[str, Any] = MessageToDict(state)
    return {**plain, "data": state.data.decode()}
