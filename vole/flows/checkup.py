"""Whether the state of a server's folder agrees with itself: rows, refs, records, files. Reads only, served or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vole.base.clock import Clock, seconds
from vole.base.errors import NotFound, VoleError
from vole.base.ids import RefName
from vole.base.quantities import count, size
from vole.config.server import Paths
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.logs import LogStore
from vole.evidence.reads import records, stored
from vole.git import copies as git
from vole.git import storage
from vole.git.storage import Storage
from vole.jobs import reads as jobs
from vole.jobs.reads import health
from vole.repos import reads as hosted
from vole.repos.model import Repo
from vole.store import copies
from vole.store.copies import Copy

Mark = Literal["ok", "note", "bad"]

_SHOWN = 20  # missing files that are named


@dataclass(frozen=True)
class Finding:
    mark: Mark
    about: str
    sentence: str
    remedy: str | None = None


def of_store(paths: Paths, clock: Clock) -> Iterator[Finding]:
    """The database, its rows, and what they say of repositories and files. Nothing where no server ever ran."""
    if not paths.database.exists():
        return
    try:
        with copies.opened(paths.database, clock.now()) as store:
            yield from _rows(store)
            for repo in store.read(hosted.repos):
                yield from _repository(paths, store, repo, clock)
            yield from _records(store)
            yield from _files(paths, store, clock)
    except VoleError as error:
        yield Finding("bad", "store", error.sentence, error.next_step)


def _rows(store: Copy) -> Iterator[Finding]:
    wrong = [*store.problems(), *store.read(health.broken)]
    for line in wrong:
        yield Finding("bad", "store", line, "restore a backup, or `vole index rebuild`")
    if not wrong:
        asked = len(health.QUESTIONS) + 1
        yield Finding("ok", "store", f"the database is whole, and {asked} questions about its rows find nothing broken")
    for line in store.read(health.set_aside):
        yield Finding("note", "store", line)


def _repository(paths: Paths, store: Copy, repo: Repo, clock: Clock) -> Iterator[Finding]:
    path = Storage(paths.repos).path(repo.name)
    try:
        missing = git.missing_commits(path, store.read(jobs.commits_since, repo.id, seconds(0)))
        strays = _strays(path, store, repo)
        if strays and (again := _again(paths, repo, clock)):  # a push may have come between the rows and the refs
            strays &= again
    except VoleError as error:
        remedy = "restore it from a backup" if isinstance(error, NotFound) else error.next_step
        yield Finding("bad", "refs", f"{repo.name}: {error.sentence}", remedy)
        return
    for commit in missing:
        yield Finding("bad", "refs", f"I-28: {repo.name} has a run to do at {commit}, and no such commit")
    for ref in sorted(strays):
        yield Finding(
            "bad", "refs", f"{repo.name}: {ref} stands where no push put it", "push it again, or move it back"
        )
    if not missing and not strays:
        yield Finding("ok", "refs", f"{repo.name}: every ref stands where the last push put it")


def _strays(path: Path, store: Copy, repo: Repo) -> set[RefName]:
    seen = {known.ref: known.at for known in store.read(hosted.seen_refs, repo.id)}
    intents = [one for one in store.read(hosted.open_intents) if one.repo == repo.id]
    on_their_way = {update.ref for one in intents for update in one.updates}
    return {ref for ref, at in storage.pushed_refs(path).items() if seen.get(ref) != at} - on_their_way


def _again(paths: Paths, repo: Repo, clock: Clock) -> set[RefName]:
    with copies.opened(paths.database, clock.now()) as store:
        return _strays(Storage(paths.repos).path(repo.name), store, repo)


def _records(store: Copy) -> Iterator[Finding]:
    aside = store.read(records.records_set_aside)
    for _, address, why in aside:
        yield Finding("note", "records", f"no record can be made of {address}: {why}")
    owed = sum(store.read(records.count_owed).values())
    if owed:
        yield Finding(
            "note", "records", f"{count(owed, 'record')} not written yet: a server writes them within seconds"
        )


def _files(paths: Paths, store: Copy, clock: Clock) -> Iterator[Finding]:
    """What rows name is there; what no row names is only told."""
    named = _named(paths, store)
    lost = {place for place in named if not place.exists()}
    if lost:  # it may have been removed between the rows and the look
        with copies.opened(paths.database, clock.now()) as now:
            lost &= _named(paths, now)
    for place in sorted(lost)[:_SHOWN]:
        yield Finding("bad", "files", f"{place.relative_to(paths.root)} is missing", "take it from a backup")
    if not lost:
        yield Finding("ok", "files", f"{count(len(named), 'file')} of logs and artifacts, where rows say")
    over = [place for place in paths.artifacts.glob("[0-9]*/*/*") if place not in named]
    if over:
        total = size(sum(place.stat().st_size for place in over))
        yield Finding(
            "note", "files", f"{count(len(over), 'artifact')} ({total}) that no row names: removing was cut short"
        )


def _named(paths: Paths, store: Copy) -> set[Path]:
    logs, artifacts = LogStore(paths.logs), ArtifactStore(paths.artifacts)
    named = {logs.path(log.key) for log in store.read(stored.whole_logs)}
    return named | {artifacts.place(repo, sha256) for repo, sha256 in store.read(stored.stored_artifacts)}
