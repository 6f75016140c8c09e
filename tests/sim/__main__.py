"""Many histories on every core: python -m tests.sim [-n COUNT] [--from SEED] [--seconds S] [--seed SEED]

Prints each failure with its seed and its last actions, then what was covered. SEED alone plays that one history again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.sim.history import Outcome, play
from vole.jobs.model import MOVES, EndCause, Happening

BATCH = 10  # histories a process plays before it reports
SHOWN = 3  # failures told whole
# All but the end that a restore gives: it changes a store that nobody serves.
EVERY_MOVE = frozenset(
    (was, what, to) for (was, what), goals in MOVES.items() for to in goals if what is not Happening.RESTORED
)
EVERY_CAUSE = frozenset(EndCause) - {EndCause.OPERATOR}  # nothing gives an operator that power yet


@dataclass
class Corpus:
    """What a number of histories came to."""

    count: int = 0
    events: int = 0
    failures: list[Outcome] = field(default_factory=list)
    moves: Counter[Any] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    whys: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.count += 1
        self.events += outcome.events
        self.moves += outcome.moves
        self.causes += outcome.causes
        self.whys += outcome.whys
        if outcome.broken:
            self.failures.append(outcome)

    def unreached(self) -> list[str]:
        """Transitions of the state table, and ends of a lease, that no history took."""
        rows = [f"{was} -{what}-> {to}" for was, what, to in EVERY_MOVE - self.moves.keys()]
        return sorted(rows + [f"a lease ended by {cause}" for cause in EVERY_CAUSE - self.causes.keys()])

    def lines(self, took_s: float) -> Iterator[str]:
        for failure in self.failures[:SHOWN]:
            yield failure.told()
        if len(self.failures) > SHOWN:
            yield f"and seeds {' '.join(str(failure.seed) for failure in self.failures[SHOWN:])}"
        reached = len(EVERY_MOVE & self.moves.keys())
        yield (
            f"{self.count} histories, {self.events} events, {len(self.failures)} failures in {took_s:.0f} s "
            f"({self.count / took_s:.1f} a second); {reached} of {len(EVERY_MOVE)} transitions, "
            f"{len(EVERY_CAUSE & self.causes.keys())} of {len(EVERY_CAUSE)} ends of a lease, "
            f"{len(self.whys)} reasons shown"
        )
        for row in self.unreached():
            yield f"never reached: {row}"


def _batch(seeds: range) -> list[Outcome]:
    return [play(seed) for seed in seeds]


def corpus(count: int, first: int = 0, *, seconds_max: float = float("inf"), least: int = 0) -> Corpus:
    """`count` histories from seed `first` on, or as many as fit `seconds_max`, but at least `least`."""
    found, began = Corpus(), time.monotonic()
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        at, running = first, []
        while True:
            late = time.monotonic() - began > seconds_max and at - first >= least
            while at < first + count and len(running) < 2 * workers and not late:
                upto = min(at + BATCH, first + count)
                running.append(pool.submit(_batch, range(at, upto)))
                at = upto
            if not running:
                return found
            for outcome in running.pop(0).result():
                found.add(outcome)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("-n", type=int, default=1_000_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--least", type=int, default=0, help="histories, even when they take longer")
    parser.add_argument("--seed", type=int, help="play this one history")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        outcome = play(given.seed)
        print(outcome.told() if outcome.broken else "\n".join(outcome.actions))
        print(f"SEED={given.seed} {'failed' if outcome.broken else 'holds'}: {outcome.events} events {outcome.digest}")
        return 1 if outcome.broken else 0
    last = "" if given.n >= 1_000_000 else f" to {given.first + given.n - 1}"
    print(f"seeds from {given.first}{last}; play one again: make sim SEED=…", flush=True)
    began = time.monotonic()
    found = corpus(given.n, given.first, seconds_max=given.seconds, least=given.least)
    for line in found.lines(time.monotonic() - began):
        print(line)
    return 1 if found.failures or found.unreached() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
