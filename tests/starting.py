"""A place where runs start without a push: store, repository, starting and schedules, each real, without doors."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import stored
from tests.unit.git.gitrepo import GitRepo
from tests.unit.web.site_to_test import InProcess
from vole.base.bell import Bells
from vole.base.clock import ManualClock, Moment
from vole.base.entropy import Entropy, SeededEntropy
from vole.base.ids import AccountId, AccountName, RepoName
from vole.flows.push.verdicts import Verdicts
from vole.flows.starting import Schedules, Starting, StartingParts
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs.index import QueueIndex
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.repos.model import Repo
from vole.store.database import Database, Tx

APP = RepoName("app")
NOON = Moment(1_796_040_000_000_000)  # 2026-11-30 12:00:00 UTC, a Monday
JOBS = "jobs:\n  test:\n    steps:\n      - run: make test\n"
DEPLOY = f"""\
name: Ship it
on:
  manual:
    inputs:
      to: {{type: choice, options: [test, live], default: test}}
      note: {{required: true}}
{JOBS}"""
NIGHTLY = f"on: {{schedule: [{{cron: '0 3 * * *'}}]}}\n{JOBS}"


@dataclass
class House:
    """One life of a server on a folder. Another one on the same folder is its next life."""

    folder: Path
    db: Database
    storage: Storage
    index: QueueIndex
    bells: Bells
    clock: ManualClock
    starting: Starting
    schedules: Schedules
    repo: Repo

    def person(self, name: str = "ada", level: Any = "write") -> Person:
        return Person(
            AccountId(1), AccountName(name), admin=False, key_fingerprint="", key_kind="git",
            levels={self.repo.id: frozenset([level])},
        )  # fmt: skip

    async def pushed(self, files: dict[str, str | None], *, branch: str = "main", declared: bool = True) -> str:
        """Commit below `.vole/workflows`, and say so as a confirmed push does; the commit."""
        git = GitRepo(self.storage.path(APP))
        commit = git.commit({f".vole/workflows/{name}": text for name, text in files.items()}, branch=branch)
        await self.db.write(repos.mark_schedules, self.repo.id, declared=declared)
        return commit

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return stored.rows(self.folder, sql, *values)

    def runs(self) -> list[tuple[Any, ...]]:
        """Number, event, workflow and commit of each run."""
        found = self.rows("SELECT number, event ->> '$.name', workflow_path, commit_id FROM runs ORDER BY id")
        return [tuple(row) for row in found]

    def check(self) -> None:
        stored.check(self.folder)

    async def ends(self, *, conclusion: str = "cancelled") -> None:
        """Every unfinished job ends as if cancelled."""
        for row in self.rows("SELECT id FROM runs WHERE state <> 'finished'"):
            await self.db.write(jobs.cancel_run, self.index, row["id"], conclusion)


@asynccontextmanager
async def a_house(
    folder: Path,
    *,
    clock: ManualClock | None = None,
    store: type[Database] = Database,
    entropy: Entropy | None = None,
) -> AsyncIterator[House]:
    clock = clock or ManualClock(NOON)
    (folder / "repos").mkdir(exist_ok=True)
    db = await store.open(stored.fresh(folder), clock, entropy or SeededEntropy())
    storage, index, bells = Storage(folder / "repos"), QueueIndex(), Bells()
    parts = StartingParts(db, bells, clock, storage, index, Verdicts(InProcess()), lambda _: None)  # type: ignore[arg-type]
    repo = await db.write(_repo)
    if not storage.exists(APP):
        storage.create(APP)
    try:
        yield House(folder, db, storage, index, bells, clock, Starting(parts), Schedules(parts), repo)
    finally:
        storage.close()
        await db.close()


def _repo(tx: Tx) -> Repo:
    if tx.one("SELECT 1 FROM repos WHERE name = :name", name=APP) is None:
        repos.create_repo(tx, APP, public=False)
    return repos.named(tx, APP)
