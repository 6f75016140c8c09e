"""What a crash left between a push's intent and its confirmation, settled through the push's own step. No rule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from vole.base import log
from vole.base.errors import NotFound
from vole.git.service import GitPrograms
from vole.git.storage import Storage, pushed_refs
from vole.repos import reads as hosted
from vole.repos.model import OpenIntent, Repo
from vole.store.database import Database

_log = log.get("vole.recovery")


class Recovery:
    """`settle` is the push's own step, handed in by app."""

    def __init__(self, db: Database, storage: Storage, settle: Callable[[OpenIntent], Awaitable[None]]) -> None:
        self._db = db
        self._storage = storage
        self._settle = settle

    async def on_start(self, programs: GitPrograms) -> None:
        """Before any door opens: wait for git children of a former server, tidy after them, settle their pushes."""
        await programs.alone()
        await self._storage.run(self._storage.tidy)
        await self.settle_pushes()
        await self.find_strays()

    async def settle_pushes(self) -> int:
        """Confirm or drop every open intent by comparing it with the refs; how many there were. Done twice is once."""
        intents = await self._db.read(hosted.open_intents)
        for intent in intents:
            await self._settle(intent)
            _log.info("push settled", repo=intent.repo_name, push=intent.push)
        return len(intents)

    async def find_strays(self) -> list[str]:
        """Refs that stand where no push put them: an alarm each, and no job."""
        found = []
        for repo in await self._db.read(hosted.repos):
            found += [f"{repo.name} {ref}" for ref in await self._strays_of(repo)]
        for stray in found:
            _log.error("a ref moved without a push", ref=stray)
        return found

    async def _strays_of(self, repo: Repo) -> list[str]:
        try:
            refs = await self._storage.run(pushed_refs, self._storage.path(repo.name))
        except NotFound:
            _log.error("a repository's folder is missing", repo=repo.name)
            return []
        seen = {known.ref: known.at for known in await self._db.read(hosted.seen_refs, repo.id)}
        return [ref for ref, target in refs.items() if seen.get(ref) != target]
