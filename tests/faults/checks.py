"""What is promised, held against what happened: each check returns what is wrong, as (case, what)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.faults.accounting import Account
from tests.faults.events import Event
from tests.faults.harness import Outcome
from tests.faults.replicas import Ended, log_lines
from tests.faults.scenarios import Case, case_of
from tests.faults.worker import RUN_SECONDS

Wrong = tuple[str, str]
"""A case, or empty, and what is wrong with it."""

# What a server may take in the end, as a multiple of one that served everything alone and without faults.
_GROWTH = {"kilobytes": 1.5, "files": 4.0, "threads": 3.0}
_STEPS = frozenset({"FirstAction", "NextAction"})
_BUGS = frozenset({"unexpected_error", "died"})


def results(calm: Outcome, storm: Outcome, cases: int) -> Iterator[Wrong]:
    """Every case ended, with the result that it has when nothing disturbs it."""
    for number in range(cases):
        case = Case(number).id
        right, found = calm.results.get(number), storm.results.get(number)
        if right is None or right["outcome"] != "done":
            yield case, f"has no result even when it is not disturbed: {right}"
        elif found is None:
            yield case, "did not end"
        elif (found["outcome"], found["result"]) != (right["outcome"], right["result"]):
            yield case, f"ended as {found['outcome']} with {found['result']!r} instead of {right['result']!r}"


def orders(calm: Outcome, storm: Outcome, cases: int) -> Iterator[Wrong]:
    """Agents were started in the order of the undisturbed run, where there is one order."""
    right, found = _started(calm.events), _started(storm.events)
    for number in range(cases):
        case = Case(number)
        if not case.scenario.fixed_order:
            continue
        order = right[case.id].get(case.id)
        for invocation, other in found[case.id].items():
            # An invocation that was begun anew under another id ended early here.
            ended = storm.results.get(number, {}).get("invocation") == invocation
            if order is not None and (other != order if ended else other != order[: len(other)]):
                yield case.id, f"started {other} instead of {order}"


def _started(events: Iterable[Event]) -> defaultdict[str, dict[str, list[str]]]:
    """Which agents were started, in order, by case and invocation; a step that was received twice counts once."""
    steps: defaultdict[str, defaultdict[str, dict[int, list[str]]]] = defaultdict(lambda: defaultdict(dict))
    for event in events:
        if event["kind"] == "step":
            steps[event["case"]][event["invocation"]][event["revision"]] = event["started"]
    started: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    for case, invocations in steps.items():
        for invocation, by_revision in invocations.items():
            started[case][invocation] = [agent for _, agents in sorted(by_revision.items()) for agent in agents]
    return started


def calls(events: Sequence[Event]) -> Iterator[Wrong]:
    """No call ran twice within one living client, nor after its outcome was saved."""
    runs = Counter(
        (event["worker"], event["invocation"], event["call"], event["attempt"])
        for event in events
        if event["kind"] == "ran"
    )
    for (worker, invocation, call, attempt), times in runs.items():
        if times > 1:
            yield case_of(invocation), f"{worker} ran attempt {attempt} of call {call} {times} times"
    finished: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        if event["kind"] == "saved":
            finished[event["invocation"]].update(event["finished"])
        elif event["kind"] == "ran" and event["call"] in finished[event["invocation"]]:
            yield event["case"], f"{event['worker']} ran call {event['call']}, whose outcome was saved before"


def step_lists(events: Sequence[Event]) -> Iterator[Wrong]:
    """The steps of a run say how often each request was sent again."""
    retries: defaultdict[tuple[str, str], int] = defaultdict(int)
    resumed: set[tuple[str, str]] = set()
    for event in events:
        if event["kind"] not in {"begins", "retry", "step"}:
            continue
        run = event["worker"], event["invocation"]
        match event["kind"]:
            case "begins":
                retries[run] = 0
                if event["resumed"]:  # it first sends what the former process had sent, which may come to nothing
                    resumed.add(run)
            case "retry":
                retries[run] += event["method"] in _STEPS
            case _:
                if run not in resumed and event["retries"] != retries[run]:
                    yield event["case"], f"a step says {event['retries']} retries, and there were {retries[run]}"
                retries[run] = 0
                resumed.discard(run)


def decisions(calm: Account, found: Account, cases: int) -> Iterator[Wrong]:
    """No decision was paid for twice without a reason; those that were kept are as many as without faults."""
    right, kept = calm.kept_by_case(), found.kept_by_case()
    for case in map(Case, range(cases)):
        if case.scenario.fixed_order and right[case.id] != kept[case.id]:
            yield case.id, f"kept {kept[case.id]} decisions; without faults there are {right[case.id]}"
    for ask in found.unexplained:
        yield case_of(ask.invocation), f"request {ask.number} to the decision model was asked for nothing: {ask}"


def undisturbed_decisions(found: Account) -> Iterator[Wrong]:
    """Without faults nothing is lost; else the rest would not mean anything."""
    if found.lost or found.repeated:
        yield "", f"without any fault, {found.lost} decisions were lost and {found.repeated} asked again"


def servers(ended: Iterable[Ended]) -> Iterator[Wrong]:
    """Servers that were asked to stop did, without a call left over, and none met an error of its own."""
    for replica in ended:
        if not replica.forced and replica.code != 0:
            yield "", f"replica {replica.name} ended with exit code {replica.code}"
        for line in log_lines(replica.log):
            if line.get("code") == "INTERNAL" or line["event"] in _BUGS or line["level"] in {"error", "critical"}:
                yield case_of(line.get("invocation_id", "")), f"replica {replica.name} logged {line}"


def leftovers(calm: Outcome, storm: Outcome) -> Iterator[Wrong]:
    """When all is over no server has a call under way, and none takes much more than one that had a quiet life."""
    (quiet,) = calm.sizes.values()
    for name, size in storm.sizes.items():
        for what, found in size.items():
            if found > _GROWTH[what] * quiet[what]:
                yield "", f"replica {name} has {found} {what} in the end, one without faults {quiet[what]}"
    last = set(storm.sizes)
    for replica in storm.ended:
        if replica.name not in last:
            continue
        for line in log_lines(replica.log):
            if (line["event"] == "stopping" and line["calls"]) or (line["event"] == "stopped" and line["calls_cut"]):
                yield "", f"replica {replica.name} still had calls under way: {line}"


def stuck(storm: Outcome) -> Iterator[Wrong]:
    """Every run ended within its time."""
    began: dict[tuple[str, str], float] = {}
    for event in storm.events:
        match event["kind"]:
            case "begins":
                began[event["worker"], event["invocation"]] = event["t"]
            case "ends":
                seconds = event["t"] - began[event["worker"], event["invocation"]]
                if seconds > RUN_SECONDS:
                    yield event["case"], f"a run took {seconds:.0f} s"
            case "stuck":
                yield "", f"these were under way when the time was over: {event['cases']}"
            case _:
                pass
