"""The client processes of a storm, who gets which work, and what becomes of the work of those that are killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.events import EventLog
from tests.faults.scenarios import Case
from tests.support.servers import ROOT

KINDS: Final = ("threads", "asyncio")


class CrewError(Exception):
    """A client process ended, and nobody had killed it."""


def place_of(worker: str) -> int:
    """The place of the worker with this name: `w1.3` is the third in place 1."""
    return int(worker[1:].partition(".")[0])


@dataclass(slots=True)
class Worker:
    """One client process. `jobs` are those that it has not ended, by case."""

    name: str
    place: int
    process: asyncio.subprocess.Process
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    killed: bool = False


@dataclass(slots=True)
class Crew:
    """All of them.

    Args:
        folder: of snapshots and events.
        log: what happens to them is noted there.
        chance: who gets what.
        targets: for the place of a worker, where it may connect.
        size: how many work at a time.
        width: how many cases are under way at a time.
    """

    folder: Path
    log: EventLog
    chance: random.Random
    targets: Callable[[int], list[str]]
    size: int
    width: int
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    _workers: dict[int, Worker] = field(default_factory=dict)
    _births: dict[int, int] = field(default_factory=dict)
    _lives: dict[int, int] = field(default_factory=dict)
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _later: set[asyncio.Task[None]] = field(default_factory=set)
    _readers: set[asyncio.Task[None]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def working(self) -> list[Worker]:
        """Those that are alive."""
        return [worker for worker in self._workers.values() if not worker.killed]

    async def run(self, cases: int) -> dict[int, dict[str, Any]]:
        """Run that many cases to their ends; how each one ended."""
        self._waiting = [self._job(number) for number in range(cases)]
        try:
            await asyncio.gather(*(self._hire(place) for place in range(self.size)))
            while len(self.results) < cases:
                self._news.clear()
                self._hand_out()
                await self._news.wait()
                for reader in self._readers:
                    if reader.done():
                        reader.result()
        finally:
            await self._dismiss()
        return self.results

    async def kill(self, worker: Worker) -> None:
        """Kill one; another one takes its place, and somebody its work."""
        worker.killed = True
        self.log.write(
            "worker-killed", worker=worker.name, invocations=[job["invocation"] for job in worker.jobs.values()]
        )
        worker.process.kill()
        await worker.process.wait()
        await self._hire(worker.place)

    # --- work

    def _job(self, number: int) -> dict[str, Any]:
        """A case from its beginning, under an id that no earlier attempt had."""
        self._lives[number] = self._lives.get(number, 0) + 1
        life = self._lives[number]
        invocation = Case(number).id if life == 1 else f"{Case(number).id}.{life}"
        return {"number": number, "invocation": invocation, "resume": False, "answer": False}

    def _hand_out(self) -> None:
        busy = sum(len(worker.jobs) for worker in self.working)
        while self._waiting and self.working and busy < self.width:
            job = self._waiting.pop(0)
            worker = min(self.working, key=lambda one: (len(one.jobs), one.place))
            # A job keeps to its way: by messages or by connections.
            targets = self.targets(worker.place)
            worker.jobs[job["number"]] = {**job, "target": targets[job["number"] // 7 % len(targets)]}
            self._tell(worker, worker.jobs[job["number"]])
            busy += 1

    def _tell(self, worker: Worker, job: dict[str, Any]) -> None:
        if worker.process.stdin is not None:
            worker.process.stdin.write((json.dumps(job) + "\n").encode())

    def _again(self, job: dict[str, Any], *, answer: bool) -> None:
        """Somebody shall go on with a job: from its snapshot, or from the beginning if there was none yet."""
        if (self.folder / f"{job['invocation']}.snapshot").exists():
            again = {**job, "resume": True, "answer": answer or job["answer"]}
        else:
            again = self._job(job["number"])
        self._waiting.insert(0, again)
        self._news.set()

    def _ended(self, job: dict[str, Any]) -> None:
        if job["outcome"] == "suspended":
            if job["answer"]:
                self.results[job["number"]] = {**job, "outcome": "failed", "result": "suspended, although answered"}
            else:
                self._keep(self._later, self._answer_later(job, self.chance.uniform(0.05, 0.5)))
        else:
            self.results[job["number"]] = job
        self._news.set()

    async def _answer_later(self, job: dict[str, Any], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._again(job, answer=True)

    # --- processes

    async def _hire(self, place: int) -> None:
        self._births[place] = self._births.get(place, 0) + 1
        name = f"w{place}.{self._births[place]}"
        kind = KINDS[(place + self._births[place]) % len(KINDS)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.faults.worker", name, str(self.folder), kind),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        worker = self._workers[place] = Worker(name, place, process)
        self.log.write("worker-started", worker=name, clients=kind)
        self._keep(self._readers, self._read(worker))
        self._news.set()

    async def _read(self, worker: Worker) -> None:
        if worker.process.stdout is None:
            return
        async for line in worker.process.stdout:
            job = json.loads(line)
            if worker.jobs.pop(job["number"], None) is not None:
                self._ended(job)
        try:
            if not worker.killed and worker.jobs:
                raise CrewError(f"the client process {worker.name} ended by itself")
            for job in worker.jobs.values():
                self._again(job, answer=False)
            worker.jobs.clear()
        finally:
            self._news.set()

    async def _dismiss(self) -> None:
        for task in tuple(self._later):
            task.cancel()
        for worker in self._workers.values():
            if worker.process.stdin is not None:
                worker.process.stdin.close()
        for worker in self._workers.values():
            try:
                await asyncio.wait_for(worker.process.wait(), 30)
            except TimeoutError:
                worker.process.kill()
                await worker.process.wait()
        await asyncio.gather(*self._readers, *self._later, return_exceptions=True)

    def _keep(self, tasks: set[asyncio.Task[None]], work: Any) -> None:
        tasks.add(asyncio.ensure_future(work))
