"""The stage of one history: time, a server, repositories, runner processes, and what each of them truly did."""

from __future__ import annotations

import heapq
import itertools
import logging
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.queueing import POLICY, a_key
from tests.sim.checker import Checker
from tests.sim.clocks import Time
from tests.sim.forge import Git, Life, Storage
from tests.sim.keeper import Keeper, Manner
from tests.sim.settings import Settings
from tests.sim.store import copied, given_back
from tests.sim.workload import Workload
from vole.base import limits
from vole.base.clock import seconds
from vole.base.errors import VoleError
from vole.base.ids import AccountName, JobId, RepoName
from vole.flows.push.planning import Planned
from vole.jobs.model import State
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.people.model import Person
from vole.repos import ledger as repos

REPOS = ("app", "lib", "web", "doc", "kit")
LABELS = ("linux", "macos", "arm64", "fast")
KEPT = 40  # actions that a failure prints


class Faults(logging.Handler):
    """What the server logs as an error is a fault of it; nothing here may break a server."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.seen.append(f"the server logged: {record.getMessage()}: {error!r}")


class World:
    """One history's state. Everything that is random comes from `rng`, in one order."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.rng = Random(seed)
        self.time = Time()
        self.git, self.plans = Git(), dict[str, Planned]()
        self.storage = Storage(self.git, self.plans)
        self.connection = copied()
        self.checker = Checker(self)
        self.faults = Faults()
        self.done: deque[str] = deque(maxlen=KEPT)
        self._outside: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.frozen_until = self.gone_until = 0
        self.stalled_s = 0.0  # in this life of the server, by stops that it notices
        self.stopped_us = 0  # by every stop, also those that it does not notice
        self.peace = False  # no runner dies or gives back any more
        self.ran_us = 0  # how long a server was up and not stalled
        self.workload = Workload(self.rng)
        self.children: list[Callable[[bool], None]] = []  # git programs on their way: told whether they move the refs
        self._set_out()

    def _set_out(self) -> None:
        rng = self.rng
        self.repos = list(REPOS[: rng.choice((1, 2, 2, 3, 5))])
        crowd = rng.choice((1, 2, 3, 3, 4, 5, 6)) if rng.random() < 0.97 else rng.randrange(10, 51)
        self.accounts = [f"r{number}" for number in range(min(crowd, 8))]
        self.policy = replace(
            POLICY,
            ttl_s=rng.choice((6.0, 6.0, 6.0, 9.0)),
            cap=rng.choice((None, None, 1, 2, 3)),
            queue_timeout_s=rng.choice((0.0, 15.0, 60.0)),
        )
        self.wild = rng.random() < 0.4  # links that lose, double and reorder frames
        self.caps: deque[tuple[float, int | None]] = deque([(0.0, self.policy.cap)], maxlen=8)
        self.life = Life(
            self.time, rng, self.connection, self.storage, self.folder, self.policy, self.checker.change_made
        )
        self.lives = [self.life]
        for name in self.repos:
            self.life.store.now(repos.create_repo, RepoName(name), public=False)
            self.git.refs[name] = {}
        self._people()
        self.keepers: list[Keeper] = []
        self.life.begin()
        self.settle()
        for number in range(crowd):
            self.starts_runner(self.accounts[number % len(self.accounts)])

    def _people(self) -> None:
        store, rng = self.life.store, self.rng
        ids = {name: store.glimpse(_repo, name) for name in self.repos}
        for name in ("ada", *self.accounts):
            account = store.now(people.add_account, AccountName(name), admin=False)
            store.now(people.add_key, account, a_key(name), "git" if name == "ada" else "runner")
            for ident in ids.values():
                if name == "ada":
                    store.now(people.grant, account, ident, "write")
                elif rng.random() < 0.75:
                    store.now(people.grant, account, ident, "run")

    # ---- time

    def at(self, when_us: int, deed: Callable[[], None]) -> None:
        """Something outside the server happens at that moment."""
        heapq.heappush(self._outside, (max(when_us, self.time.now_us), next(self._order), deed))

    def after(self, late_us: int, deed: Callable[[], None]) -> None:
        self.at(self.time.now_us + late_us, deed)

    def within(self, low_s: float, high_s: float) -> int:
        """A random span in microseconds."""
        return round(self.rng.uniform(low_s, high_s) * 1e6)

    @property
    def frozen(self) -> bool:
        return self.time.now_us < self.frozen_until

    def settle(self) -> None:
        """Let the server do all that it can do at this moment."""
        if self.frozen or self.life.store.dead:
            return
        self.life.loop.fire()
        if not self.life.loop.run_ready():
            self.crash()
        if self.life.loop.faults:
            self.checker.broken.append(f"the loop: {self.life.loop.faults.pop()}")

    def advance(self, span_us: int) -> None:
        """Time passes, and with it all that is due."""
        until = self.time.now_us + span_us
        while (when := self._next()) is not None and when <= until and not self.checker.broken:
            self._to(when)
            while self._outside and self._outside[0][0] <= when:
                heapq.heappop(self._outside)[2]()
            self.settle()
            self.checker.rest()
        if not self.checker.broken:
            self._to(until)

    def moments(self, count: int) -> None:
        """Go on to the next moment at which something is due, so many times."""
        for _ in range(count):
            when = self._next()
            self.advance(50_000 if when is None else max(0, when - self.time.now_us))

    def _next(self) -> int | None:
        inside = None
        if not self.life.store.dead:
            inside = self.time.now_us if self.life.loop.ready else self.life.loop.next_timer()
            if inside is not None:
                inside = max(inside, self.frozen_until)
        outside = self._outside[0][0] if self._outside else None
        return min((one for one in (inside, outside) if one is not None), default=None)

    def _to(self, when: int) -> None:
        if not self.life.store.dead:
            self.ran_us += max(0, when - max(self.time.now_us, self.gone_until))
        self.time.now_us = max(self.time.now_us, when)

    # ---- the server

    def do(self, story: Coroutine[Any, Any, Any]) -> None:
        """A story on the server; what it is refused for is no fault."""
        if self.life.store.dead or not self.life.up:
            story.close()
            return
        task = self.life.loop.create_task(self._done(story))
        task.add_done_callback(lambda _: story.close())  # a server that dies before it began never awaits it

    async def _done(self, story: Coroutine[Any, Any, Any]) -> None:
        try:
            await story
        except VoleError:
            pass
        except Exception as error:
            where = traceback.format_exception(error)[-2:]
            self.checker.broken.append(f"a story failed: {error!r} {''.join(where)}")

    def stall(self, span_us: int) -> None:
        """The server's process is stopped for a while; the world is not."""
        self.frozen_until = max(self.frozen_until, self.time.now_us) + span_us
        self.stopped_us += span_us
        if span_us > seconds(limits.LEASE_GAP_S):  # a shorter one cannot be told from a slow server
            self.gone_until = self.frozen_until
            self.stalled_s += span_us / 1e6

    def crash(self) -> None:
        """kill -9, now. Git children go on by themselves or die with it; a new server begins later."""
        if self.life.store.dead:
            return
        self.life.die()
        self.frozen_until = self.gone_until = 0
        for keeper in self.keepers:
            if keeper.link is not None and keeper.link.life is self.life:
                keeper.link.carries = False
                self.after(self.within(0, 2), lambda keeper=keeper, link=keeper.link: keeper.dropped(link))  # type: ignore[misc]
        self.after(self.within(0.05, 4), self.restart)

    def restart(self) -> None:
        if not self.life.store.dead:
            return
        for child in list(self.children):
            child(self.rng.random() < 0.6)
        self.checker.server_begins()
        self.stalled_s = 0.0
        self.life = Life(
            self.time, self.rng, self.connection, self.storage, self.folder, self.policy, self.checker.change_made
        )
        self.lives.append(self.life)
        self.life.begin()

    def person(self, name: str) -> Person | None:
        found: Person | None = self.life.store.glimpse(people_reads.person_of_key, f"SHA256:{name}")
        return found

    # ---- runners

    def starts_runner(self, account: str) -> Keeper:
        rng = self.rng
        labels = tuple(label for label in LABELS if rng.random() < 0.5)
        narrowed = tuple(repo for repo in self.repos if rng.random() < 0.6) if rng.random() < 0.2 else ()
        manner = Manner(
            account=account,
            labels=labels,
            slots=rng.choice((1, 1, 1, 2, 3)),
            repos=narrowed,
            only=rng.random() < 0.1,
            haste=rng.choice((0.3, 1.0, 1.0, 3.0)),
            deaf=rng.random() < 0.1,
            mode="once" if rng.random() < 0.05 else "daemon",
        )
        keeper = Keeper(self, manner, len(self.keepers))
        self.keepers.append(keeper)
        keeper.connect()
        return keeper

    def alive(self) -> list[Keeper]:
        return [keeper for keeper in self.keepers if keeper.alive]

    def jobs_offered(self) -> list[tuple[JobId, int]]:
        return list(self.checker.offers)

    def seconds_since(self, ran_us: int) -> float:
        return (self.ran_us - ran_us) / 1e6

    def awake_us(self) -> int:
        """Time in which this life of the server could do something. Only differences mean anything."""
        return self.time.now_us - self.stopped_us

    def heal(self) -> None:
        """Peace: nothing is slow or wrong any more, and there is a runner for every label of every repository."""
        self.peace = True
        self.life.store.slow_s = 0.0
        self.policy = replace(self.policy, cap=None, queue_timeout_s=60.0)
        self.caps.append((self.ran_us / 1e6, None))
        self.life.leasing.reconfigure(Settings(None, 60.0))
        self.life.upkeep.reconfigure(Settings(None, 60.0))
        for account in self.accounts:
            self.do(self.life.administration.add_key(AccountName(account), a_key(account), "runner"))
            for repo in self.repos:
                self.do(self.life.administration.grant(AccountName(account), RepoName(repo), "run"))
        self.settle()
        manner = Manner(self.accounts[0], (*LABELS, "gpu"), 3, (), only=False, haste=0.3, deaf=False, mode="daemon")
        for _ in range(2):
            self.keepers.append(Keeper(self, manner, len(self.keepers)))
            self.keepers[-1].connect()

    def unfinished(self) -> list[Any]:
        """The jobs that have not ended, but for those of a run with a damaged row.

        Such a run keeps its concurrency groups until somebody cancels it; who waits for them is left out too.
        """
        jobs = self.checker.jobs
        stuck = {job.run for job in jobs.values() if job.set_aside or job.id in self.checker.damaged}
        behind = """
            SELECT DISTINCT h.run_id, w.run_id
            FROM group_places h
            JOIN group_places w ON w.repo_id = h.repo_id AND w.name = h.name AND w.within = h.within
            WHERE h.held_at IS NOT NULL AND w.held_at IS NULL"""
        waits = self.connection.execute(behind).fetchall()
        while more := {row[1] for row in waits if row[0] in stuck} - stuck:
            stuck |= more
        return [job for job in jobs.values() if job.state is not State.FINISHED and job.run not in stuck]

    def end(self) -> None:
        if not self.life.store.dead:
            self.life.die()
        given_back(self.connection)


async def _repo(view: Any, name: str) -> int:
    row = await view.one("SELECT id FROM repos WHERE name = :name", name=name)
    return int(row["id"])
