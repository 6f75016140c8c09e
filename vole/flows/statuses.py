"""What outside systems say of commits: taken from who may push, kept newest per context. Holds no SQL."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base.errors import Denied, NotFound
from vole.base.ids import AccountName, CommitId, RepoName
from vole.evidence import ledger
from vole.evidence.model import Reported
from vole.git import objects
from vole.git.storage import Storage
from vole.people.access import may
from vole.people.model import Person
from vole.repos import ledger as repos
from vole.repos import reads as hosted
from vole.store.database import Database, Tx


@dataclass(frozen=True)
class Statuses:
    """The one deed: a status is set, and set again."""

    db: Database
    storage: Storage

    async def set(self, person: Person, name: RepoName, commit: CommitId, said: Reported) -> None:
        """Raises NotFound for a repository that they may not read or a commit that is not there, Denied, Exhausted."""
        repo = await self.db.read(hosted.repo_named, name)
        if repo is None or not may(person, "read", repo):
            raise NotFound("there is no such repository")
        if not may(person, "write", repo):
            raise Denied(f"{person.name} may not set statuses in {name}: that takes `write`",
                         next_step="an admin gives rights: grant USER REPO write")  # fmt: skip
        await self.storage.run(objects.commit, self.storage.path(name), commit)
        await self.db.write(set_status, name, commit, said, person.name)


def set_status(tx: Tx, name: RepoName, commit: CommitId, said: Reported, by: AccountName) -> None:
    """The change."""
    ledger.set_status(tx, repos.named(tx, name).id, commit, said, by)
