"""The embedded model next to the library that it comes from, its worst inputs, and its memory.

    python -m benchmarks.sparrow [--rounds 7]

Both answer the same questions about the same text. Rounds are interleaved, so that a machine that slows down
slows both; what counts are the ratios of medians. "Fresh" is a text that was never seen before, "repeated" one that
comes again and again; the questions are the same each time, as those of a planner are.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparrow_decider import Decider  # type: ignore[import-untyped]

from plannerd.decisions.models import DecisionModels
from plannerd.decisions.questions import Choice, DecisionRequest, Field, Option, Scale, YesNo
from plannerd.decisions.sparrow import SparrowModel
from plannerd.planners.scheduler.options import DEFAULT_USEFULNESS_LEVELS

SIZES = (200, 10_000)
CANDIDATES = (1, 5, 20)
WORDS = tuple(Path(__file__).with_name("quality").joinpath("examples", "bank.yaml").read_text("utf-8").split())
RANDOM = random.Random(1)  # the same texts each time
MIB = 1024 * 1024


def text_of(size: int) -> str:
    """A text of so many characters that was never seen before."""
    return " ".join(RANDOM.choices(WORDS, k=size // 4 + 1))[:size]


def scales(candidates: int) -> tuple[Scale, ...]:
    """What a scheduler asks about so many candidates."""
    return tuple(
        Scale(
            f"agent{i}",
            f"How useful would it be to run the agent 'agent{i}' (Looks up {WORDS[i]} and {WORDS[-i]}) now, to reach "
            "this goal: the customer's request is settled?",
            DEFAULT_USEFULNESS_LEVELS,
        )
        for i in range(candidates)
    )


def seconds(call: Callable[[str], object], text: str) -> float:
    """The CPU time of a call, which does not count what other processes take away."""
    started = time.process_time()
    call(text)
    return time.process_time() - started


def speed(rounds: int) -> None:
    """Print a table: ours, the library's, and their ratio."""
    model, library = SparrowModel(), Decider.load()
    print(f"One decision, ms of CPU time; medians of {3 * rounds} interleaved rounds\n")
    print("candidates   bytes   text          plannerd    library    library / plannerd")
    for size in SIZES:
        for candidates in CANDIDATES:
            questions = scales(candidates)
            asked: dict[str, Any] = {
                question.name: {
                    "type": "score",
                    "instructions": question.text,
                    "criteria": list(question.levels),
                }
                for question in questions
            }

            def ours(text: str, questions: tuple[Scale, ...] = questions) -> None:
                model.answer(DecisionRequest((Field("request", text),), questions))

            def theirs(text: str, asked: dict[str, Any] = asked) -> None:
                library.ask(f"request: {text}", asked)

            same = text_of(size)
            for name in ("fresh", "repeated"):
                times: tuple[list[float], list[float]] = ([], [])
                for call in range(3 * rounds + 1):
                    text = text_of(size) if name == "fresh" else same
                    own = [seconds(ours, text_of(size) if name == "fresh" else same) for _ in range(5)]
                    other = seconds(theirs, text)
                    if call:  # the first one warms up
                        times[0].append(statistics.median(own))
                        times[1].append(other)
                a, b = (statistics.median(found) * 1000 for found in times)
                print(f"{candidates:>10} {size:>7,}   {name:<10} {a:>10.2f} {b:>10.1f}   {b / a:>6.0f} x", flush=True)
    asyncio.run(model.close())


# --- worst inputs


def _letters(count: int) -> str:
    """Text in several scripts without any space."""
    return "".join(chr(RANDOM.choice((0x4E00, 0x0430, 0xAC00)) + RANDOM.randrange(2000)) for _ in range(count))


def worst() -> Mapping[str, DecisionRequest]:
    """Requests that are as costly as the server's limits allow."""
    prose = text_of(8_000_000)
    words = text_of(2_000)
    one = (YesNo("urgent", "Is it urgent?"),)
    many = tuple(Scale(f"a{i}", f"How useful is agent {i}?", DEFAULT_USEFULNESS_LEVELS) for i in range(200))
    described = tuple(YesNo(f"a{i}", prose[i * 20_000 : (i + 1) * 20_000]) for i in range(200))
    options = Choice("which", "Which?", tuple(Option(f"o{i}", prose[i * 50 : i * 50 + 50]) for i in range(1000)))
    numbers: list[Any] = list(range(1_000_000))

    def asked(questions: tuple[Any, ...], *fields: Field) -> DecisionRequest:
        return DecisionRequest(fields or (Field("request", words),), questions)

    return {
        "an ordinary one: 5 candidates, 2 KB": asked(scales(5)),
        "200 candidates, 10 KB": asked(many, Field("request", prose[:10_000])),
        "200 candidates, a text of 8 MB": asked(many, Field("request", prose)),
        "one word of 1 MB": asked(one, Field("request", "x" * MIB)),
        "1 MB in many scripts, no space": asked(one, Field("request", _letters(MIB // 3))),
        "1,000 keys of 8 KB": asked(one, *(Field(f"k{i}", prose[i * 8000 : (i + 1) * 8000]) for i in range(1000))),
        "a question of 4 MB": asked((YesNo("long", prose[:4_000_000]),)),
        "200 questions of 20 KB": asked(described),
        "a choice of 1,000 options": asked((options,)),
        "a list of 1,000,000 numbers": asked(one, Field("numbers", numbers)),
    }


async def held(models: DecisionModels, request: DecisionRequest) -> tuple[float, float]:
    """How long a request takes, and the longest time that other things on the event loop had to wait meanwhile."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.0005)
            longest = max(longest, time.perf_counter() - started - 0.0005)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.02)
    longest = 0.0
    started = time.perf_counter()
    await models.ask(models.get(), request)
    took = time.perf_counter() - started
    await asyncio.sleep(0.002)
    ticking.cancel()
    return took, longest


async def worst_inputs(rounds: int) -> None:
    """Print how long the most expensive requests take, and how long they hold up the event loop."""
    models = DecisionModels({"sparrow": SparrowModel()})
    print(f"\nWorst inputs, ms; medians of {rounds} rounds\n")
    print(f"{'':<38} {'takes':>9} {'holds up the loop':>20}")
    for name, request in worst().items():
        found = [await held(models, request) for _ in range(rounds)]
        took, longest = (statistics.median(one[i] for one in found) * 1000 for i in (0, 1))
        print(f"{name:<38} {took:>9.1f} {longest:>20.1f}", flush=True)
    await models.close()


# --- memory

_MEMORY = """
import os, random, sys
from pathlib import Path
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
import numpy
import plannerd.decisions.sparrow
from benchmarks.sparrow import SparrowModel, scales, text_of, DecisionRequest, Field
before = resident()
model = SparrowModel(sys.argv[1] if len(sys.argv) > 1 else None)
loaded = resident()
for i in range(5000):
    text = " ".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=10)) + text_of(2000)
    model.answer(DecisionRequest((Field("request", text),), scales(1 + i % 20)))
print(loaded - before, resident() - before)
"""


def memory() -> None:
    """Print what a loaded model adds to a process that has everything else."""
    ended = subprocess.run([sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True)
    loaded, used = (int(part) / MIB for part in ended.stdout.split())
    print(f"\nMemory: {loaded:.0f} MiB once it is loaded, {used:.0f} MiB after 5,000 different inputs.")


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparrow", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    rounds = parser.parse_args().rounds
    speed(rounds)
    asyncio.run(worst_inputs(rounds))
    memory()


if __name__ == "__main__":
    main()
