"""Letting go of what was kept long enough: for now the commits of runs that nobody can run again. Holds no rule."""

from __future__ import annotations

from collections.abc import Callable

from vole.base import log
from vole.base.clock import seconds
from vole.base.errors import NotFound
from vole.base.ids import CommitId
from vole.git import storage as git
from vole.git.storage import Storage
from vole.jobs import reads as jobs
from vole.repos import reads as hosted
from vole.repos.model import Repo
from vole.store.database import Database, View

_log = log.get("vole.retention")


class Retention:
    """`rerun_s`: how long a finished run may be run again; 0 for ever. Asked each time, for it may be reloaded."""

    def __init__(self, db: Database, storage: Storage, rerun_s: Callable[[], float]) -> None:
        self._db = db
        self._storage = storage
        self._rerun_s = rerun_s

    async def once(self) -> None:
        """Drop the refs that hold commits for runs which are over for longer than that; pack those that stay."""
        for repo in await self._db.read(hosted.repos):
            try:
                if self._rerun_s():
                    await self._let_go(repo)
                await self._storage.run(git.pack_refs, self._storage.path(repo.name))
            except NotFound:
                continue  # removed meanwhile, and its refs with it

    async def _let_go(self, repo: Repo) -> None:
        path = self._storage.path(repo.name)
        held = await self._storage.run(git.held_commits, path)
        gone = held - await self._needed(repo)
        await self._storage.run(git.let_go, path, gone)
        # A push of one of them may have been meant in between: what it needs is held again.
        await self._storage.run(git.keep, path, gone & await self._needed(repo))
        if gone:
            _log.info("commits let go", repo=repo.name, count=len(gone))

    async def _needed(self, repo: Repo) -> frozenset[CommitId]:
        return await self._db.read(_needed, repo, self._rerun_s())


async def _needed(view: View, repo: Repo, rerun_s: float) -> frozenset[CommitId]:
    """The commits of runs that go on or may be run again, and of pushes on their way."""
    meant = [run.plan.commit for intent in await hosted.open_intents(view) for run in intent.runs]
    return frozenset([*await jobs.commits_since(view, repo.id, seconds(rerun_s)), *meant])
