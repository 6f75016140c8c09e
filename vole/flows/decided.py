"""What people decided, from its outbox to `vole-admin.git`: accounts, keys, grants, repositories, declared labels.

A document an account, one a repository, one of all labels: the tip is what holds, the chain is how it came about.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vole.base import limits
from vole.base.ids import AccountName, RepoName
from vole.flows.recording import Recording
from vole.git.records import ADMIN, Stamp, put
from vole.git.storage import make_bare
from vole.people import reads as people
from vole.repos import ledger
from vole.repos import reads as repos
from vole.repos.model import OwedDocument
from vole.runners import reads as runners
from vole.store.database import View
from vole.wire import documents

ACCOUNT, REPOSITORY, LABELS = "vole account", "vole repository", "vole declared labels"


@dataclass
class Decided:
    """`once` each second. `path` is the repository's; it is made when there is first something to say."""

    recording: Recording
    path: Path

    async def once(self) -> None:
        """Write down all that is owed. Raises Conflict, Unavailable; the next look tries again."""
        while found := await self.recording.db.read(_owed):
            owed, files = found
            await self._write(owed, files)
            # Dying in between finds the documents standing there, and makes no commit.
            await self.recording.db.write(ledger.forget_told, owed[-1].row)

    async def _write(self, owed: list[OwedDocument], files: dict[str, bytes | None]) -> None:
        recording = self.recording
        lines = sorted({f"{one.kind} {one.name}" for one in owed})
        head = lines if len(lines) == 1 else [f"{len(lines)} documents", "", *lines]
        async with recording.alone:
            if not self.path.exists():
                await recording.storage.run(make_bare, self.path)
            stamp = Stamp("\n".join(head) + "\n", recording.clock.now())
            await recording.storage.run(put, self.path, ADMIN, files, recording.keys, stamp)
        recording.wrote(self.path)


async def _owed(view: View) -> tuple[list[OwedDocument], dict[str, bytes | None]] | None:
    """Rows of the outbox, and what their documents say as of the same moment; None for one that is to go."""
    owed = await repos.admin_owed(view, limits.RECORDS_AT_ONCE)
    return (owed, dict([await _document(view, one) for one in owed])) if owed else None


async def _document(view: View, owed: OwedDocument) -> tuple[str, bytes | None]:
    if owed.kind == "account":
        account = await people.account_document(view, AccountName(owed.name))
        return f"accounts/{owed.name}.json", None if account is None else documents.write(ACCOUNT, account)
    if owed.kind == "repository":
        repo = await repos.repository_document(view, RepoName(owed.name))
        return f"repositories/{owed.name}.json", None if repo is None else documents.write(REPOSITORY, repo)
    return "labels/declared.json", documents.write(LABELS, await runners.labels_document(view))
