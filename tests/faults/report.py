"""What came out of a storm: counts for people, and what is wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults import checks
from tests.faults.accounting import Account, account
from tests.faults.checks import Wrong
from tests.faults.events import told
from tests.faults.harness import Options, Outcome, disturbed, undisturbed
from tests.faults.scenarios import case_of

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """What came out."""

    options: Options
    calm: Outcome
    storm: Outcome
    quiet: Account
    account: Account
    wrong: list[Wrong]

    @property
    def commits(self) -> set[int]:
        """The requests to the decision model whose answers were committed, as Redis itself told."""
        return {ask for event in self.storm.events if event["kind"] == "committed" for ask in event["asks"]}

    def text(self) -> str:
        """All of it, for people."""
        rows = [*self._work(), ("", ""), *self._decisions(), ("", ""), *self._promises()]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}".rstrip() for name, value in rows]
        return "\n".join([*lines, *self._failures()])

    def _work(self) -> list[tuple[str, str]]:
        storm, events = self.storm, Counter(event["kind"] for event in self.storm.events)
        resumed = sum(event["kind"] == "begins" and event["resumed"] for event in storm.events)
        return [
            ("seed", str(self.options.seed)),
            ("store", self.options.store.name),
            ("invocations", f"{self.options.cases}, in {storm.seconds:.0f} s ({self.calm.seconds:.0f} s undisturbed)"),
            ("server processes", f"{events['replica-started']}"),
            ("client processes", f"{events['worker-started']}"),
            *((f"  {fault}", str(count)) for fault, count in sorted(storm.faults.items())),
            ("agents run", str(events["ran"])),
            ("steps received", str(events["step"])),
            ("requests sent again", str(events["retry"])),
            ("runs resumed from a snapshot", str(resumed)),
            ("requests through the post", ", ".join(f"{count} {way}" for way, count in sorted(storm.ways.items()))),
            ("repetitions of requests", ", ".join(f"{n} {code}" for code, n in sorted(storm.late.items()))),
        ]

    def _decisions(self) -> list[tuple[str, str]]:
        found = self.account
        return [
            ("decisions without faults", str(len(self.quiet.asks))),
            ("decisions in the storm", str(len(found.asks))),
            *((f"  {fate}", str(count)) for fate, count in sorted(found.fates.items())),
            *([("commits that Redis told of itself", str(len(self.commits)))] if self.options.store.shared else []),
            ("paid for nothing", str(found.lost)),
            ("  explained by a fault", str(found.lost - len(found.unexplained))),
            ("  and asked again", str(found.repeated)),
            ("  and not asked again", str(found.abandoned)),
        ]

    def _promises(self) -> list[tuple[str, str]]:
        right = sum(
            self.storm.results.get(number, {}).get("result") == result["result"]
            for number, result in self.calm.results.items()
            if number < self.options.cases
        )
        return [
            ("results as in the undisturbed run", f"{right} of {self.options.cases}"),
            ("runs of a call twice in one client", str(sum(1 for _ in checks.calls(self.storm.events)))),
            ("servers in the end", "; ".join(self._size(name) for name in sorted(self.storm.sizes))),
            ("broken promises", str(len(self.wrong))),
        ]

    def _size(self, name: str) -> str:
        size = self.storm.sizes[name]
        return f"{name}: {size['kilobytes'] // 1024} MB, {size['files']} files, {size['threads']} threads"

    def _failures(self) -> list[str]:
        if not self.wrong:
            return []
        options = self.options
        lines = ["", "What is wrong:", *(f"  {case or '-'}: {what}" for case, what in self.wrong[:20])]
        start = self.storm.events[0]["t"]
        for case in list(dict.fromkeys(case for case, _ in self.wrong if case))[:_SHOWN]:
            events = [
                event
                for event in self.storm.events
                if event.get("case") == case
                or case in map(case_of, event.get("invocations", ()))
                or "replica" in event["kind"]
            ]
            lines += ["", f"Events of {case}:", told(events, start)]
        chosen = {"cases": options.cases, "seed": options.seed, "pause": options.pause, "store": options.store.name}
        again = " ".join(f"--{name} {value}" for name, value in chosen.items())
        return [*lines, "", f"To run it again: make faults ARGS='{again}'"]


def calmly(options: Options, folder: Path) -> Outcome:
    """Run the cases without faults."""
    return asyncio.run(undisturbed(options, folder))


def run(options: Options, calm: Outcome, folder: Path) -> Report:
    """Run the cases with faults, and hold what comes out against the same cases, or more, without any."""
    storm = asyncio.run(disturbed(options, folder))
    found = account(storm.events, shared=options.store.shared)
    quiet = account(calm.events)
    wrong = [
        *checks.results(calm, storm, options.cases),
        *checks.orders(calm, storm, options.cases),
        *checks.calls(storm.events),
        *checks.step_lists(storm.events),
        *checks.undisturbed_decisions(quiet),
        *checks.decisions(quiet, found, options.cases),
        *checks.servers([*calm.ended, *storm.ended]),
        *checks.leftovers(calm, storm),
        *checks.stuck(storm),
    ]
    return Report(options, calm, storm, quiet, found, wrong)
