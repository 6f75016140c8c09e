"""Rows 2, 2b, 2c, 3: 300 MB and 50,000 objects, cloned, also twice at once, and pushed, against OpenSSH's defaults."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bench import repositories, targets
from tests.bench.bench import Bench
from tests.bench.clients import git_env, run, ssh_words, timed
from tests.bench.figures import Measured, Outcome, Sample, Target, interleave
from tests.bench.machine import cpu_s
from tests.bench.openssh import Sshd, start_sshd
from tests.bench.product import Forge, start_forge

TARGETS = (targets.CLONE_BULK, targets.CLONE_BULK_CPU, targets.CLONE_TWO, targets.PUSH_BULK, targets.CLONE_MANY,
           targets.PUSH_MANY)  # fmt: skip
ROUNDS = 5
SETTLE_S = 0.3  # until a server has waited for its children, whose CPU is counted then


@dataclass(frozen=True)
class Side:
    """One server and its client: where a repository is, how a fresh one comes about and goes."""

    name: str
    pid: int
    env: dict[str, str]
    url: Callable[[str], str]
    create: Callable[[str], None]
    remove: Callable[[str], None]


def measure(bench: Bench) -> Iterator[Outcome]:
    sides = (_vole(bench), _openssh(bench))
    kinds = (
        ("bulk", repositories.bulk, (targets.CLONE_BULK, targets.PUSH_BULK)),
        ("many", repositories.many, (targets.CLONE_MANY, targets.PUSH_MANY)),
    )
    for name, make, (clone, push) in kinds:
        source = make(bench.cache)
        for side in sides:
            side.create(name)
            run(["git", "push", "-q", side.url(name), "main"], side.env, source)
        costs: dict[str, list[float]] = {side.name: [] for side in sides}
        clones = {side.name: _cloning(bench, side, name, costs[side.name]) for side in sides}
        yield _compare(clone, interleave(clones, bench.rounds(ROUNDS)))
        if clone is targets.CLONE_BULK:
            yield _compare(targets.CLONE_BULK_CPU, {side: Sample(tuple(cost[1:])) for side, cost in costs.items()})
            pairs = {side.name: _cloning_twice(bench, side, name) for side in sides}
            yield _compare(targets.CLONE_TWO, interleave(pairs, bench.rounds(ROUNDS)))
        yield _compare(push, interleave({side.name: _pushing(side, source) for side in sides}, bench.rounds(ROUNDS)))


def _compare(target: Target, found: dict[str, Sample]) -> Outcome:
    return Measured(target, found["vole"], found["openssh"])


def _cloning(bench: Bench, side: Side, name: str, costs: list[float]) -> Callable[[], float]:
    """Seconds of a bare clone; the server's CPU seconds of it are appended to `costs`."""
    folder = bench.work / f"clone-{side.name}"

    def clone() -> float:
        before = cpu_s(side.pid)
        seconds = timed(["git", "clone", "-q", "--bare", side.url(name), folder], side.env)
        time.sleep(SETTLE_S)
        costs.append(cpu_s(side.pid) - before)
        shutil.rmtree(folder)
        return seconds

    return clone


def _cloning_twice(bench: Bench, side: Side, name: str) -> Callable[[], float]:
    """Seconds until both of two bare clones that began together are there."""
    folders = [bench.work / f"clone-{side.name}-{number}" for number in range(2)]

    def clone(folder: Path) -> None:
        run(["git", "clone", "-q", "--bare", side.url(name), folder], side.env)

    def both() -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(len(folders)) as threads:
            list(threads.map(clone, folders))
        seconds = time.perf_counter() - begin
        for folder in folders:
            shutil.rmtree(folder)
        return seconds

    return both


def _pushing(side: Side, source: Path) -> Callable[[], float]:
    """Seconds of a push of everything into a repository that was empty."""

    def push() -> float:
        side.create("fresh")
        seconds = timed(["git", "push", "-q", side.url("fresh"), "main"], side.env, source)
        side.remove("fresh")
        return seconds

    return push


def _vole(bench: Bench) -> Side:
    forge: Forge = start_forge(bench.work / "forge", bench.children)
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    return Side("vole", forge.pid, env, forge.url, forge.create, forge.remove)


def _openssh(bench: Bench) -> Side:
    sshd: Sshd = start_sshd(bench.work / "sshd", bench.children, tuned=False)
    env = git_env(bench.work, ssh_words(sshd.address, sshd.key))

    def path(name: str) -> Path:
        return bench.work / f"{name}.git"

    def create(name: str) -> None:
        run(["git", "init", "-q", "--bare", "-b", "main", path(name)], env)

    return Side(
        "openssh", sshd.pid, env, lambda name: sshd.url(path(name)), create, lambda name: shutil.rmtree(path(name))
    )
