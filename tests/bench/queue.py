"""Rows 4, 4b, 4c: how many jobs a second are leased and finished, against raw commits and other queues.

A cycle of vole is what a runner link asks of the queue: a want, and a result that is durable, with its event log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.figures import Measured, Outcome, Sample, interleave
from tests.bench.leasing import a_place
from tests.bench.queuepeers import a_postgres, huey_per_s, python_of_peers, raw_commits_per_s

TARGETS = (
    targets.CYCLE,
    targets.CYCLE_HUEY,
    targets.CYCLES,
    targets.CYCLES_POSTGRES,
    targets.CYCLES_PROCRASTINATE,
)
ROUNDS = 5
ONE = 300  # cycles of one runner in a round
MANY = 2_000  # of 64 runners
RUNNERS = 64
RAW = 2_000
PEER = 1_600


def measure(bench: Bench) -> Iterator[Outcome]:
    python = python_of_peers(bench.cache)
    with a_postgres(bench.children) as postgres:
        sides: dict[str, Callable[[], float]] = {
            "one": lambda: _cycles(bench.work / "one", 1, ONE, ahead=False),
            "raw": lambda: raw_commits_per_s(bench.work / "raw", RAW),
            "many": lambda: _cycles(bench.work / "many", RUNNERS, MANY, ahead=True),
            "huey": lambda: huey_per_s(python, bench.work / "huey", PEER),
            "skip locked": lambda: postgres.skip_locked_per_s(PEER),
            "procrastinate": lambda: postgres.procrastinate_per_s(python, PEER),
        }
        found = interleave(sides, bench.rounds(ROUNDS))
    halved = Sample(tuple(value / 2 for value in found["raw"].values))
    yield Measured(targets.CYCLE, found["one"], halved)
    yield Measured(targets.CYCLE_HUEY, found["one"], found["huey"])
    yield Measured(targets.CYCLES, found["many"], found["raw"])
    yield Measured(targets.CYCLES_POSTGRES, found["many"], found["skip locked"])
    yield Measured(targets.CYCLES_PROCRASTINATE, found["many"], found["procrastinate"])


def _cycles(folder: Path, runners: int, count: int, *, ahead: bool) -> float:
    async def story() -> float:
        async with a_place(folder) as place:
            return await place.cycles_per_s(runners, count, ahead=ahead)

    return asyncio.run(story())
