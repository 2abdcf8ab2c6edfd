"""Where every decision that was paid for went: to a client that kept it, or, if not, what prevented that.

The decision model numbers the requests that it gets. A request counts as *kept* when a client received the step that
it decided, and nobody had to ask the same again. Each other one is *lost*, and must be explained by something that
was noted elsewhere, between its own beginning and the next time that the same was asked:

- its server ended, before the model had answered (`asking`) or before the client had the reply (`reply`);
- its client was killed, before it had saved the step;
- the call that carried it was broken while the model was asked, so that nothing was committed (`cut`);
- the store was down when it was to be committed, or forgot what was committed (`store died`);
- it was decided for a repetition of a request that came late, at a replica which the invocation had left (`stray`).

What none of these explains was paid twice for no reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tests.faults.events import Event
from tests.faults.scenarios import case_of

Fate: TypeAlias = Literal[
    "kept", "server died asking", "server died replying", "client died", "cut", "stray", "store died", "unexplained"
]

# Between a fault in one process and what another one notes of it.
_SLACK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 5.0
# With these a client was told, or told itself, that a step did not happen: its time was over, or the server's.
_NOT_MADE: Final = ("DEADLINE_EXCEEDED", "CANCELLED", "DRAINING")
_NEVER: Final = float("inf")


@dataclass(slots=True)
class Ask:
    """One request to the decision model, and when things happened to it.

    `answered` is when the model was done, `hung_up` when its asker had gone; `committed` is when a reply that was
    decided by it was first seen on its way, `received` when a client had it.
    """

    number: int
    invocation: str
    key: str
    replica: str
    start: float
    answered: float | None = None
    hung_up: float | None = None
    late: bool = False
    committed: float | None = None
    received: float | None = None
    fate: Fate = "unexplained"

    @property
    def since(self) -> float:
        """When a fault could first strike it; a server that has not noticed one yet asks, and then hangs up."""
        return self.start - (_SLACK_SECONDS if self.answered is None else 0.1)

    @property
    def over(self) -> float:
        """When the model was done with it, as far as it knows."""
        return self.answered or self.hung_up or self.start


@dataclass(slots=True)
class Account:
    """All requests, and what became of them."""

    asks: list[Ask]
    fates: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    """How often something was asked that had been asked before."""
    abandoned: int = 0
    """Lost ones that nobody asked again: the run went on differently, or the client had to begin anew."""

    @property
    def lost(self) -> int:
        """Requests that were paid for nothing."""
        return len(self.asks) - self.fates["kept"]

    def kept_by_case(self) -> Counter[str]:
        """How many decisions were kept of each case."""
        return Counter(case_of(ask.invocation) for ask in self.asks if ask.fate == "kept")

    @property
    def unexplained(self) -> list[Ask]:
        """Those that should not be there."""
        return [ask for ask in self.asks if ask.fate == "unexplained"]


def account(events: Sequence[Event], *, shared: bool = False) -> Account:
    """Follow every request to the decision model that `events` tell of.

    With a store that the replicas have shared, nothing excuses that something committed was asked for again, unless
    the store forgot it.
    """
    asks = _asks(events)
    evidence = _Evidence(events)
    result = Account(list(asks.values()))
    same: defaultdict[tuple[str, str], list[Ask]] = defaultdict(list)
    for ask in result.asks:
        same[ask.invocation, ask.key].append(ask)
    for group in same.values():
        for ask, following in zip(group, [*group[1:], None], strict=True):
            ask.fate = _fate(ask, following, evidence, shared=shared)
            result.fates[ask.fate] += 1
            if following is None and ask.fate != "kept":
                result.abandoned += 1
        result.repeated += len(group) - 1
    return result


def _asks(events: Iterable[Event]) -> dict[int, Ask]:
    asks: dict[int, Ask] = {}
    for event in events:
        match event["kind"]:
            case "asked":
                asks[event["ask"]] = Ask(event["ask"], event["invocation"], event["key"], event["replica"], event["t"])
            case "answered":
                asks[event["ask"]].answered = event["t"]
            case "hung-up":
                asks[event["ask"]].hung_up = event["t"]
            case "replied" | "committed":
                for number in event["asks"]:
                    asks[number].late = asks[number].committed is None and event.get("late", False)
                    asks[number].committed = asks[number].committed or event["t"]
            case "step":
                for number in event["asks"]:
                    asks[number].received = asks[number].received or event["t"]
                    asks[number].committed = asks[number].committed or event["t"]
            case _:
                pass
    return asks


@dataclass(slots=True)
class _Outage:
    """A time without the store."""

    since: float
    forgets: bool
    until: float = _NEVER


class _Evidence:
    """What was noted of the deaths of processes, and of connections and calls that broke."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._died: dict[str, float] = {}
        self._outages: list[_Outage] = []
        self._killed: defaultdict[str, list[float]] = defaultdict(list)
        self._begun: defaultdict[str, list[float]] = defaultdict(list)
        self._ended: defaultdict[str, list[float]] = defaultdict(list)
        self._went_on: defaultdict[str, list[float]] = defaultdict(list)
        self._cut: defaultdict[str, list[float]] = defaultdict(list)
        self._gave_up: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        at_work: defaultdict[str, set[str]] = defaultdict(set)
        for event in events:
            match event["kind"]:
                case "replica-ends":
                    self._died[event["replica"]] = event["t"]
                case "store-ends":
                    self._outages.append(_Outage(event["t"], event["forgets"]))
                case "store-started":
                    self._outages[-1].until = event["t"]
                case "worker-killed":
                    for invocation in event["invocations"]:
                        self._killed[invocation].append(event["t"])
                case "begins":
                    at_work[event["worker"]].add(event["invocation"])
                    self._begun[event["invocation"]].append(event["t"])
                    self._went_on[event["case"]].append(event["t"])
                case "ends":
                    at_work[event["worker"]].discard(event["invocation"])
                    self._ended[event["invocation"]].append(event["t"])
                case "step":
                    self._went_on[event["case"]].append(event["t"])
                case "cut" if "place" in event:
                    self._cut[event["place"]].append(event["t"])
                case "cut":
                    for invocation in at_work[event["worker"]]:
                        self._cut[invocation].append(event["t"])
                case "retry":
                    self._gave_up[event["invocation"]].append((event["t"], event["reason"]))
                case _:
                    pass

    def given_up(self, invocation: str) -> bool:
        """Whether its client was killed before it had saved anything, so that nobody went on with it."""
        begun, ended = max(self._begun[invocation], default=0.0), max(self._ended[invocation], default=0.0)
        return max(self._killed[invocation], default=0.0) > begun > ended

    def went_on(self, ask: Ask) -> float:
        """When its case was next heard of."""
        return min((at for at in self._went_on[case_of(ask.invocation)] if at > ask.over), default=_NEVER)

    def server_died(self, ask: Ask, until: float) -> float:
        """When the process that asked ended."""
        died = self._died.get(ask.replica, _NEVER)
        return died if ask.since <= died <= until else _NEVER

    def client_died(self, ask: Ask, until: float) -> float:
        """When the client that wanted it was killed; that may have been before a server noticed, and asked."""
        begun = self._begun[ask.invocation]
        killed = self._killed[ask.invocation]
        return min(
            (at for at in killed if at <= until and not any(at < other <= ask.since for other in begun)), default=_NEVER
        )

    def store_died(self, ask: Ask, until: float) -> float:
        """When the store went down, so that the answer could not be committed, or was lost after that."""
        if ask.committed is not None:
            lost = (one.since for one in self._outages if one.forgets and ask.start <= one.since <= until)
        else:
            until = min(until, ask.over + _SLACK_SECONDS)
            lost = (
                one.since for one in self._outages if one.since <= until and ask.start <= one.until + _SLACK_SECONDS
            )
        return min(lost, default=_NEVER)

    def cut(self, ask: Ask, until: float) -> float:
        """When the call was broken, before its answer can have been committed."""
        if ask.committed is not None:
            return _NEVER
        soon = min(until, ask.over + _SLACK_SECONDS)
        cut = [at for at in (*self._cut[ask.invocation], *self._cut[ask.replica[:1]]) if at <= soon]
        # A deadline that passes before the commit says so itself, however long a busy server took to get there.
        late = min(until, ask.over + _PATIENCE_SECONDS)
        cut += [at for at, reason in self._gave_up[ask.invocation] if reason.endswith(_NOT_MADE) and at <= late]
        found = min((at for at in cut if ask.since <= at), default=_NEVER)
        if found == _NEVER and ask.hung_up is not None:
            # Nothing can have been committed; it is enough that its client noticed, for whatever reason.
            until = ask.hung_up + _PATIENCE_SECONDS
            found = min((at for at, _ in self._gave_up[ask.invocation] if ask.start <= at <= until), default=_NEVER)
        return found


def _fate(ask: Ask, following: Ask | None, evidence: _Evidence, *, shared: bool) -> Fate:
    """What became of `ask`; `following` is the next one that asks the same for the same invocation."""
    if ask.received is not None and following is None:
        return "client died" if evidence.given_up(ask.invocation) else "kept"
    until = following.start if following is not None else evidence.went_on(ask)
    if ask.answered is None:
        until = min(until, ask.over + _SLACK_SECONDS)
    excuses: list[tuple[float, Fate]] = [(evidence.store_died(ask, until), "store died")]
    if not (shared and following is not None and ask.committed is not None):
        # Who asks again for what is in a shared store must be given that, so nothing else excuses it.
        excuses.append((evidence.client_died(ask, until), "client died"))
        if ask.received is None:
            # Once its client has it, only that client can lose it.
            died = evidence.server_died(ask, until)
            answered = ask.answered is not None and ask.answered < died
            excuses.append((died, "server died replying" if answered else "server died asking"))
            excuses.append((evidence.cut(ask, until), "cut"))
    found = [(when, fate) for when, fate in excuses if when < _NEVER]
    if found and ask.hung_up is not None:
        return min(found, key=lambda one: abs(one[0] - ask.over))[1]  # what made it hang up
    if found:
        return min(found)[1]
    return "stray" if ask.late and ask.received is None and not shared else "unexplained"
