"""Several servers behind one port: a parent that starts a process for each, and keeps them running.

Each worker is a whole server, started as a program of its own: nothing is forked after gRPC has begun. The kernel
gives each connection to one of them (SO_REUSEPORT). The parent holds the port without listening on it, so that it
stays theirs while one is started again, and port 0 means the same free one to all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from plannerd.telemetry.logging import get_logger
from plannerd.transport.listening import Address, ListenError

FAILED: Final = 1

_ATTEMPTS: Final = 5
_STEADY_SECONDS: Final = 10.0
_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 10.0
_PORTS_TRIED: Final = 20


class Restarts:
    """When a worker that died is started again: later each time, and after some times in a row never."""

    def __init__(self) -> None:
        self._failures = 0

    def wait(self, served_seconds: float) -> float | None:
        """A worker died after it served for some seconds; how long to wait, None to give up."""
        self._failures = 1 if served_seconds >= _STEADY_SECONDS else self._failures + 1
        if self._failures > _ATTEMPTS:
            return None
        return min(_FIRST_WAIT * 2.0 ** (self._failures - 1), _LONGEST_WAIT)


class Workers:
    """Some workers, and the process that they are the children of.

    Args:
        command: starts a worker, together with the options `--port` and `--worker`.
        count: how many there are.
        port: the port that they share.
        patience: seconds after which a worker that was told to stop is killed.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        port: int,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._count = count
        self._port = port
        self._patience = patience
        self._clock = clock
        self._log = get_logger()
        self._running: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._gave_up = False

    async def run(self, announce: Callable[[tuple[str, ...]], None]) -> int:
        """Run them until a signal stops them, or they die faster than they can be started; the exit code.

        Args:
            announce: is told what they listen on, once all of them serve.
        """
        loop = asyncio.get_running_loop()
        for chosen in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(chosen, self._stop)
        # The first one alone: what is wrong with the settings is said once.
        targets = await self._start(1)
        if isinstance(targets, int):
            return 0 if self._stopping.is_set() else max(targets, FAILED)
        keeping = [asyncio.create_task(self._keep(1))]
        rest = range(2, self._count + 1)
        for number, started in zip(rest, await asyncio.gather(*map(self._start, rest)), strict=True):
            keeping.append(asyncio.create_task(self._keep(number, early=started if isinstance(started, int) else None)))
        if not self._stopping.is_set():
            self._log.info("workers_serving", targets=targets, workers=self._count)
            announce(targets)
        await self._stopping.wait()
        kept = asyncio.gather(*keeping)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(kept), self._patience)
        for number, process in self._running.items():
            self._log.error("worker_killed", worker=number, pid=process.pid)
            process.kill()
        await kept
        self._log.info("workers_stopped")
        return FAILED if self._gave_up else 0

    def _stop(self) -> None:
        """Pass a signal on. The second one makes workers quick, as it does with a server alone."""
        self._stopping.set()
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.terminate()

    async def _start(self, number: int) -> tuple[str, ...] | int:
        """Start a worker and wait until it serves; what it listens on, or its exit code if it ended before."""
        if self._stopping.is_set():
            return 0
        # Signals of the terminal are for the parent, which passes them on; the end of our side of its standard
        # input tells a worker that the parent is gone.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *("--port", str(self._port), "--worker", str(number)),
            stdin=PIPE,
            stdout=PIPE,
            process_group=0,
        )
        self._running[number] = process
        if self._stopping.is_set():
            process.terminate()
        if process.stdout is None:
            raise RuntimeError("no pipe")
        line = (await process.stdout.readline()).decode().split()
        if line:
            return tuple(line)
        return await self._ended(number)

    async def _ended(self, number: int) -> int:
        """Wait for the end of a worker; its exit code."""
        code = await self._running[number].wait()
        del self._running[number]
        return code

    async def _keep(self, number: int, early: int | None = None) -> None:
        """Start a worker again whenever it ends, until all are stopped; `early` is its exit code if it has already."""
        restarts = Restarts()
        while True:
            began = self._clock()
            code = await self._ended(number) if early is None else early
            if self._stopping.is_set():
                return
            wait = restarts.wait(self._clock() - began if early is None else 0.0)
            how = {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}
            self._log.error("worker_died", worker=number, **how, again_seconds=wait)
            if wait is None:
                self._gave_up = True
                self._log.error("workers_gave_up", worker=number)
                self._stop()
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait)
            started = await self._start(number)
            early = started if isinstance(started, int) else None
            if early is None:
                self._log.info("worker_back", worker=number)


def reserve(stack: ExitStack, addresses: Sequence[Address], port: int) -> int:
    """Hold a port on all `addresses` for processes that share it, without listening; the port.

    Args:
        stack: lets go of it.
        addresses: where.
        port: which; 0 is a free one.

    Raises:
        ListenError: it can't be had.
    """
    for attempt in range(_PORTS_TRIED if port == 0 else 1):
        with ExitStack() as held:
            chosen = port
            try:
                for address in addresses:
                    chosen = held.enter_context(address.hold(chosen)).getsockname()[1]
            except OSError as error:
                if port == 0 and attempt + 1 < _PORTS_TRIED:
                    continue  # what was free on one address was not on another
                raise ListenError(f"server.port: {addresses[0].with_port(chosen)}: {error.strerror}") from None
            stack.push(held.pop_all())
            return chosen
    raise ListenError("server.port: there is no free port on all of these addresses")


def cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def own_command(given: Sequence[str] | None) -> tuple[str, ...]:
    """What starts this program again with the same arguments; `given` in place of those of the process."""
    if given is not None:
        return (sys.executable, "-m", "plannerd", *given)
    return (sys.executable, *sys.orig_argv[1:])


def end_with_parent() -> None:
    """Stop this process, as a signal would, when the process that started it is gone. Runs in a thread."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
