"""Letting go of what was kept long enough: commits of runs that nobody can run again, artifacts. Holds no rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from vole.base import log
from vole.base.clock import seconds
from vole.base.errors import NotFound
from vole.base.ids import CommitId, RepoId
from vole.evidence import ledger as evidence
from vole.evidence.artifacts import ArtifactStore
from vole.git import storage as git
from vole.git.storage import Storage
from vole.jobs import reads as jobs
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import repos_owing
from vole.repos import reads as hosted
from vole.repos.model import Repo
from vole.store.database import Database, Tx, View

_log = log.get("vole.retention")


class Retention:
    """`rerun_s`: how long a finished run may be run again; 0 for ever. Asked each time, for it may be reloaded."""

    def __init__(self, db: Database, storage: Storage, rerun_s: Callable[[], float]) -> None:
        self._db = db
        self._storage = storage
        self._rerun_s = rerun_s

    async def once(self) -> None:
        """Drop the refs that hold commits for runs which are over for longer than that."""
        for repo in await self._db.read(hosted.repos):
            try:
                if self._rerun_s():
                    await self._let_go(repo)
            except NotFound:
                continue  # removed meanwhile, and its refs with it

    async def _let_go(self, repo: Repo) -> None:
        path = self._storage.path(repo.name)
        held = await self._storage.run(git.held_commits, path)
        gone = held - await self._needed(repo)
        await self._storage.run(git.let_go, path, gone)
        # A push of one of them may have been meant in between: what it needs is held again.
        needed = gone & await self._needed(repo)
        await self._storage.run(lambda: git.keep(git.open_repository(path), needed))
        if gone:
            _log.info("commits let go", repo=repo.name, count=len(gone))

    async def _needed(self, repo: Repo) -> frozenset[CommitId]:
        return await self._db.read(_needed, repo, self._rerun_s())


class ArtifactRetention:
    """Artifacts go when the days that their workflow gave them are over."""

    def __init__(self, db: Database, index: QueueIndex, artifacts: ArtifactStore) -> None:
        self._db = db
        self._index = index
        self._artifacts = artifacts

    async def once(self) -> None:
        """Forget what is over, then remove the files. Dying in between leaves files that nothing names."""
        gone = await self._db.write(expire_artifacts, self._index)
        for repo, sha256 in gone:
            await asyncio.to_thread(self._artifacts.remove, repo, sha256)
        if gone:
            _log.info("artifacts expired", count=len(gone))


def expire_artifacts(tx: Tx, index: QueueIndex) -> list[tuple[RepoId, str]]:
    """The change; repositories with a job at work, or an attempt that has no record yet, wait."""
    return evidence.expire_artifacts(tx, repos_owing(tx) | {held.repo for held in index.held.values()})


async def _needed(view: View, repo: Repo, rerun_s: float) -> frozenset[CommitId]:
    """The commits of runs that go on or may be run again, and of pushes on their way."""
    meant = [run.plan.commit for intent in await hosted.open_intents(view) for run in intent.runs]
    return frozenset([*await jobs.commits_since(view, repo.id, seconds(rerun_s)), *meant])
