"""A backup to a folder that can be served: nothing of it goes on by itself, and no number is given twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vole.base import log
from vole.base.clock import Moment, StoreClock, after, seconds
from vole.base.entropy import Entropy
from vole.base.errors import Conflict, Invalid, NotFound, Unavailable
from vole.base.ids import AccountName, CommitId, JobId, RefName, RepoId, RepoName, RunNumber
from vole.config.server import Paths
from vole.evidence.logs import LogStore
from vole.flows.backup import files
from vole.flows.backup.files import ABOUT, SUMS, About, Copier, Progress
from vole.git import copies as git
from vole.git import storage
from vole.git.storage import Storage
from vole.jobs import ledger as jobs
from vole.jobs import reads
from vole.jobs.index import QueueIndex
from vole.repos import ledger as repos
from vole.repos import reads as hosted
from vole.runners import ledger as runners
from vole.store import copies
from vole.store.database import Database, Tx
from vole.wire.hook import RefUpdate

_log = log.get("vole.restore")

_BY = AccountName("restore")
_PAUSE = seconds(0.001)  # as at each start: ids of before and after do not meet


@dataclass(frozen=True)
class Restored:
    """What became of what was in the backup."""

    about: About
    lost: tuple[str, ...]  # addresses of jobs that had not ended
    next_runs: Mapping[RepoName, RunNumber]
    strays: tuple[str, ...]  # refs that no push of the backup put where they are
    missing: tuple[str, ...]  # files of the folder that have to be made


@dataclass(frozen=True)
class _Found:
    """What the repositories say, for the change."""

    used: Mapping[RepoId, RunNumber]
    moved: Mapping[RepoId, tuple[RefUpdate, ...]]
    unfinished: tuple[JobId, ...]


def restore(backup: Path, folder: Path, past: Path | None, parts: tuple[StoreClock, Entropy, Progress]) -> Restored:
    """Make the server's folder `folder` of a backup. `past`: the folder that was served last, if it can still be read:
    its numbers are not given again.

    Raises NotFound for what is no backup, Invalid for one whose files are other ones, Conflict for a folder that is not
    empty; `folder` is as before then.
    """
    clock, entropy, progress = parts
    with files.unpacked(backup) as source, files.made_whole(folder.absolute()) as making:
        about = About.read(source)
        _copy(source, making, progress)
        paths = Paths(making)
        for place in paths.folders:
            place.mkdir(mode=0o700, exist_ok=True)
        for repository in (*paths.repos.glob("*.git"), paths.admin_repository):
            if repository.exists():
                git.lay_out(repository)
        progress("the queue", 0)
        made = asyncio.run(_settle(paths, None if past is None else Paths(past.absolute()), clock, entropy))
        missing = tuple(path.name for path in (paths.host_key, paths.record_key) if not path.exists())
        lost, next_runs, strays = made
        return Restored(about, lost, next_runs, strays, missing)


def _copy(source: Path, making: Path, progress: Progress) -> None:
    sums = files.expected(source)
    copier = Copier(source, making, progress)
    for name in sorted(sums.keys() - {ABOUT, SUMS}):
        if not copier.put_if_there(name):
            raise Invalid(f"{source / name} is missing: the backup is not whole")
        if copier.sums[name] != sums[name]:
            raise Invalid(f"{source / name} has other bytes than when the backup was made")


async def _settle(
    paths: Paths, past: Paths | None, clock: StoreClock, entropy: Entropy
) -> tuple[tuple[str, ...], Mapping[RepoName, RunNumber], tuple[str, ...]]:
    db = await Database.open(paths.database, clock, entropy)
    try:
        clock.not_before(after(await _last_moment(db), _PAUSE))
        known = await db.read(hosted.repos)
        folders, now = [paths, *([past] if past else [])], clock.now()
        used = {repo.id: max(_used(one, repo.name, now) for one in folders) for repo in known}
        moved = {repo.id: await _moved(db, paths, repo.id, repo.name) for repo in known}
        unfinished = await db.read(reads.unfinished)
        found = _Found(used, moved, tuple(job for job, _ in unfinished))
        numbers = await db.write(settle_restored, QueueIndex(), found)
        strays = tuple(f"{repo.name} {update.ref}" for repo in known for update in moved[repo.id])
        return tuple(address for _, address in unfinished), {repo.name: numbers[repo.id] for repo in known}, strays
    finally:
        await db.close()


def settle_restored(tx: Tx, index: QueueIndex, found: _Found) -> dict[RepoId, RunNumber]:
    """The change: what had not ended is lost, refs are known as they stand, and each next number is a new thousand."""
    jobs.end_unfinished(tx, index, found.unfinished)
    runners.disconnect_all(tx)
    for repo, updates in found.moved.items():
        if updates:
            repos.note_moved(tx, repo, _BY, updates)
    return {repo: jobs.pass_over(tx, repo, used) for repo, used in found.used.items()}


async def _last_moment(db: Database) -> Moment:
    return max(await db.read(reads.last_moment), await db.read(hosted.last_moment))


def _used(paths: Paths, name: RepoName, now: Moment) -> RunNumber:
    """The highest run number of which something is left: a row where rows can be read, a record, a log."""
    try:
        recorded = git.highest_run(Storage(paths.repos).path(name))
    except NotFound:
        recorded = 0
    try:
        with copies.opened(paths.database, now) as store:
            given = store.read(reads.last_numbers).get(name, 0)
    except (Unavailable, Conflict) as error:
        _log.warning("numbers are read from records and logs alone", why=error.sentence)
        given = 0
    return RunNumber(max(given, recorded, *LogStore(paths.logs).numbers(name)))


async def _moved(db: Database, paths: Paths, repo: RepoId, name: RepoName) -> tuple[RefUpdate, ...]:
    """Refs that stand elsewhere than the store has seen; those of a push on its way are settled at the start."""
    stand: dict[RefName, CommitId] = storage.pushed_refs(Storage(paths.repos).path(name))
    seen = {
        known.ref: None if known.at is None else CommitId(known.at) for known in await db.read(hosted.seen_refs, repo)
    }
    open_ = {update.ref for one in await db.read(hosted.open_intents) if one.repo == repo for update in one.updates}
    return tuple(
        RefUpdate(ref, seen.get(ref), stand.get(ref))
        for ref in sorted((stand.keys() | seen.keys()) - open_)
        if seen.get(ref) != stand.get(ref)
    )
