"""Row 6c: trivial builds a second on one runner with eight slots, against Buildbot's worker with as many.

A build of vole is a job of a push: leased, its source checked out, one step run, its log stored, its result durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.buildbot import start_buildbot
from tests.bench.clients import Clone, git_env, run, ssh_words
from tests.bench.figures import Measured, Outcome, interleave
from tests.bench.machine import wait_until
from tests.bench.product import start_forge, start_runner

TARGETS = (targets.BUILDS,)
ROUNDS = 3
SLOTS = 8
BUILDS = 32
ROUND_S = 180.0

WORKFLOW = """\
on: push
jobs:
  stamp:
    runs-on: [linux]
    strategy:
      matrix:
        n: [{numbers}]
    steps:
      - shell: sh
        run: date +%s%N >> {stamps}
"""


@dataclass(frozen=True)
class Side:
    """What starts BUILDS builds at once, and the file to which each appends a line."""

    start: Callable[[], object]
    stamps: Path

    def per_second(self) -> float:
        """From the deed that starts them to the last one's step."""
        self.stamps.write_bytes(b"")
        begin = time.perf_counter()
        self.start()
        wait_until(lambda: self.stamps.read_bytes().count(b"\n") >= BUILDS, ROUND_S, f"{BUILDS} builds")
        return BUILDS / (time.perf_counter() - begin)


def measure(bench: Bench) -> Iterator[Outcome]:
    vole, buildbot = _vole(bench), _buildbot(bench)
    found = interleave({"vole": vole.per_second, "buildbot": buildbot.per_second}, bench.rounds(ROUNDS))
    yield Measured(targets.BUILDS, found["vole"], found["buildbot"])


def _vole(bench: Bench) -> Side:
    forge = start_forge(bench.work / "forge", bench.children)
    forge.create("app")
    start_runner(forge, bench.work / "runner", bench.children, "app", slots=SLOTS)
    stamps = bench.work / "stamps"
    stamps.touch()
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    text = WORKFLOW.format(numbers=", ".join(str(number) for number in range(BUILDS)), stamps=stamps)
    clone = Clone.create(bench.work / "vole-clone", env, {".vole/workflows/ci.yml": text}, forge.url("app"))
    wait_until(lambda: stamps.read_bytes().count(b"\n") >= BUILDS, ROUND_S, "the first builds")
    return Side(clone.push_ms, stamps)


def _buildbot(bench: Bench) -> Side:
    peer = start_buildbot(bench.work / "buildbot", bench.children, bench.cache)

    def start() -> None:
        """One request for all: curl keeps its connection, as the master's own schedulers would."""
        words: list[object] = ["curl", "-s"]
        for number in range(BUILDS):
            words += ["--next", "-s", "-o", "/dev/null"] if number else ["-o", "/dev/null"]
            words += [peer.hook, "-d", "project=plain", "-d", "branch=main", "-d", f"revision={number}"]
            words += ["-d", "author=ada", "-d", "comments=push", "-d", f"repository={peer.plain}"]
        run(words)

    return Side(start, peer.stamps)
