"""A client process of a storm: runs cases as it is told on standard input, until it is told no more, or killed.

    python -m tests.faults.worker NAME FOLDER threads|asyncio

A line of input is a job: a case, an invocation id, the target to run it at, and perhaps the snapshot to go on from. A
line of output says how it ended. Snapshots and events go to FOLDER.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from plannerd_client import (
    AgentContext,
    AsyncClient,
    Client,
    GaveUp,
    PlannerdError,
    RetryPolicy,
    RunResult,
    RunStatus,
    Snapshot,
    Step,
)
from tests.faults.events import EventLog
from tests.faults.scenarios import Case, case_of

# It outlasts every fault of a storm; only a client that is stuck uses it up.
PATIENT = RetryPolicy(attempts=200, total=90.0, first=0.05, longest=0.5)
ATTEMPT_SECONDS = 3.0
RUN_SECONDS = 90.0

Job = dict[str, Any]


class Keeper:
    """What one process notes and saves of one job."""

    def __init__(self, log: EventLog, folder: Path, worker: str, job: Job) -> None:
        self.case = Case(job["number"])
        self._log = log
        self._worker = worker
        self._job = job
        self._file = folder / f"{job['invocation']}.snapshot"

    def note(self, kind: str, **facts: Any) -> None:
        """Write an event."""
        about = {"case": self.case.id, "invocation": self._job["invocation"], "worker": self._worker}
        self._log.write(kind, **about, **facts)

    def ran(self, context: AgentContext) -> None:
        """An agent runs."""
        self.note("ran", agent=context.agent, call=context.call_id, attempt=context.attempt)

    def step(self, step: Step) -> None:
        """A step was answered."""
        explanation, position = step.explanation, step.message.position
        self.note(
            "step",
            action=step.action,
            revision=position.revision,
            started=[agent for _, agent in step.started],
            asks=[decision.usage.input_tokens for decision in explanation.decisions],
            retries=step.retries,
            restores=step.restores,
        )

    def save(self, snapshot: Snapshot) -> None:
        """There is more to lose."""
        data = snapshot.dumps()
        self._file.with_suffix(".new").write_bytes(data)
        self._file.with_suffix(".new").replace(self._file)
        self.note("saved", finished=list(snapshot.outputs))

    def arguments(self) -> dict[str, Any]:
        """Of `run`."""
        options: dict[str, Any] = {
            "name": self.case.scenario.name,
            "output_key": self.case.scenario.result,
            "on_error": self.case.on_error,
            "on_step": self.step,
            "on_snapshot": self.save,
            "timeout": RUN_SECONDS,
        }
        if self.case.scenario.output_type is not None:
            options["output_type"] = self.case.scenario.output_type
        given: dict[str, Any] = {"planner": self.case.scenario.planner(), "agents": self.case.agents(self), **options}
        if not self._file.exists():
            return {
                **given,
                "arguments": self.case.arguments(self._job["invocation"]),
                "invocation_id": self._job["invocation"],
            }
        snapshot = Snapshot.loads(self._file.read_bytes())
        answers = {}
        if self._job["answer"]:
            answers = {one.response_id: self.case.answer(one.agent) for one in snapshot.suspensions}
        return {**given, "resume": snapshot, "answers": answers}

    def ended(self, result: RunResult) -> Job:
        """How it ended, for the standard output."""
        if result.status is RunStatus.SUSPENDED:
            return {**self._job, "outcome": "suspended"}
        return {**self._job, "outcome": "done", "result": result.result}

    def raised(self, error: Exception) -> Job:
        """The same, for a run that raised."""
        if isinstance(error, GaveUp):
            return {**self._job, "outcome": "done", "result": f"gave up: {error.reason}"}
        reason = f" ({error.reason})" if isinstance(error, PlannerdError) else ""
        return {**self._job, "outcome": "failed", "result": f"{type(error).__name__}{reason}: {error}"}


class RetriesToLog(logging.Handler):
    """What the client tells of its retries, as events."""

    def __init__(self, log: EventLog, worker: str) -> None:
        super().__init__()
        self._log = log
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if isinstance(record.args, tuple) and len(record.args) == 3:
            invocation, method, error = record.args
            reason = getattr(error, "reason", "") or str(getattr(error, "code", ""))
            self._log.write(
                "retry",
                case=case_of(str(invocation)),
                invocation=invocation,
                worker=self._worker,
                method=method,
                reason=reason,
            )


def answer(job: Job) -> None:
    """Tell how a job ended."""
    os.write(sys.stdout.fileno(), (json.dumps(job) + "\n").encode())


def threads(name: str, keeper: Callable[[Job], Keeper]) -> None:
    """Run jobs by `Client`, each in a thread."""

    def run(job: Job) -> None:
        kept = keeper(job)
        kept.note("begins", resumed=job["resume"])
        try:
            with Client(job["target"], **connection(name, job)) as client:
                ended = kept.ended(client.run(**kept.arguments()))
        except Exception as error:  # noqa: BLE001 -- it is told
            ended = kept.raised(error)
        kept.note("ends", outcome=ended["outcome"], result=ended.get("result"))
        answer(ended)

    with ThreadPoolExecutor(64) as pool:
        for line in sys.stdin:
            pool.submit(run, json.loads(line))


async def tasks(name: str, keeper: Callable[[Job], Keeper]) -> None:
    """Run jobs by `AsyncClient`, each in a task."""

    async def run(job: Job) -> None:
        kept = keeper(job)
        kept.note("begins", resumed=job["resume"])
        try:
            async with AsyncClient(job["target"], **connection(name, job)) as client:
                ended = kept.ended(await client.run(**kept.arguments()))
        except Exception as error:  # noqa: BLE001 -- it is told
            ended = kept.raised(error)
        kept.note("ends", outcome=ended["outcome"], result=ended.get("result"))
        answer(ended)

    running: set[Awaitable[None]] = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        running.add(asyncio.create_task(run(json.loads(line))))
    await asyncio.gather(*running)


def connection(name: str, job: Job) -> dict[str, Any]:
    """How a run connects: by a connection of its own, and says who it is. Three of four use a stream."""
    return {
        "retry": PATIENT,
        "timeout": ATTEMPT_SECONDS,
        "metadata": [("x-worker", name)],
        "options": [("grpc.use_local_subchannel_pool", 1)],
        "stream": job["number"] % 4 != 3,
    }


def main(name: str, place: str, kind: str) -> None:
    """Work."""
    folder = Path(place)
    log = EventLog(folder / f"worker-{name}.events")
    logger = logging.getLogger("plannerd_client")
    logger.setLevel(logging.INFO)
    logger.addHandler(RetriesToLog(log, name))
    logger.propagate = False

    def keeper(job: Job) -> Keeper:
        return Keeper(log, folder, name, job)

    if kind == "asyncio":
        asyncio.run(tasks(name, keeper))
    else:
        threads(name, keeper)


if __name__ == "__main__":
    main(*sys.argv[1:])
