"""What the pages say about names, codes, defaults and limits is what the code has."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations import state_format
from plannerd.planners.bdi.options import DEFAULT_MAX_INVOCATIONS as BDI_MAXIMUM
from plannerd.planners.cascade.options import CANDIDATE, DEFAULT_GRADING_QUESTION
from plannerd.planners.moves import GiveUpReason, Outcome, WarningCode
from plannerd.planners.registry import PLANNERS, PlannerInfo
from plannerd.planners.router.options import DEFAULT_CHOICE_QUESTION, DEFAULT_RELEVANCE_QUESTION
from plannerd.planners.scheduler.options import (
    DEFAULT_GOAL_QUESTION,
    DEFAULT_MAX_INVOCATIONS,
    DEFAULT_USEFULNESS_LEVELS,
    DEFAULT_USEFULNESS_QUESTION,
)
from plannerd.services.codec.configuration import MAX_ID_CHARS
from plannerd.services.codec.requests import MAX_FAILURE_TYPE_CHARS, MAX_RESPONSE_ID_CHARS
from plannerd.services.failures import CODES
from plannerd.services.planner_service import MAX_PAGE
from plannerd.settings import Settings
from plannerd.transport.status import DOMAIN
from plannerd.values import MAX_NESTING
from plannerd.wire.values import MAX_TAG_BYTES
from plannerd_protos.planner.v1 import agent_pb2, planner_pb2, planners_pb2
from tests.docs.markdown import ROOT
from tests.support.builders import agent, scheduler
from tests.support.engine import Server

DOCS: Final = ROOT / "docs"
CONFIGS: Final[Mapping[str, Descriptor]] = {
    "scheduler": planners_pb2.SchedulerConfig.DESCRIPTOR,
    "router": planners_pb2.RouterConfig.DESCRIPTOR,
    "cascade": planners_pb2.CascadeConfig.DESCRIPTOR,
    "bdi": planners_pb2.BdiConfig.DESCRIPTOR,
}


def text(name: str) -> str:
    """A page."""
    return (DOCS / name).read_text("utf-8")


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table."""
    lines = (line for line in page.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def option_rows(planner: str) -> dict[str, str]:
    """The default of each option, as the page of a planner has it."""
    return {row[0].strip("` "): row[1] for row in rows(text(f"planners/{planner}.md")) if len(row) == 3}


# --- planners


def test_every_planner_has_a_page() -> None:
    """Each planner of the registry has a page, and the index links to it."""
    for info in PLANNERS:
        assert (DOCS / "planners" / f"{info.kind}.md").is_file()
        assert f"planners/{info.kind}.md" in text("README.md")
    assert set(CONFIGS) == {info.kind for info in PLANNERS}


@pytest.mark.parametrize("info", PLANNERS, ids=lambda info: info.kind)
def test_the_topology_is_on_the_page(info: PlannerInfo) -> None:
    """Each page names the topology of its planner."""
    assert f"`TOPOLOGY_{info.topology.name}`" in text(f"planners/{info.kind}.md")


@pytest.mark.parametrize("planner", CONFIGS)
def test_every_option_is_on_the_page(planner: str) -> None:
    """Each field of a planner's configuration has a row in the table of options, and there are no others."""
    fields = list(CONFIGS[planner].fields)
    nested = [inner for field in fields if field.message_type for inner in field.message_type.fields]
    names = {field.name for field in [*fields, *nested]}
    assert names <= set(option_rows(planner))


@pytest.mark.parametrize(
    ("planner", "option", "default"),
    [
        ("scheduler", "max_invocations", str(DEFAULT_MAX_INVOCATIONS)),
        ("scheduler", "goal_question_template", DEFAULT_GOAL_QUESTION),
        ("scheduler", "usefulness_question_template", DEFAULT_USEFULNESS_QUESTION),
        ("router", "choice_question", DEFAULT_CHOICE_QUESTION),
        ("router", "relevance_question_template", DEFAULT_RELEVANCE_QUESTION),
        ("cascade", "grading_question", DEFAULT_GRADING_QUESTION),
        ("bdi", "max_invocations", str(BDI_MAXIMUM)),
    ],
)
def test_defaults_are_those_of_the_code(planner: str, option: str, default: str) -> None:
    """The default of an option on its page is the one that the planner uses."""
    written = option_rows(planner)[option]
    assert default in {written.strip("`"), written.split(",")[0]}


def test_the_levels_are_those_of_the_code() -> None:
    """The default levels are on the page, in order."""
    assert option_rows("scheduler")["usefulness_levels"] == ", ".join(
        f"`{level}`" for level in DEFAULT_USEFULNESS_LEVELS
    )


def test_names_that_planners_add_are_on_their_pages() -> None:
    """The names of the fields and questions that a planner makes up are documented."""
    assert f"`{CANDIDATE}`" in text("planners/cascade.md")
    assert "`answer-accepted`" in text("planners/cascade.md")
    assert "`decision-agent`" in text("planners/router.md")


def everything() -> str:
    """All pages together."""
    return "\n".join(path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md")))


@pytest.mark.parametrize("name", sorted({item.name for kind in (Outcome, GiveUpReason, WarningCode) for item in kind}))
def test_outcomes_reasons_and_warnings_are_explained(name: str) -> None:
    """Each outcome of a step, reason to give up and code of a warning stands on some page."""
    assert f"`{name}`" in everything()


# --- the contract


def test_every_error_reason_has_its_code_and_one_advice() -> None:
    """Each reason stands once in the tables of docs/contract.md that say what to do, with its code."""
    advice = [row for row in rows(text("contract.md")) if len(row) == 2 and row[0].strip("`") in Reason.__members__]
    found = [row[0].strip("`") for row in advice]
    assert sorted(found) == sorted(Reason.__members__)
    for reason, code in advice:
        assert code.strip("`") == CODES[Reason[reason.strip("`")]].name
    assert f"`{DOMAIN}`" in text("contract.md")


def test_the_state_table_has_every_row() -> None:
    """Code and tests refer to rows 1 to 28 and 8b of the state table."""
    numbers = [row[0] for row in rows(text("contract.md")) if len(row) == 4 and re.fullmatch(r"\d+b?", row[0])]
    assert {*map(str, range(1, 29)), "8b"} <= set(numbers)
    assert len(set(numbers)) == len(numbers)


def test_every_rpc_is_on_the_page() -> None:
    """The table of RPCs has all of them, in the order of the proto."""
    service = planner_pb2.DESCRIPTOR.services_by_name["PlannerService"]
    names = [method.name for method in service.methods]
    assert [row[0].strip("`") for row in rows(text("contract.md")) if row[0].strip("`") in names][: len(names)] == names


async def test_every_field_of_the_execution_state_is_on_the_page() -> None:
    """The table of the state's fields is complete, and the page is about the format that is written."""
    client = await Server().started(scheduler(agent("a", "ticket", writes="x")))
    fields = set(json.loads(client.state.data))
    section = text("contract.md").split("The fields of `data`.")[1].split("Agents are called by")[0]
    assert {row[0].strip("`") for row in rows(section)[2:]} == fields
    assert f"## The execution state, format {state_format.newest_format()}" in text("contract.md")


def test_limits_are_those_of_the_code() -> None:
    """Each limit on the page is the default of its setting, or the constant in the code."""
    section = text("contract.md").split("## Limits")[1].split("## Not in this version")[0]
    table = {row[0]: row for row in rows(section)[2:]}
    for row in table.values():
        for name in re.findall(r"`([a-z]+\.[a-z_]+)`", row[2]):
            default = _default(name)
            if default is None:
                assert row[1].startswith("no limit"), name
            else:
                assert _number(row[1]) == float(default), name
    for what, constant in {
        "an invocation id": MAX_ID_CHARS,
        "a response id": MAX_RESPONSE_ID_CHARS,
        "lists and maps inside each other": MAX_NESTING,
        "a tag": MAX_TAG_BYTES,
        "the type of a failure": MAX_FAILURE_TYPE_CHARS,
        "the data of a state, whatever the setting": state_format.MAX_STATE_BYTES,
        "planners on one page": MAX_PAGE,
    }.items():
        assert _number(table[what][1].removeprefix("1 to ")) == constant, what


def _default(name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(Settings.model_fields[section].default, field)


def _number(written: str) -> float:
    """`4 MiB` in bytes, `3600 s` in seconds, `200` as it is."""
    found = re.match(r"([\d.]+)\s*(MiB|GiB)?", written)
    assert found is not None, written
    return float(found[1]) * {"MiB": 2**20, "GiB": 2**30}.get(found[2] or "", 1)


UNSUPPORTED: Final = {
    "CEL conditions": scheduler(agent("a", "ticket", activation=agent_pb2.Condition(cel="has(scope.x)"))),
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
async def test_what_is_not_there_yet_is_said(feature: str) -> None:
    """docs/contract.md lists under "Not in this version" what is refused with NOT_IMPLEMENTED, and nothing else."""
    listed = feature in text("contract.md").split("## Not in this version")[1]
    try:
        await Server().client(UNSUPPORTED[feature]).init()
        refused = False
    except PlannerdError as error:
        refused = error.reason is Reason.NOT_IMPLEMENTED
    assert listed is refused


def test_dataclasses_of_options_match_the_contract() -> None:
    """An option that is only in the contract, or only in the code, would be a surprise on the pages."""
    for info in PLANNERS:
        assert len(dataclasses.fields(info.options)) == len(CONFIGS[info.kind].fields)
