"""Leasing and upkeep on a real store in a folder, without doors: what a server is between its sockets."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests import stored
from tests.queueing import POLICY, a_hello, a_key
from vole.base.bell import Bells
from vole.base.clock import ManualClock
from vole.base.entropy import Entropy, SeededEntropy
from vole.base.ids import AccountId, AccountName, PushId, RepoName
from vole.base.offload import Offload
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.flows.leasing import Leasing, LeasingParts
from vole.flows.upkeep import Upkeep, UpkeepParts
from vole.jobs import ledger
from vole.jobs.index import QueueIndex
from vole.jobs.model import Policy, QueuedRun, RunSource
from vole.people import ledger as people
from vole.people import reads as people_reads
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.runners.roster import Roster, Session
from vole.store.database import Database, Tx
from vole.wire import runner
from vole.wire.plan import RunPlan
from vole.wire.runner import ArtifactFile


class Server:
    """One life of a server on `folder`. Another one on the same folder is its next life."""

    def __init__(self, folder: Path, db: Database, clock: ManualClock, policy: Policy) -> None:
        self.folder, self.db, self.clock = folder, db, clock
        self.bells, self.index, self.roster = Bells(), QueueIndex(), Roster()
        self.logs, self.artifacts = LogStore(folder / "logs"), ArtifactStore(folder / "artifacts")
        self.offload = Offload("vole.evidence.junit")  # started by whoever sends reports
        parts = LeasingParts(
            db, self.bells, self.index, self.roster, self.logs, self.artifacts, self.offload, SeededEntropy(), clock
        )
        self.leasing = Leasing(parts, policy)
        self.upkeep = Upkeep(
            UpkeepParts(db, self.index, self.artifacts, self.leasing.ended, self.leasing.waits, clock), policy
        )

    @classmethod
    async def begin(
        cls,
        folder: Path,
        *,
        clock: ManualClock | None = None,
        policy: Policy = POLICY,
        store: type[Database] = Database,
        entropy: Entropy | None = None,
    ) -> Server:
        clock = clock or ManualClock()
        db = await store.open(stored.fresh(folder), clock, entropy or SeededEntropy())
        server = cls(folder, db, clock, policy)
        await server.upkeep.on_start()
        return server

    async def end(self) -> None:
        await self.offload.close()
        self.logs.close()
        await self.db.close()

    async def repo(self, name: str) -> Repo:
        return await self.db.write(_repo, RepoName(name))

    async def account(self, name: str, *granted: str, kind: Any = "runner") -> AccountId:
        """An account with one key, `run` on these repositories."""
        found = [(await self.repo(repo)).id for repo in granted]
        return await self.db.write(_account, name, kind, found)

    async def person(self, name: str) -> Person:
        person = await self.db.read(people_reads.person_of_key, f"SHA256:{name}")
        assert person is not None
        return person

    async def connects(self, name: str, labels: Iterable[str] = (), **more: Any) -> Session:
        return await self.leasing.hello(await self.person(name), a_hello(name, labels, **more))

    async def enqueues(self, plan: RunPlan, *, repo: str = "app", push: int = 1) -> QueuedRun:
        source = RunSource((await self.repo(repo)).id, PushId(push), 0)
        return await self.db.write(ledger.enqueue_run, self.index, source, plan, plan.labels)

    async def asks(
        self, session: Session, token: str = "t", slot: int = 0
    ) -> asyncio.Task[runner.Job | runner.Nothing]:
        """A parked want; it has been seen by the dispatcher's next look."""
        task = asyncio.create_task(self.leasing.next_job(session, runner.Want(slot, token)))
        await asyncio.sleep(0)
        return task

    async def gets(self, session: Session, token: str = "t") -> runner.Job:
        """Ask, look once, and take the job."""
        task = await self.asks(session, token)
        await self.leasing.look()
        job = await task
        assert isinstance(job, runner.Job), job
        return job

    async def takes(self, session: Session, token: str = "t") -> runner.Job:
        """Get a job and start it."""
        job = await self.gets(session, token)
        await self.leasing.started(session, runner.Started(job.lease.job, job.lease.epoch))
        return job

    async def stores(self, session: Session, job: runner.Job, name: str, path: str, data: bytes) -> ArtifactFile:
        """A file of an artifact, sent whole."""
        file = ArtifactFile(name, path, len(data), hashlib.sha256(data).hexdigest())
        key = (job.lease.job, job.lease.epoch)
        await self.leasing.artifact_begin(session, *key, file)
        await self.leasing.artifact_append(session, *key, file, 0, data)
        await self.leasing.artifact_commit(session, *key, file)
        return file

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return stored.rows(self.folder, sql, *values)

    def check(self) -> None:
        stored.check(self.folder)


def _repo(tx: Tx, name: RepoName) -> Repo:
    if tx.one("SELECT 1 FROM repos WHERE name = :name", name=name) is None:
        repos.create_repo(tx, name, public=False)
    return repos.named(tx, name)


def _account(tx: Tx, name: str, kind: Any, granted: list[Any]) -> AccountId:
    account = people.add_account(tx, AccountName(name), admin=False)
    people.add_key(tx, account, a_key(name), kind)
    for repo in granted:
        people.grant(tx, account, repo, "run" if kind == "runner" else "write")
    return account
