"""The server's disk is full, or fails at fsync: people are told, nothing counts that is not there, and it goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.endtoend.actors import BOUND_S, Forge, Person, Running, prepared
from tests.fault.books import Books

pytestmark = [pytest.mark.needs("git", "ssh"), pytest.mark.timeout(120)]

DISK = "24m"
# Waits until it may go on; then a log, and the word that it is made.
JOB = """\
on: push
jobs:
  talks:
%(keeps)s    steps:
      - run: |
          echo this is $VOLE_REF_NAME
          while [ ! -e %(gate)s ]; do sleep 0.05; done
          for i in $(seq 0 59999); do echo line $i; done
          seq 200000 >out
          touch %(made)s
"""
KEEPS = "    artifacts: [{name: out, paths: [out]}]\n"
QUICK = "on: push\njobs:\n  quick:\n    steps:\n      - run: echo this is $VOLE_REF_NAME\n"


class Story:
    """A forge with one job that waits at its gate; the lease is long, so that trouble costs no attempt."""

    def __init__(self, forge: Forge, ada: Person, rui: Person) -> None:
        self.forge, self.ada, self.rui = forge, ada, rui
        self.books = Books(forge)
        self.gate, self.made = forge.folder / "gate", forge.folder / "made"

    def begins(self, keeps: str = "") -> None:
        self.forge.setting("lease_ttl", "60s")
        self.forge.starts()
        runner = self.forge.runner(self.rui, flags=("--min-free", "1MiB"))
        self.books.runners.append(runner.lines)
        self.pushes("main", JOB % {"gate": self.gate, "made": self.made, "keeps": keeps})
        self.until(lambda: self.state("talks") == ("running", None))

    def pushes(self, branch: str, workflow: str) -> None:
        commit = self.ada.commits("app", {".vole/workflows/ci.yml": workflow})
        said = self.ada.pushes("app", to=branch)
        assert said.ok, said.err
        self.books.accepted["app", f"refs/heads/{branch}"] = commit

    def state(self, job: str) -> tuple[str, str | None] | None:
        connection = sqlite3.connect(f"file:{self.forge.dir / 'vole.db'}?mode=ro", uri=True, timeout=10)
        try:
            found: tuple[str, str | None] | None = connection.execute(
                "SELECT state, conclusion FROM jobs WHERE job = ?", (job,)
            ).fetchone()
            return found
        finally:
            connection.close()

    def until(self, true: Callable[[], object], within_s: float = BOUND_S) -> None:
        deadline, waiting = time.monotonic() + within_s, threading.Event()
        while not true():
            assert time.monotonic() < deadline, "".join(self.forge.server.lines[-20:])
            waiting.wait(0.05)

    def goes_on(self) -> Counter[str]:
        """The job ends green with all it said and left, and the next push is as any other."""
        self.until(lambda: self.state("talks") == ("finished", "success"))
        log = self.forge.log("app/1/talks")
        assert [line for line in log.splitlines() if line.startswith("line")] == [f"line {at}" for at in range(60_000)]
        self.pushes("next", QUICK)
        self.until(lambda: self.state("quick") == ("finished", "success"))
        counts = self.books.compare()
        assert (counts["attempts"], counts["marked logs"]) == (2, 0)
        return counts


@contextlib.contextmanager
def a_story(folder: Path) -> Iterator[Story]:
    forge, ada, rui = prepared(folder)
    try:
        yield Story(forge, ada, rui)
    finally:
        forge.ends()


@contextlib.contextmanager
def a_small_disk(at: Path) -> Iterator[None]:
    at.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "vole-small-disk", at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def filled(disk: Path) -> Path:
    """The file that takes all the room there is."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return filler


@pytest.mark.needs("tmpfs")
@pytest.mark.proves("I-29", "I-34")
def test_on_a_full_disk_people_are_told_nothing_is_lost_and_it_goes_on_when_there_is_room(tmp_path):
    with a_small_disk(tmp_path / "forge"), a_story(tmp_path) as story:
        story.begins(KEEPS)
        filler = filled(story.forge.dir)

        pushed = story.ada.pushes("app", {"large": os.urandom(200_000).hex(), ".vole/workflows/ci.yml": QUICK})
        labels = [f"label-{number:03}" for number in range(300)]
        declared = [story.ada.says("label", "declare", *(f"{each}-{n}" for each in labels)) for n in range(4)]
        story.gate.touch()
        story.until(story.made.exists)

        assert not pushed.ok
        assert "No space left on device" in pushed.err or "free space" in pushed.err
        refused = [said for said in declared if not said.ok]
        assert refused
        for said in refused:
            assert said.status == 75
            assert "the store cannot write just now: database or disk is full" in said.err
            assert "free space on the disk of the server's folder, then try again" in said.err
        assert story.state("talks") == ("running", None)

        filler.unlink()
        assert story.goes_on()["artifacts"] == 1


@contextlib.contextmanager
def failing_fsync(server: Running) -> Iterator[None]:
    """No fsync of the server, its threads and its children succeeds inside the block."""
    calls = "fsync,fdatasync"
    words = ["strace", "-f", "-p", str(server.process.pid), "-e", f"trace={calls}", "-o", "/dev/null"]
    tracer = subprocess.Popen(
        [*words, "-e", f"inject={calls}:error=EIO"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert tracer.stderr is not None
    try:
        assert "attached" in tracer.stderr.readline()
        yield
    finally:
        tracer.send_signal(signal.SIGINT)  # it lets go of the server
        tracer.communicate(timeout=BOUND_S)


@pytest.mark.needs("strace")
@pytest.mark.proves("I-29", "I-34")
def test_what_fsync_refuses_is_acknowledged_to_nobody_and_said(tmp_path):
    with a_story(tmp_path) as story:
        story.begins()
        with failing_fsync(story.forge.server):
            declared = story.ada.says("label", "declare", "arm64")
            story.forge.server.says("the store cannot write")
            pushed = story.ada.pushes("app", {".vole/workflows/ci.yml": QUICK})
            story.gate.touch()
            story.forge.server.says("a log could not be made durable")
            meanwhile = story.state("talks")

        assert declared.status == 75
        assert "the store cannot write just now: disk I/O error" in declared.err
        assert not pushed.ok
        assert meanwhile == ("running", None)
        assert "arm64" not in story.ada.says("label", "list").out
        story.goes_on()
