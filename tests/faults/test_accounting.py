"""What excuses a decision that was paid for twice, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.accounting import account
from tests.faults.checks import calls
from tests.faults.events import Event

ABOUT = {"case": "case-1", "invocation": "case-1"}


def at(t: float, kind: str, **facts: Any) -> Event:
    return {"t": t, "kind": kind, **facts}


def asked(t: float, ask: int, *, replica: str = "a1", answered: float | None = None, gone: float | None = None) -> Any:
    events = [at(t, "asked", ask=ask, key="k", replica=replica, **ABOUT)]
    if answered is not None:
        events.append(at(answered, "answered", ask=ask, **ABOUT))
    if gone is not None:
        events.append(at(gone, "hung-up", ask=ask, **ABOUT))
    return events


def begins(t: float, worker: str = "w0.1") -> Event:
    return at(t, "begins", worker=worker, **ABOUT)


def step(t: float, ask: int) -> Event:
    return at(t, "step", asks=[ask], worker="w0.1", **ABOUT)


def replied(t: float, ask: int, *, late: bool = False) -> Event:
    return at(t, "replied", asks=[ask], late=late, **ABOUT)


def retry(t: float, reason: str) -> Event:
    return at(t, "retry", worker="w0.1", method="NextAction", reason=reason, **ABOUT)


KILLED = at(11.0, "replica-ends", replica="a1")
CLIENT_KILLED = at(11.0, "worker-killed", invocations=["case-1"])
CUT = at(10.4, "cut", worker="w0.1")
STORE_ENDS = at(9.4, "store-ends", forgets=False)
STORE_STARTS = at(10.2, "store-started")
STORE_FORGETS = at(11.0, "store-ends", forgets=True)
ANSWERED = asked(10.0, 1, answered=10.5)
ASKED_AGAIN = [begins(19.0, "w0.2"), *asked(20.0, 2, replica="b1", answered=20.5), step(21.0, 2)]

TIME_IS_UP = retry(10.8, "DEADLINE_EXCEEDED")

EXCUSES = {
    "server died asking": [*asked(10.0, 1, gone=11.1), KILLED],
    "server died replying": [*ANSWERED, KILLED],
    "client died": [*ANSWERED, CLIENT_KILLED],
    "cut": [*ANSWERED, CUT],
    "cut, by its time": [*ANSWERED, TIME_IS_UP],
    "cut, as its client says": [*asked(10.0, 1, gone=10.5), retry(12.0, "StatusCode.UNAVAILABLE")],
    "store died": [*ANSWERED, STORE_ENDS, STORE_STARTS],
    "stray": [*ANSWERED, replied(10.6, 1, late=True)],
}


def fates(*events: Event, shared: bool = False) -> list[str]:
    ordered = sorted([begins(1.0), *events], key=lambda event: float(event["t"]))
    return [ask.fate for ask in account(ordered, shared=shared).asks]


def test_what_a_client_received_is_kept() -> None:
    """A decision that was received, and never asked for again, is the normal case."""
    assert fates(*ANSWERED, step(11.0, 1)) == ["kept"]


@pytest.mark.parametrize(("fate", "events"), EXCUSES.items())
def test_what_excuses_a_second_request(fate: str, events: list[Event]) -> None:
    """A fault between two requests for the same decision explains the first one."""
    assert fates(*events, *ASKED_AGAIN) == [fate.partition(",")[0], "kept"]


@pytest.mark.parametrize(
    "events",
    [
        ANSWERED,
        [*asked(10.0, 1, gone=10.5)],
        [*ANSWERED, at(25.0, "replica-ends", replica="a1")],  # it died, but after the same was asked again
        [*ANSWERED, at(11.0, "replica-ends", replica="c1")],  # another one died
        [*ANSWERED, at(25.0, "worker-killed", invocations=["case-1"]), begins(26.0, "w0.3")],
        [*ANSWERED, at(11.0, "worker-killed", invocations=["case-2"])],
        [*ANSWERED, retry(10.6, "StatusCode.UNAVAILABLE")],  # the client lost the reply, which is no excuse
        [*ANSWERED, retry(17.0, "DEADLINE_EXCEEDED")],
        [*ANSWERED, replied(10.6, 1), retry(10.6, "DEADLINE_EXCEEDED")],
        [*ANSWERED, at(5.0, "store-ends", forgets=False), at(6.0, "store-started")],
        [*ANSWERED, at(15.0, "cut", worker="w0.1")],  # long after it must have been committed
        [*ANSWERED, at(10.4, "cut", worker="w9.1")],
        [*ANSWERED, CUT, replied(10.6, 1)],  # cut, but somebody saw the reply, so it was committed
        [*ANSWERED, step(11.0, 1), CUT],  # received, and the client lived
        [*ANSWERED, step(11.0, 1), KILLED],
    ],
)
def test_what_excuses_nothing(events: list[Event]) -> None:
    """Without a fault at the right time, at the right place, a second request is unexplained."""
    assert fates(*events, *ASKED_AGAIN) == ["unexplained", "kept"]


@pytest.mark.parametrize("fault", [KILLED, CLIENT_KILLED, CUT, at(11.0, "store-ends", forgets=False)])
def test_a_shared_store_leaves_no_excuse(fault: Event) -> None:
    """What was committed to a store that all replicas share may not be asked for again, whoever died."""
    committed = at(10.6, "committed", asks=[1], invocation="case-1")
    assert fates(*ANSWERED, committed, fault, *ASKED_AGAIN, shared=True) == ["unexplained", "kept"]


def test_unless_the_store_forgot_it() -> None:
    """A store without persistence loses what was committed when it dies."""
    committed = at(10.6, "committed", asks=[1], invocation="case-1")
    assert fates(*ANSWERED, committed, STORE_FORGETS, *ASKED_AGAIN, shared=True) == ["store died", "kept"]


def test_late_repetitions_excuse_nothing_with_a_shared_store() -> None:
    """Where every replica sees the invocation, a request that comes late must not be decided."""
    late = replied(10.6, 1, late=True)
    assert fates(*ANSWERED, late, *ASKED_AGAIN, shared=True) == ["unexplained", "kept"]


def test_a_loss_that_nobody_asked_for_again_needs_an_excuse_too() -> None:
    """A request whose answer never arrived is lost, even if the run went on differently."""
    assert fates(*ANSWERED) == ["unexplained"]
    assert fates(*ANSWERED, KILLED) == ["server died replying"]
    assert fates(*ANSWERED, step(10.9, 7), *asked(10.8, 7), KILLED)[0] == "unexplained"


def test_what_a_client_took_with_it_is_lost() -> None:
    """A step that a client received, and died with before it saved anything, was decided for nothing."""
    assert fates(*ANSWERED, step(10.6, 1), CLIENT_KILLED) == ["client died"]
    assert fates(*ANSWERED, step(10.6, 1), CLIENT_KILLED, begins(12.0, "w0.2")) == ["kept"]


def test_counts_add_up() -> None:
    """All requests are kept or lost; the lost ones were asked for again, or abandoned."""
    events = [*ANSWERED, KILLED, *ASKED_AGAIN]
    found = account([begins(1.0), *events])
    assert (len(found.asks), found.lost, found.repeated, found.abandoned) == (2, 1, 1, 0)


def ran(worker: str, call: str = "c", attempt: int = 1) -> Event:
    return at(1.0, "ran", worker=worker, call=call, attempt=attempt, agent="a", **ABOUT)


def test_a_call_may_run_again_in_another_process_only() -> None:
    """Twice in one client process is wrong; so is once more after its outcome was saved."""
    assert not list(calls([ran("w0.1"), ran("w0.2"), ran("w0.2", attempt=2)]))
    assert len(list(calls([ran("w0.1"), ran("w0.1")]))) == 1
    assert len(list(calls([ran("w0.1"), at(2.0, "saved", finished=["c"], **ABOUT), ran("w0.2")]))) == 1
