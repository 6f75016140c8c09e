"""Rows 6, 6b, 6d: from a push to the process of the step it starts, against Buildbot told by a hook.

A job of vole always has its source checked out, so 6 and 6b compare that with a Buildbot build without any.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import targets
from tests.bench.bench import Bench
from tests.bench.buildbot import start_buildbot
from tests.bench.clients import Clone, git_env, ssh_words
from tests.bench.figures import Measured, Outcome, Sample
from tests.bench.machine import wait_until
from tests.bench.product import start_forge, start_runner

TARGETS = (targets.RETURN_TO_STEP, targets.START_TO_STEP, targets.START_TO_SOURCE)
ROUNDS = 15
WARM = 2
STEP_S = 30.0
REST_S = 1.0  # both sides idle before the next push: a finished build is still being written down

WORKFLOW = (
    "on: push\njobs:\n  stamp:\n    runs-on: [linux]\n    steps:\n      - shell: sh\n        run: date +%s%N >> {}\n"
)


@dataclass
class Side:
    """A clone to push from, and the file to which the step that follows appends its time."""

    clone: Clone
    stamps: Path
    after_return: list[float]
    after_start: list[float]

    def go(self) -> None:
        """One push, and the milliseconds until its step ran. The step may be there before the push returns."""
        self.clone.commit()
        self.stamps.write_bytes(b"")
        begin = time.time_ns()
        self.clone.git("push", "-q", "origin", "main")
        back = time.time_ns()
        wait_until(
            lambda: self.stamps.read_bytes().endswith(b"\n"), STEP_S, f"a step after a push of {self.clone.folder}"
        )
        step = int(self.stamps.read_bytes())
        self.after_return.append((step - back) / 1e6)
        self.after_start.append((step - begin) / 1e6)
        time.sleep(REST_S)

    def forget(self) -> None:
        self.after_return.clear()
        self.after_start.clear()


def measure(bench: Bench) -> Iterator[Outcome]:
    sides = {"vole": _vole(bench), **_buildbot(bench)}
    for number in range(bench.rounds(ROUNDS) + WARM):
        if number == WARM:
            for side in sides.values():
                side.forget()
        for side in sides.values():
            side.go()
    vole, plain, source = sides["vole"], sides["plain"], sides["source"]
    yield Measured(targets.RETURN_TO_STEP, Sample(tuple(vole.after_return)), Sample(tuple(plain.after_return)))
    yield Measured(targets.START_TO_STEP, Sample(tuple(vole.after_start)), Sample(tuple(plain.after_start)))
    yield Measured(targets.START_TO_SOURCE, Sample(tuple(vole.after_start)), Sample(tuple(source.after_start)))


def _vole(bench: Bench) -> Side:
    forge = start_forge(bench.work / "forge", bench.children)
    forge.create("app")
    start_runner(forge, bench.work / "runner", bench.children, "app")
    stamps = bench.work / "stamps"
    stamps.touch()
    env = git_env(bench.work, ssh_words(forge.address, forge.key))
    files = {".vole/workflows/ci.yml": WORKFLOW.format(stamps)}
    clone = Clone.create(bench.work / "vole-clone", env, files, forge.url("app"))
    wait_until(lambda: stamps.read_bytes().endswith(b"\n"), STEP_S, "the first step")
    return Side(clone, stamps, [], [])


def _buildbot(bench: Bench) -> dict[str, Side]:
    peer = start_buildbot(bench.work / "buildbot", bench.children, bench.cache)
    env = git_env(bench.work)
    sides = {}
    for repository in (peer.plain, peer.source):
        clone = Clone.create(bench.work / f"{repository.stem}-clone", env, {}, str(repository))
        wait_until(lambda: peer.stamps.exists() and peer.stamps.read_bytes().endswith(b"\n"), STEP_S, "the first build")
        peer.stamps.unlink()
        sides[repository.stem] = Side(clone, peer.stamps, [], [])
    return sides
