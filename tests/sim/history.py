"""One history from its seed: so many steps of anything, a while of quiet, and what became of it."""

from __future__ import annotations

import gc
import hashlib
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.sim.actions import ACTIONS
from tests.sim.forge import Playing
from tests.sim.world import World

STEPS = 60
LONG, LONGEST = 200, 1_000  # steps of every eighth, and of every 128th
ACTING = 0.3  # of the steps are something that somebody does; in the others, what is due happens
QUIET_S = 5.5  # in which every push that was cut short is settled
FINISH_S = 400.0  # in which a forge that is left in peace ends every job
_SHM = Path("/dev/shm")


@dataclass
class Outcome:
    """What one history came to."""

    seed: int
    broken: list[str]
    actions: list[str]  # the last of them
    digest: str  # of the event log
    events: int
    moves: Counter[Any] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    whys: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """For people: the seed, what broke, and what led there."""
        lines = [f"SEED={self.seed} broke:", *(f"  {line}" for line in self.broken[:5])]
        return "\n".join([*lines, f"the last {len(self.actions)} actions:", *(f"  {line}" for line in self.actions)])


def steps_of(seed: int) -> int:
    """How long the history of `seed` is."""
    return LONGEST if seed % 128 == 0 else LONG if seed % 8 == 0 else STEPS


def play(seed: int) -> Outcome:
    """The history of `seed`: the same each time, in any process."""
    _leave_alone()
    gc.disable()  # a history is short, and its rubbish goes in one piece
    try:
        with warnings.catch_warnings():
            # A server that dies leaves coroutines behind that it had only just made.
            warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
            outcome = _played(seed)
            gc.collect()
        return outcome
    finally:
        gc.enable()


@cache
def _leave_alone() -> None:
    """What is there before the first history is no rubbish of any: the collector need not look at it."""
    gc.collect()
    gc.freeze()


def _played(seed: int) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="vole-sim-", dir=_SHM if _SHM.is_dir() else None))
    logger = logging.getLogger("vole")
    world = World.__new__(World)
    try:
        world.__init__(seed, folder)  # type: ignore[misc]
        logger.addHandler(world.faults)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        with Playing(world.git):
            _steps(world)
            _quiet(world)
        return _outcome(world)
    finally:
        logger.removeHandler(world.faults)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
        world.end()
        shutil.rmtree(folder, ignore_errors=True)


def _steps(world: World) -> None:
    rng, names = world.rng, list(ACTIONS)
    weights = [ACTIONS[name].weight for name in names]
    for step in range(steps_of(world.seed)):
        if rng.random() < ACTING:
            (name,) = rng.choices(names, weights)
            said = ACTIONS[name].deed(world, rng)
            if said:
                world.done.append(f"{step:3} {world.time.now_us / 1e6:9.3f} {said}")
            world.settle()
        else:
            world.moments(rng.choice((1, 1, 1, 2, 4)))
        if world.checker.broken:
            return


def _quiet(world: World) -> None:
    """No more is done to it. In a part of the histories runners for everything come, and every job ends."""
    if world.checker.broken:
        return
    world.done.append(f"    {world.time.now_us / 1e6:9.3f} quiet")
    world.life.loop.fuse = None
    world.life.store.slow_s = 0.0
    world.restart()
    world.advance(max(0, world.frozen_until - world.time.now_us) + round(QUIET_S * 1e6))
    if world.seed % 16 == 1:
        _finishing(world)
    if not world.checker.broken:
        world.checker.everything()


def _finishing(world: World) -> None:
    """I-12, and that no job is lost: left in peace, with runners for all labels, everything comes to an end."""
    world.heal()
    for _ in range(40):
        if world.checker.broken or not world.unfinished():
            return
        world.advance(round(FINISH_S / 40 * 1e6))
    if left := world.unfinished():
        world.checker.breaks("I-12", f"{len(left)} jobs never ended, the first is {left[0]}")


def _outcome(world: World) -> Outcome:
    rows = world.connection.execute("SELECT * FROM events ORDER BY id").fetchall()
    text = "\n".join(repr(tuple(row)) for row in rows)
    checker = world.checker
    return Outcome(
        world.seed,
        checker.broken,
        list(world.done),
        hashlib.sha256(text.encode()).hexdigest(),
        len(rows),
        checker.moves,
        checker.causes,
        checker.whys,
    )
