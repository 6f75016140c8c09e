"""Removing what was kept long enough or is to go at once: logs, artifacts, the rows of finished runs. Holds no rule.

A log's file goes before its row says so: dying in between removes it again, and finds nothing. Rows of artifacts and
runs go before their files: what is left then is only files, which `vole doctor` names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vole.base import limits, log
from vole.base.clock import Clock, Moment, after, seconds
from vole.base.errors import Unavailable
from vole.base.ids import AccountName, Epoch, JobId, JobKey, RunId
from vole.base.quantities import count, size
from vole.config.server import RetentionConfig
from vole.evidence import ledger as evidence
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.evidence.reads import stored
from vole.evidence.reads.stored import StoredLog
from vole.jobs import ledger as jobs
from vole.jobs import reads
from vole.repos import reads as hosted
from vole.repos.model import Repo
from vole.store.database import Database, Tx

_log = log.get("vole.retention")
_DAY_S = 86_400


@dataclass(frozen=True)
class Removed:
    """What went: files or rows, and the bytes of files."""

    count: int
    bytes: int

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.count + other.count, self.bytes + other.bytes)


NOTHING = Removed(0, 0)


@dataclass(frozen=True)
class Removal:
    """`once` each hour; the rest by command. `settings` is asked each time, for it may be reloaded."""

    db: Database
    logs: LogStore
    artifacts: ArtifactStore
    clock: Clock
    settings: Callable[[], RetentionConfig]

    async def once(self) -> None:
        """What the settings say: logs by age, then by the size of a repository's, then the rows of old runs."""
        keep = self.settings()
        if keep.logs_s:
            await self._old_logs(keep.logs_s)
        if keep.logs_size:
            for repo in await self.db.read(hosted.repos):
                await self._too_many_logs(repo, keep.logs_size)
        if keep.runs_s:
            await self.prune(None, self._ago(keep.runs_s))

    async def delete_logs(self, run: RunId, job: JobKey | None, by: AccountName) -> Removed:
        """The logs of a run, or of one job of it, that are over and recorded."""
        return await self._remove(await self.db.read(stored.logs_of, run, job), f"by {by}")

    async def delete_artifacts(self, run: RunId, job: JobId | None, name: str | None, by: AccountName) -> Removed:
        """The artifacts of a run, of one job or one name. Raises Unavailable while a record of the run is owed."""
        gone, files = await self.db.write(delete_artifacts, run, job, name, f"by {by}")
        return Removed(gone, await self._unlink(files))

    async def prune(self, repo: Repo | None, before: Moment) -> Removed:
        """Forget runs that finished before that, of one repository or all, with their logs and artifacts."""
        removed = NOTHING
        while runs := await self.db.read(
            reads.old_runs, None if repo is None else repo.id, before, limits.PRUNE_AT_ONCE
        ):
            going = [one for run in runs for one in await self.db.read(stored.logs_of, run, None)]
            freed = sum((await self._erase(going)).values())
            gone, files = await self.db.write(prune_runs, runs)
            removed += Removed(gone, freed + await self._unlink(files))
            if gone < len(runs):
                break  # what is left waits for a record, or was run again meanwhile
        self._say("runs", removed)
        return removed

    async def _old_logs(self, logs_s: float) -> None:
        before = self._ago(logs_s)
        while found := await self.db.read(stored.old_logs, before, limits.PRUNE_AT_ONCE):
            await self._remove(found, f"after {count(round(logs_s / _DAY_S), 'day')}")

    async def _too_many_logs(self, repo: Repo, most: int) -> None:
        """The oldest go first, until the rest fits."""
        over = await asyncio.to_thread(self.logs.bytes_of, repo.name) - most
        while over > 0 and (found := await self.db.read(stored.oldest_logs, repo.id, limits.PRUNE_AT_ONCE)):
            going: list[StoredLog] = []
            for one in found:
                if over <= 0:
                    break
                over -= self.logs.length(one.key)
                going.append(one)
            await self._remove(going, f"since the logs of {repo.name} are over {size(most)}")

    async def _remove(self, found: Sequence[StoredLog], why: str) -> Removed:
        if not found:
            return NOTHING
        sizes = await self._erase(found)
        await self.db.write(evidence.note_removed_logs, sizes, why)
        removed = Removed(len(sizes), sum(sizes.values()))
        self._say("logs", removed)
        return removed

    async def _erase(self, found: Sequence[StoredLog]) -> dict[tuple[JobId, Epoch], int]:
        """Remove the files; the bytes of each."""
        return await asyncio.to_thread(lambda: {(one.job, one.epoch): self.logs.remove(one.key) for one in found})

    async def _unlink(self, files: Iterable[evidence.Stored]) -> int:
        return await asyncio.to_thread(lambda: sum(self.artifacts.remove(repo, sha256) for repo, sha256 in files))

    def _ago(self, span_s: float) -> Moment:
        return after(self.clock.now(), seconds(-span_s))

    def _say(self, what: str, removed: Removed) -> None:
        if removed.count:
            _log.info(f"{what} removed", count=removed.count, bytes=removed.bytes)


def delete_artifacts(
    tx: Tx, run: RunId, job: JobId | None, name: str | None, why: str
) -> tuple[int, list[evidence.Stored]]:
    """The change. An artifact may be counted on until the record of its run is written."""
    if not jobs.is_settled(tx, run):
        raise Unavailable("the run is not over, or its record is not written yet", next_step="try again in a moment")
    return evidence.remove_artifacts(tx, run, job, name, why)


def prune_runs(tx: Tx, runs: Sequence[RunId]) -> tuple[int, list[evidence.Stored]]:
    """The change: how many runs went, and the files of artifacts that nothing names any more."""
    going = jobs.prunable(tx, runs)
    files = evidence.drop_runs(tx, going)
    jobs.prune(tx, going)
    return len(going), files
