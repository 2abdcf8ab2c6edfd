"""How many requests to a model run, and what happens to those that are too many."""

from __future__ import annotations

import asyncio

import pytest

from plannerd.decisions.pacing import LONGEST_HINT, SHORTEST_HINT, Pacing
from plannerd.errors import PlannerdError, Reason


class Load:
    """Requests that each hold their turn until they are let go."""

    def __init__(self, pacing: Pacing) -> None:
        self.pacing = pacing
        self.order: list[int] = []
        self.most = 0
        self.release: dict[int, asyncio.Event] = {}

    async def request(self, number: int) -> None:
        self.release[number] = asyncio.Event()
        async with self.pacing.turn():
            self.order.append(number)
            self.most = max(self.most, self.pacing.running)
            await self.release[number].wait()

    async def start(self, number: int) -> asyncio.Task[None]:
        task = asyncio.create_task(self.request(number))
        await settle()
        return task


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_at_most_so_many_at_once_in_order_of_arrival() -> None:
    """No more than `concurrent` run at once, and whoever came first has the next turn."""

    async def scenario() -> None:
        load = Load(Pacing("m", concurrent=2, queue=10))
        tasks = [await load.start(number) for number in range(5)]
        assert (load.pacing.running, load.pacing.waiting) == (2, 3)
        for number in (1, 0, 2, 3, 4):
            load.release[number].set()
            await settle()
        await asyncio.gather(*tasks)
        assert load.order == [0, 1, 2, 3, 4]
        assert load.most == 2
        assert (load.pacing.running, load.pacing.waiting) == (0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("queue", [0, 1, 3])
def test_a_full_queue_sheds_load(queue: int) -> None:
    """One more than may wait is refused at once, with the numbers and a time to wait; the others are served."""

    async def scenario() -> None:
        load = Load(Pacing("m", concurrent=1, queue=queue))
        tasks = [await load.start(number) for number in range(1 + queue)]
        with pytest.raises(PlannerdError) as caught:
            await load.request(99)
        assert caught.value.reason is Reason.DECISION_QUEUE_FULL
        assert caught.value.metadata == {"model": "m", "concurrent": "1", "queue": str(queue)}
        assert caught.value.retry_after is not None
        for number in range(1 + queue):
            load.release[number].set()
            await settle()
        await asyncio.gather(*tasks)
        assert load.order == list(range(1 + queue))

    asyncio.run(scenario())


def test_who_is_cancelled_leaves_its_place() -> None:
    """A cancelled request takes nothing with it, whether it waits, runs, or was just given its turn."""

    async def scenario() -> None:
        load = Load(Pacing("m", concurrent=1, queue=2))
        running, waiting, last = [await load.start(number) for number in range(3)]
        waiting.cancel()
        await settle()
        assert (load.pacing.running, load.pacing.waiting) == (1, 1)
        load.release[0].set()
        running.cancel()
        last.cancel()  # in the same breath as its turn comes
        await asyncio.gather(running, waiting, last, return_exceptions=True)
        assert (load.pacing.running, load.pacing.waiting) == (0, 0)
        after = await load.start(7)
        assert load.pacing.running == 1
        load.release[7].set()
        await after

    asyncio.run(scenario())


def test_a_failure_gives_its_turn_on() -> None:
    """A request that fails frees its place."""

    async def scenario() -> None:
        pacing = Pacing("m", concurrent=1, queue=0)
        with pytest.raises(RuntimeError, match="own"):
            async with pacing.turn():
                raise RuntimeError("own")
        async with pacing.turn():
            assert pacing.running == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "low", "high"),
    [(0.0, SHORTEST_HINT, SHORTEST_HINT), (2.0, 2.0, 4.0), (900.0, LONGEST_HINT, LONGEST_HINT)],
)
def test_the_hint_follows_what_requests_took(seconds: float, low: float, high: float) -> None:
    """What a refused client is told to wait grows with what requests take, between its bounds."""
    now = 0.0

    async def scenario() -> float | None:
        nonlocal now
        load = Load(Pacing("m", concurrent=1, queue=1, clock=lambda: now))
        async with load.pacing.turn():
            now += seconds
        tasks = [await load.start(number) for number in range(2)]
        with pytest.raises(PlannerdError) as caught:
            await load.request(99)
        for number, task in enumerate(tasks):
            load.release[number].set()
            await task
        return caught.value.retry_after

    hint = asyncio.run(scenario())
    assert hint is not None
    assert low <= hint <= high


@pytest.mark.parametrize(("concurrent", "queue"), [(0, 1), (1, -1)])
def test_impossible_numbers(concurrent: int, queue: int) -> None:
    """Numbers that let nothing through are refused."""
    with pytest.raises(ValueError, match="at least"):
        Pacing("m", concurrent=concurrent, queue=queue)
