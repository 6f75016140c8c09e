"""vole's queue between its doors: the store on a disk, the ledgers and the stories of a lease, with a clock that runs.

What a runner link calls is called here: a want, and a result. Neither SSH nor the loop of a runner is part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.queueing import EMPTY_SHA256, POLICY, a_hello, a_job, a_key, a_run
from vole.base import limits
from vole.base.bell import Bells
from vole.base.clock import SystemClock
from vole.base.entropy import SystemEntropy
from vole.base.ids import AccountName, PushId, RepoId, RepoName, SessionId
from vole.base.offload import Offload
from vole.base.supervise import Sweep, repeat
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.leasing import Leasing, LeasingParts
from vole.jobs import ledger
from vole.jobs.index import QueueIndex
from vole.jobs.model import RunSource
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.runners.roster import Roster, Session
from vole.store.database import Database, Tx
from vole.wire import runner

AT_ONCE = 500  # jobs that one change enqueues


@dataclass
class Place:
    """A server's queue in a folder, and the runners that are connected to it."""

    db: Database
    leasing: Leasing
    index: QueueIndex
    repo: RepoId
    person: Person
    sessions: list[Session] = field(default_factory=list)

    @property
    def session(self) -> SessionId:
        """A runner process that holds leases and is on no roster."""
        return SessionId(1)

    async def connect(self, count: int) -> None:
        """That many runners of one slot each."""
        for number in range(len(self.sessions), count):
            self.sessions.append(await self.leasing.hello(self.person, a_hello(f"runner-{number}", ("linux",))))

    async def enqueue(self, count: int) -> None:
        for begin in range(0, count, AT_ONCE):
            await self.db.write(_enqueue, self, min(AT_ONCE, count - begin))

    async def cycles_per_s(self, runners: int, count: int, *, ahead: bool) -> float:
        """How many jobs a second are leased and finished, when `runners` ask at once for `count` together.

        `ahead`: each says its result together with its next want, as a runner's link does; else one after the other.
        """
        await self.connect(runners)
        await self.enqueue(count)
        left = iter(range(count))
        begin = time.perf_counter()
        await asyncio.gather(*(self._works(session, left, ahead=ahead) for session in self.sessions[:runners]))
        return count / (time.perf_counter() - begin)

    async def _works(self, session: Session, left: Iterator[int], *, ahead: bool) -> None:
        finishing: asyncio.Task[None] | None = None
        for number in left:
            job = await asyncio.create_task(self.leasing.next_job(session, runner.Want(0, f"{session.id}-{number}")))
            assert isinstance(job, runner.Job)
            if finishing is not None:
                await finishing
            finishing = asyncio.create_task(self._finishes(session, job))
            if not ahead:
                await finishing
        if finishing is not None:
            await finishing

    async def _finishes(self, session: Session, job: runner.Job) -> None:
        seal = runner.LogSeal(0, EMPTY_SHA256)
        await self.leasing.finish(session, runner.Finish(job.lease.job, job.lease.epoch, "success", seal))


@asynccontextmanager
async def a_place(folder: Path) -> AsyncIterator[Place]:
    """A queue with one repository, and one account that runs its jobs. Its dispatcher runs."""
    folder.mkdir(parents=True, exist_ok=True)
    clock, entropy, bells, index, roster = SystemClock(), SystemEntropy(), Bells(), QueueIndex(), Roster()
    db = await Database.open(folder / "vole.db", clock, entropy)
    logs, artifacts = LogStore(folder / "logs"), ArtifactStore(folder / "artifacts")
    leasing = Leasing(LeasingParts(db, bells, index, roster, logs, artifacts, Offload(), entropy, clock), POLICY)
    repo = await db.write(_found)
    await db.write(ledger.restart, index, POLICY)
    person = await db.read(people_reads.person_of_key, "SHA256:rui")
    assert person is not None
    sweep = Sweep("dispatch", leasing.look, limits.LOOK_S, topics=("jobs", "want"))
    dispatching = asyncio.create_task(repeat(sweep, bells))
    try:
        yield Place(db, leasing, index, repo, person)
    finally:
        dispatching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dispatching
        logs.close()
        await db.close()


def _found(tx: Tx) -> RepoId:
    if tx.one("SELECT 1 FROM repos") is not None:
        return repos.named(tx, RepoName("app")).id
    repo = repos.create_repo(tx, RepoName("app"), public=False)
    account = people.add_account(tx, AccountName("rui"), admin=False)
    people.add_key(tx, account, a_key("rui"), "runner")
    people.grant(tx, account, repo.id, "run")
    return repo.id


def _enqueue(tx: Tx, place: Place, count: int) -> None:
    plan = a_run(a_job(runs_on=("linux",)))
    for _ in range(count):
        source = RunSource(place.repo, PushId(tx.ident()), 0)
        ledger.enqueue_run(tx, place.index, source, plan, {"test": ("linux",)})
