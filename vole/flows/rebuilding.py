"""The index from git alone: accounts, keys, grants, repositories, finished runs and their evidence, as they were.

What is queue state does not come back: runs that were not finished, labels, leases, pinned documents; nor do secrets:
browser sessions, tokens. Records are read from the repositories on this disk, where nobody but the server writes them;
`git verify-commit` says whether they were signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from vole.base.errors import Invalid
from vole.base.ids import CommitId, Epoch, JobId, JobKey, RefName, RepoName, RunId, RunNumber
from vole.evidence import ledger as evidence
from vole.evidence import records
from vole.evidence.artifacts import ArtifactStore
from vole.evidence.ledger import Attempt
from vole.evidence.logs import LogStore
from vole.evidence.reads import stored
from vole.flows.decided import ACCOUNT, LABELS, REPOSITORY
from vole.git.records import ADMIN, RUNS
from vole.git.records import documents as documents_of
from vole.git.storage import Storage, pushed_refs
from vole.jobs import ledger as jobs
from vole.people import ledger as people
from vole.people.model import AccountDocument
from vole.repos import ledger as repos
from vole.repos.model import Origin, Repo, RepositoryDocument
from vole.runners import ledger as runners
from vole.runners.model import LabelsDocument
from vole.store.database import Database, Tx
from vole.wire import documents
from vole.wire.records import AttemptRecord, RunRecord, StartRecord

_BATCH = 200  # runs in one change; a run may have 256 jobs
_PROGRESS = 10_000  # documents between two lines
_BEFORE = "before the database was rebuilt"
_NAMED = 20  # of the runs that do not come back
_Folder = Mapping[str, bytes]


@dataclass(frozen=True)
class Parts:
    """Where everything lies. `db` is new and empty; `admin` is `vole-admin.git`, which need not be there."""

    db: Database
    storage: Storage
    logs: LogStore
    artifacts: ArtifactStore
    admin: Path


@dataclass
class Rebuilt:
    """A repository that is back, and what of it could not come."""

    repo: Repo
    runs: int = 0
    documents: int = 0
    unfinished: list[RunNumber] = field(default_factory=list)  # runs whose attempts are in git, and no end of theirs
    missing: int = 0  # attempts that a run names, and no document has
    next_run: RunNumber | None = None  # while it is on its way


@dataclass(frozen=True)
class Decisions:
    """All that `vole-admin.git` says."""

    accounts: tuple[AccountDocument, ...]
    repositories: Mapping[RepoName, RepositoryDocument]
    labels: LabelsDocument


@dataclass(frozen=True)
class Run:
    """A run's number, its record, where it was finished, and its attempts'."""

    number: RunNumber
    record: RunRecord | None
    attempts: Mapping[tuple[JobKey, Epoch], AttemptRecord]


async def rebuild(parts: Parts, say: Callable[[str], object]) -> list[Rebuilt]:
    """Every repository that has a folder. `say` hears how far it has come, and what cannot come back as it was.

    Raises Invalid for a document that cannot be read, naming it.
    """
    decisions = await parts.storage.run(_decisions, parts.admin)
    here = await parts.storage.run(parts.storage.names)
    for name in sorted(decisions.repositories.keys() - set(here)):
        say(f"{name}: there is no folder {parts.storage.path(name)}; it does not come back")
    for name in (name for name in here if name not in decisions.repositories):
        say(f"{name}: {parts.admin.name} does not name it: it is private now, without gates or its artifacts")
    found = await parts.db.write(restore_decisions, decisions, here)
    say(f"{len(decisions.accounts)} accounts and {len(found)} repositories are back")
    back = [await _repository(parts, repo, decisions.repositories.get(repo.name), say) for repo in found]
    await _note_gone(parts, say)
    return back


async def _note_gone(parts: Parts, say: Callable[[str], object]) -> None:
    """Files that records tell of and that were removed, or lost, before: no page is to send anybody to them."""
    logs = {
        (one.job, one.epoch): one.bytes
        for one in await parts.db.read(stored.whole_logs)
        if not parts.logs.path(one.key).exists()
    }
    files = [one for one in await parts.db.read(stored.stored_artifacts) if not parts.artifacts.place(*one).exists()]
    if logs or files:
        await parts.db.write(note_gone, logs, files)
        say(f"{len(logs):,} logs and {len(files):,} artifacts are told of, and are not here")


async def _repository(
    parts: Parts, repo: Repo, known: RepositoryDocument | None, say: Callable[[str], object]
) -> Rebuilt:
    path, back = parts.storage.path(repo.name), Rebuilt(repo)
    numbers = [*parts.logs.numbers(repo.name), RunNumber(0) if known is None else known.next_run]
    folders = documents_of(path, RUNS, "runs", 2)
    said = _PROGRESS
    while batch := await parts.storage.run(_next_runs, repo.name, folders):
        back.missing += await parts.db.write(restore_runs, repo, batch)
        back.runs += sum(run.record is not None for run in batch)
        back.documents += sum(len(run.attempts) + (run.record is not None) for run in batch)
        back.unfinished += [run.number for run in batch if run.record is None]
        numbers.append(batch[-1].number)
        if back.documents >= said:
            say(f"{repo.name}: {back.documents:,} records so far")
            said = back.documents + _PROGRESS
    refs = await parts.storage.run(pushed_refs, path)
    back.next_run = await parts.db.write(settle_repository, repo, refs, numbers)
    _tell(back, say)
    return back


def _tell(back: Rebuilt, say: Callable[[str], object]) -> None:
    name = back.repo.name
    say(f"{name}: {back.runs:,} runs of {back.documents:,} records are back; its next run is {name}/{back.next_run}")
    if back.unfinished:
        some = " ".join(f"{name}/{number}" for number in back.unfinished[:_NAMED])
        say(f"{name}: {len(back.unfinished):,} runs were not finished and do not come back: {some}")
    if back.missing:
        say(f"{name}: {back.missing:,} attempts have no record: their jobs are back without them")


def restore_decisions(tx: Tx, decisions: Decisions, here: Sequence[RepoName]) -> list[Repo]:
    """Repositories first: grants name them."""
    found = []
    for name in here:
        known = decisions.repositories.get(name)
        found.append(repos.create_repo(tx, name, public=False) if known is None else repos.restore_repo(tx, known))
        evidence.restore_gates(tx, found[-1].id, () if known is None else known.gates)
    for account in decisions.accounts:
        people.restore_account(tx, account, {repo.name: repo.id for repo in found})
    runners.restore_labels(tx, decisions.labels)
    return found


def restore_runs(tx: Tx, repo: Repo, batch: Sequence[Run]) -> int:
    """Those that were finished, in the order of their numbers. How many attempts they miss."""
    missing = 0
    for run in batch:
        record = run.record
        if record is None:
            continue
        if record.start is not None:
            repos.restore_origin(tx, _origin(repo, record, record.start))
        jobs.restore_run(tx, repo.id, record, run.attempts)
        for job in record.jobs:
            for epoch in job.epochs:
                attempt = run.attempts.get((job.key, epoch))
                missing += attempt is None
                if attempt is not None:
                    whose = Attempt(repo.id, RunId(int(record.id)), JobId(int(job.id)), epoch)
                    evidence.restore(tx, whose, attempt)
    return missing


def note_gone(tx: Tx, logs: Mapping[tuple[JobId, Epoch], int], files: Iterable[evidence.Stored]) -> None:
    """The change."""
    evidence.note_removed_logs(tx, logs, _BEFORE)
    evidence.note_lost_artifacts(tx, files, _BEFORE)


def settle_repository(tx: Tx, repo: Repo, refs: Mapping[RefName, CommitId], numbers: Iterable[RunNumber]) -> RunNumber:
    """Where its refs stand, and its next run number: beyond all `numbers`."""
    repos.adopt_refs(tx, repo.id, refs)
    return jobs.restore_numbers(tx, repo.id, numbers)


def _origin(repo: Repo, run: RunRecord, start: StartRecord) -> Origin:
    pushed = run.event.name == "push"
    return Origin(int(start.id), repo.id, run.workflow_path, start.account, start.at, start.due_at, pushed)


def _decisions(path: Path) -> Decisions:
    if not path.exists():
        return Decisions((), {}, LabelsDocument(()))
    files = {place: data for folder in documents_of(path, ADMIN, "", 1) for place, data in folder.items()}
    found = {place: _decided(path, place, data) for place, data in sorted(files.items())}
    (labels,) = [one for one in found.values() if isinstance(one, LabelsDocument)] or [LabelsDocument(())]
    return Decisions(
        tuple(one for one in found.values() if isinstance(one, AccountDocument)),
        {one.name: one for one in found.values() if isinstance(one, RepositoryDocument)},
        labels,
    )


def _decided(path: Path, place: str, data: bytes) -> AccountDocument | RepositoryDocument | LabelsDocument:
    try:
        if place.startswith("accounts/"):
            return documents.read(ACCOUNT, AccountDocument, data)
        if place.startswith("repositories/"):
            return documents.read(REPOSITORY, RepositoryDocument, data)
        return documents.read(LABELS, LabelsDocument, data)
    except Invalid as error:
        raise Invalid(f"{path.name}: {place}: {error.sentence}") from None


def _next_runs(name: RepoName, folders: Iterator[_Folder]) -> list[Run]:
    """As many as one change takes; none at the end."""
    return [_run(name, folder) for folder in islice(folders, _BATCH)]


def _run(name: RepoName, folder: _Folder) -> Run:
    found = [records.read_at(name, place, data) for place, data in folder.items()]
    attempts = {(one.job, one.attempt): one for one in found if isinstance(one, AttemptRecord)}
    whole = [one for one in found if isinstance(one, RunRecord)]
    return Run(found[0].run, whole[0] if whole else None, attempts)
