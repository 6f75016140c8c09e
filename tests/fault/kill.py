"""kill -9 of server, runner or harness at random moments under load, over and over; then the books are compared.

python -m tests.fault.kill [--kills N] [--seed N]

Two people push to two repositories, two runners with two slots each take what they push. Whatever is killed begins
again at once. After each leg of kills all comes to rest and `books` compares what everybody was told with what is
there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.endtoend.actors import Person, Running, prepared
from tests.fault.books import Books

TTL_S = 6
LEG = 50  # kills between two comparisons
MOMENT_S = 1.2  # a kill comes at most this long after the last one's victim is back
REST_S = 90.0  # for the last run to end: three lost attempts of a TTL each, and the work
VICTIMS = ("server", "runner", "harness")

_HEAD = "on: push\njobs:\n"
_JOB = """\
  {id}:
{more}    steps:
      - run: echo this is $VOLE_REF_NAME
      - run: {run}
"""


def _job(ident: str, run: str = "sleep 0.3", *more: str) -> str:
    return _JOB.format(id=ident, run=run, more="".join(f"    {line}\n" for line in more))


_KEEPS = "artifacts: [{name: out, paths: [made]}]"
_LINES = "for i in $(seq 0 1499); do echo line $i; [ $((i % 500)) != 0 ] || sleep 0.2; done"
SHAPES = {
    "needs": _HEAD + _job("one") + _job("two", "sleep 0.1", "needs: one") + _job("three", "sleep 0.1", "needs: two"),
    "matrix": _HEAD
    + _job("cell", "sleep 0.2", "strategy: {matrix: {n: [1, 2, 3]}}")
    + _job("last", "true", "needs: cell"),
    "artifact": _HEAD
    + _job("makes", "sleep 0.1; seq 20000 >made", _KEEPS)
    + _job("takes", "tail -n 1 made", "needs: makes", "needs-artifacts: [out]"),
    "long": _HEAD + _job("talks", _LINES),
    "fails": _HEAD + _job("breaks", "sleep 0.1; exit 3") + _job("after", "true", "needs: breaks"),
}


class Pusher:
    """Someone who pushes one new branch after another, each until it is accepted, as people do."""

    def __init__(self, kills: Kills, number: int) -> None:
        self._kills, self._number = kills, number
        self._rng = random.Random(f"{kills.seed}/{number}")
        self._person = Person(kills.forge, f"pusher-{number}", kills.key)  # a working copy of one's own
        self.thread = threading.Thread(target=self._run, name=f"pusher {number}")

    def _run(self) -> None:
        try:
            count = 0
            while not self._kills.ending.is_set():
                if self._kills.unfinished() < self._kills.most:
                    self._push(f"b{self._number}-{self._kills.leg}-{count}")
                    count += 1
                else:
                    self._kills.ending.wait(0.2)
        except BaseException as error:
            self._kills.failed(error)

    def _push(self, branch: str) -> None:
        repo, shape = self._rng.choice(self._kills.repos), self._rng.choice(list(SHAPES))
        commit = self._person.commits(repo, {".vole/workflows/ci.yml": SHAPES[shape], "branch": branch})
        deadline = time.monotonic() + REST_S
        while not (said := self._person.pushes(repo, to=branch)).ok:
            assert time.monotonic() < deadline, f"{branch} is still not accepted: {said.err}"
            self._kills.up.wait(REST_S)
        self._kills.books.accepted[repo, f"refs/heads/{branch}"] = commit


class Keeper:
    """A runner that begins again in the same folder when it was killed."""

    def __init__(self, kills: Kills, name: str) -> None:
        self._kills, self._name = kills, name
        self.begins()

    def begins(self) -> None:
        forge = self._kills.forge
        words = [sys.executable, "-m", "vole_runner", "--server", f"ssh://git@127.0.0.1:{forge.ssh_port}"]
        words += ["--key", str(forge.folder / "keys" / "rui"), "--known-hosts", str(forge.folder / "known_hosts")]
        words += ["--work", str(forge.folder / "work" / self._name), "--name", self._name, "--slots", "2"]
        self.running = Running([*words, "--min-free", "1MiB"], forge.folder)
        self._kills.books.runners.append(self.running.lines)

    def harnesses(self) -> list[int]:
        """The harness processes it has just now."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                words = (stat.parent / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            if parent == self.running.process.pid and b"vole_runner.harness" in words:
                found.append(int(stat.parent.name))
        return sorted(found)


class Kills:
    """One forge that is killed at and goes on."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        say: Callable[[str], object] = print,
        repos: tuple[str, ...] = ("app", "lib"),
        most: int = 8,
    ) -> None:
        self.seed, self._say, self.repos = seed, say, repos
        self.most = most
        """Jobs that have not ended; at so many pushers wait, so that all comes to rest soon."""
        self._rng = random.Random(seed)
        self.forge, ada, _ = prepared(folder)
        self.key = ada.key
        for repo in repos[1:]:
            self.forge.creates(repo)
            self.forge.command("grant", "ada", repo, "write")
            self.forge.command("grant", "rui", repo, "run")
        self.books = Books(self.forge)
        self.up, self.ending = threading.Event(), threading.Event()
        self.leg, self.done = 0, Counter[str]()
        self._errors: list[BaseException] = []

    def run(self, kills: int, leg: int = LEG) -> Counter[str]:
        """Raises AssertionError at the first difference. How many there were of each thing."""
        self._say(f"{kills} kills, seed {self.seed}")
        counts: Counter[str] = Counter()
        try:
            self._server_begins()
            self._keepers = [Keeper(self, name) for name in ("first", "second")]
            while (left := kills - self.done.total()) > 0:
                counts = self._leg(min(leg, left))
                self._say(f"after {self.done.total()} kills: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        finally:
            self._end()
        return counts

    def unfinished(self) -> int:
        """Jobs that have not ended, as the database says."""
        (count,) = self._asks("SELECT COUNT(*) FROM jobs WHERE state <> 'finished'")
        return int(count)

    def failed(self, error: BaseException) -> None:
        """A pusher came to an end that it should not have."""
        self._errors.append(error)
        self.ending.set()

    def _leg(self, kills: int) -> Counter[str]:
        self.leg += 1
        self.ending.clear()
        pushers = [Pusher(self, number) for number in range(2)]
        for pusher in pushers:
            pusher.thread.start()
        try:
            victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
            self._rng.shuffle(victims)
            for victim in victims:
                after_s = self._rng.uniform(0, MOMENT_S)
                if self.ending.wait(after_s):
                    break
                self._kill(victim, after_s)
        finally:
            self.ending.set()
            for pusher in pushers:
                pusher.thread.join(2 * REST_S)
        if self._errors:
            raise self._errors[0]
        self._rest()
        return self.books.compare()

    def _kill(self, victim: str, after_s: float) -> None:
        self.done[victim] += 1
        self._say(f"kill {self.done.total()}: {victim} after {after_s:.3f} s")
        if victim == "server":
            self.up.clear()
            self.forge.kill()
            self._server_begins()
            return
        keeper = self._rng.choice(self._keepers)
        if victim == "harness" and (found := keeper.harnesses()):
            kill_9(self._rng.choice(found))
            return
        keeper.running.kill()
        keeper.running.stop()
        keeper.begins()

    def _server_begins(self) -> None:
        self.forge.starts()
        self.up.set()

    def _rest(self) -> None:
        deadline = time.monotonic() + REST_S
        waiting = threading.Event()
        while self.unfinished() or self._asks("SELECT COUNT(*) FROM pushes WHERE state = 'intended'")[0]:
            assert time.monotonic() < deadline, f"jobs that do not end:\n{self._unfinished_told()}"
            waiting.wait(0.1)

    def _unfinished_told(self) -> str:
        return self.forge.command("queue")

    def _asks(self, sql: str) -> tuple[object, ...]:
        connection = sqlite3.connect(f"file:{self.forge.dir / 'vole.db'}?mode=ro", uri=True, timeout=10)
        try:
            row: tuple[object, ...] = connection.execute(sql).fetchone()
            return row
        finally:
            connection.close()

    def _end(self) -> None:
        self.ending.set()
        for keeper in getattr(self, "_keepers", []):
            keeper.running.stop()
        self.forge.ends()


def kill_9(pid: int) -> None:
    """As a power cut would; one that has ended is as good."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vole-kill-"))
    kills = Kills(folder, secrets.randbelow(1 << 32) if given.seed is None else given.seed)
    counts = kills.run(given.kills)
    shutil.rmtree(folder, ignore_errors=True)  # left where it is when the books differ
    print(f"{kills.done.total()} kills {dict(kills.done)}; the books agree: {dict(counts)}")


if __name__ == "__main__":
    main()
