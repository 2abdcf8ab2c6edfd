"""An execution state is parsed strictly: what is missing, unknown, of another type or does not fit is refused."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping

import pytest

from plannerd.errors import Reason
from plannerd.invocations import state_format
from plannerd.services.codec.configuration import InitLimits
from tests.golden.states import first_action, resuming, state_of
from tests.support.engine import Server, refused
from tests.support.state_mutations import (
    OPEN_MAPS,
    encoded,
    in_open_map,
    part,
    paths,
    replaced,
    without,
)
from tests.support.states import DOCUMENTS, STATES, attempt

EACH = pytest.mark.parametrize("name", DOCUMENTS)


# ---- parts that do not fit each other

Change = tuple[str, dict[str, object]]
UNFIT: dict[str, Change] = {
    "an action names a call that is not live": ("scheduler-running", {"calls": []}),
    "an action names a call that was never issued": (
        "scheduler-running",
        {"action": {"kind": "start", "calls": ["branch1.7.0"]}},
    ),
    "a start names no call": ("scheduler-running", {"action": {"kind": "start", "calls": []}}),
    "a suspend names no call": ("scheduler-suspended", {"action": {"kind": "suspend", "calls": []}}),
    "an await names a call that is not pending": (
        "router-awaiting-before-suspending",
        {"action": {"kind": "await", "keys": ["page"], "calls": ["branch1.1.2"]}},
    ),
    "a suspend names a call that is not suspended": (
        "scheduler-running",
        {"action": {"kind": "suspend", "calls": ["branch1.1.0"]}},
    ),
    "no action beside a live call": ("scheduler-running", {"action": None}),
    "an ending beside a live call": ("scheduler-running", {"action": {"kind": "done", "result": None}}),
    "nothing new beside no live call": ("scheduler-done", {"action": {"kind": "noOp"}}),
    "a call of another agent than the planner runs": (
        "scheduler-running",
        {"planner": {"beingInvoked": "expert", "cannotRunAgain": ["expert"], "invocations": 1}},
    ),
    "a call of an agent that the planner does not run": (
        "scheduler-running",
        {"planner": {"beingInvoked": None, "cannotRunAgain": ["lookup"], "invocations": 1}},
    ),
    "a router that runs what was not activated": (
        "router-running",
        {"planner": {"activated": ["billing", "fetcher"], "completed": [], "pending": []}},
    ),
    "a router that has not heard of a call that was told": (
        "router-awaiting-before-suspending",
        {"planner": {"activated": ["billing", "fetcher", "approver"], "completed": ["billing"], "pending": []}},
    ),
    "an await without anything to wait for": ("scheduler-awaiting", {"waiting": None}),
    "an await for no key": ("scheduler-awaiting", {"waiting": []}),
    "a cascade that waits for no key": ("cascade-awaiting", {"waiting": []}),
    "an await for other keys than the planner": ("scheduler-awaiting", {"waiting": ["advice"]}),
    "a start while waiting": ("scheduler-running", {"waiting": ["facts"]}),
    "nothing that could follow an answer": ("scheduler-goal-reached-beside-suspended", {"held": None}),
    "calls of later steps than the state's": ("scheduler-running", {"issued": {"branch1": [[1, 1, 1], [4, 4, 1]]}}),
    "calls of later steps than the state's in one run": ("scheduler-running", {"issued": {"branch1": [[1, 3, 1]]}}),
    "steps out of order": ("scheduler-taken-over", {"issued": {"branch1": [[2, 2, 1], [1, 1, 1]]}}),
    "a live call that was never issued": ("scheduler-running", {"issued": {}}),
    "an ending that is no ending": (
        "scheduler-goal-reached-beside-suspended",
        {"held": {"action": {"kind": "noOp"}, "outcome": "OTHER", "summary": ""}},
    ),
}


@pytest.mark.parametrize("what", UNFIT)
async def test_parts_that_do_not_fit_each_other_are_refused(what: str) -> None:
    """A state whose parts contradict each other, or that could never go on, is refused."""
    name, change = UNFIT[what]
    assert not await attempt(name, encoded({**STATES[name], **change}))


async def test_a_call_that_was_told_is_not_outstanding() -> None:
    """A call is known as pending to the planner exactly if it is pending, or was so before it was suspended."""
    for name, path in (("scheduler-running", ("calls", 0, "told")), ("scheduler-awaiting", ("calls", 0, "told"))):
        flipped = not part(STATES[name], path)
        assert not await attempt(name, encoded(replaced(STATES[name], path, flipped)))


async def test_a_call_is_live_once() -> None:
    """A state that has one call twice is refused."""
    call = STATES["scheduler-running"]["calls"][0]
    assert not await attempt("scheduler-running", encoded({**STATES["scheduler-running"], "calls": [call, call]}))


# ---- bytes

DATA: bytes = DOCUMENTS["scheduler-running"]["state"]["data"].encode()
MODEL = b'"model":"fixed"'
BYTES = {
    "nothing": b"",
    "no JSON": b"state",
    "JSON that is no map": b"[]",
    "cut": DATA[:-1],
    "extended": DATA + b"}",
    "followed by another one": DATA + DATA,
    "UTF-16": DATA.decode().encode("utf-16"),
    "UTF-32": DATA.decode().encode("utf-32-be"),
    "a byte order mark": b"\xef\xbb\xbf" + DATA,
    "Latin-1": DATA.replace(b"fixed", b"f\xefxed"),
    "a surrogate in UTF-8": DATA.replace(b"fixed", b"\xed\xa0\x80"),
    "a surrogate as an escape": DATA.replace(b"fixed", b"\\ud800"),
    "a surrogate in a key": DATA.replace(b'"ticket":', b'"\\udfff":'),
    "a key twice": DATA.replace(MODEL, MODEL + b"," + MODEL),
    "a key twice further in": DATA.replace(b'"kind":"start"', b'"kind":"done","kind":"start"'),
    "NaN": DATA.replace(b'"invocations":1', b'"invocations":NaN'),
    "infinity": DATA.replace(b'"invocations":1', b'"invocations":-Infinity'),
    "a number that overflows": DATA.replace(b'"invocations":1', b'"invocations":1e999'),
    "a number of 5,000 digits": DATA.replace(b'"invocations":1', b'"invocations":' + b"1" * 5000),
    "deep nesting": DATA.replace(MODEL, b'"model":' + b"[" * 100_000 + b"]" * 100_000),
    "unfinished nesting": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("what", BYTES)
async def test_bytes_that_are_no_canonical_state_are_refused(what: str) -> None:
    """Data that is no JSON in UTF-8, or JSON that readers disagree about, is refused."""
    assert BYTES[what] != DATA
    assert not await attempt("scheduler-running", BYTES[what])


async def test_an_escaped_emoji_is_no_surrogate() -> None:
    """A character beyond the basic plane may be written as an escaped pair."""
    assert await attempt("scheduler-running", DATA.replace(b"fixed", b"\\ud83d\\ude00"))


# ---- every single change


@EACH
async def test_a_missing_field_is_refused(name: str) -> None:
    """A state without any one of its fields is refused."""
    for path in paths(STATES[name]):
        if path and isinstance(path[-1], str) and not in_open_map(path):
            assert not await attempt(name, encoded(without(STATES[name], path))), path


@EACH
async def test_an_unknown_field_is_refused(name: str) -> None:
    """A state with a field too many, in whatever map that has fields, is refused."""
    for path in paths(STATES[name]):
        if isinstance(part(STATES[name], path), dict) and not (path and path[-1] in OPEN_MAPS):
            changed = replaced(STATES[name], (*path, "unknown"), 1)
            assert not await attempt(name, encoded(changed)), path


def other_types(value: object) -> list[object]:
    """Values of every JSON type that `value` is not, and that its field can't have."""
    kinds: Mapping[type, object] = {str: "x", bool: True, int: 3, float: 0.5, list: [[]], dict: {"x": 1}}
    if value is None:
        return [True, 3, 0.5, [[]]]  # a field that may be null may be a text, a list or a map as well
    return [other for kind, other in kinds.items() if kind is not type(value)]


@EACH
async def test_a_field_of_another_type_is_refused(name: str) -> None:
    """A state with a value of another type anywhere is refused."""
    for path in paths(STATES[name]):
        for other in other_types(part(STATES[name], path)):
            assert not await attempt(name, encoded(replaced(STATES[name], path, other))), (path, other)


@EACH
async def test_a_state_is_refused_by_every_other_planner(name: str) -> None:
    """A state of one planner is refused by each other one as that of another planner."""
    state = state_of(DOCUMENTS[name])
    for other in ("scheduler-running", "router-running", "cascade-awaiting", "bdi-preempted"):
        if other.split("-")[0] != state.planner:
            with refused(Reason.STATE_OF_OTHER_PLANNER):
                await resuming(DOCUMENTS[other]).init(state)


@EACH
async def test_a_state_of_a_newer_format_is_told_from_a_broken_one(name: str) -> None:
    """A newer format version is said to be newer, whatever is in it, so that a client may try another replica."""
    for data in (state_of(DOCUMENTS[name]).data, b"", b"{}", b"\xff"):
        state = state_of(DOCUMENTS[name])
        state.format_version, state.data = 2, data
        with refused(Reason.STATE_NEWER) as caught:
            await resuming(DOCUMENTS[name]).init(state)
        assert caught.metadata["format_version"] == "2"


@pytest.mark.parametrize("version", [0, -1, -(2**31)])
async def test_a_version_that_never_was_is_refused(version: int) -> None:
    """A format version below the first one is malformed, not newer."""
    state = state_of(DOCUMENTS["scheduler-running"])
    state.format_version = version
    with refused(Reason.INVALID_EXECUTION_STATE):
        await resuming(DOCUMENTS["scheduler-running"]).init(state)


async def test_a_state_of_another_invocation_is_refused() -> None:
    """A state is resumed under its own id only."""
    client = resuming(DOCUMENTS["scheduler-running"])
    client.invocation_id = "another"
    with refused(Reason.INVALID_EXECUTION_STATE):
        await client.init(state_of(DOCUMENTS["scheduler-running"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", 0), ("epoch", -1), ("epoch", 2**63 - 1), ("epoch", 2**53), ("revision", -1), ("revision", 2**63 - 1),
        ("revision", 2**53), ("branch", ""), ("branch", "a.b"), ("branch", "."), ("branch", "x" * 10_000),
        ("branch", " "), ("branch", "\u00e4"),
    ],
    ids=lambda value: ascii(value)[:12],
)  # fmt: skip
async def test_a_position_that_can_not_be_one_is_refused(field: str, value: object) -> None:
    """Epochs, revisions and branches that no server gave out are refused, with and without take-over."""
    document = DOCUMENTS["scheduler-running"]
    for take_over in (False, True):
        state = state_of(document)
        setattr(state.position, field, value)
        client = resuming(document)
        with refused(Reason.INVALID_EXECUTION_STATE):
            await client.init(state, take_over=take_over)
        assert len(client.server.memory) == 0


async def test_a_state_that_is_far_too_large_is_refused() -> None:
    """A state of more than a megabyte is refused without being looked at."""
    assert not await attempt(
        "scheduler-running", b" " * (1 << 20) + DOCUMENTS["scheduler-running"]["state"]["data"].encode()
    )


@EACH
async def test_an_agent_that_is_gone_is_named(name: str) -> None:
    """A state whose live call is of an agent that is no longer declared is refused with the agent's name."""
    document, data = DOCUMENTS[name], STATES[name]
    for call in data["calls"]:
        client = resuming(document)
        kept = [item for item in client.request.agents if item.name != call["agent"].partition("$")[0]]
        del client.request.agents[:]
        client.request.agents.extend(kept or [])
        if not kept or client.request.HasField("bdi") or len(kept) < 2:
            continue
        client.request.scheduler.ClearField("excluded_output_keys") if client.request.HasField("scheduler") else None
        if client.request.planner_agent.output_key not in {item.output_key for item in kept}:
            client.request.planner_agent.output_key = ""
        with refused(Reason.LIVE_AGENT_MISSING) as caught:
            await client.init(state_of(document))
        assert caught.metadata["agent"] == call["agent"]


async def test_a_refused_resume_does_not_touch_what_is_there() -> None:
    """A broken state, even with take-over, leaves the invocation that is there as it is."""
    document = DOCUMENTS["scheduler-running"]
    client = resuming(document)
    await client.init(state_of(document))
    await client.send(first_action(document, client))
    broken = state_of(document)
    broken.data = b"{}"
    for take_over in (False, True):
        with refused(Reason.INVALID_EXECUTION_STATE):
            await client.at(client.server).init(broken, take_over=take_over)
    assert (await client.where()).position == client.position


async def test_no_state_keeps_the_server_busy() -> None:
    """A state with as many calls and as many steps as fit into it is refused quickly: others wait meanwhile."""
    name = "router-running"
    data = copy.deepcopy(STATES[name])
    data["issued"] = {"branch1": [[2 * number, 2 * number, 1] for number in range(1, 30_000)]}
    data["calls"] = [{**data["calls"][0], "id": f"branch1.{2 * (29_999 - number)}.0"} for number in range(4000)]
    state = state_of(DOCUMENTS[name])
    state.position.revision, state.data = 60_000, encoded(data)
    assert len(state.data) < state_format.MAX_STATE_BYTES
    generous = Server(init_limits=InitLimits(max_state_bytes=state_format.MAX_STATE_BYTES))
    started = time.process_time()
    with refused(Reason.INVALID_EXECUTION_STATE):
        await resuming(DOCUMENTS[name]).at(generous).init(state)
    assert time.process_time() - started < 5
