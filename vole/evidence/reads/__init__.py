"""What is known about logs, artifacts, marks, annotations and tests. Reads only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from vole.base.clock import Moment
from vole.base.ids import Epoch, JobId, RepoId, RunId
from vole.evidence import rows
from vole.store.database import Row, View
from vole.wire import codec
from vole.wire.records import ReportedTests
from vole.wire.runner import ArtifactFile, Mark


async def needed_files(view: View, job: JobId, name: str) -> tuple[ArtifactFile, ...]:
    """The files of an artifact that `job` may fetch: of the jobs it needs, in its own run or carried into it."""
    return tuple(rows.file(row) for row in await view.all(rows.NEEDED_FILES, job=job, name=name))


async def first_step_at(view: View, jobs: Sequence[JobId]) -> Moment | None:
    """When the first step of any of `jobs` began, by its runner's clock."""
    row = await view.one(
        "SELECT MIN(at) AS at FROM marks WHERE kind = 'begin' AND job_id IN (SELECT value FROM json_each(:jobs))",
        jobs=json.dumps(list(jobs)),
    )
    return None if row is None or row["at"] is None else Moment(row["at"])


# ---- Pages


@dataclass(frozen=True)
class StoredArtifact:
    """A file that an attempt left. `path` is data: no file of ours has that name."""

    job: JobId
    epoch: Epoch
    name: str
    path: str
    size: int
    sha256: str
    expires_at: Moment | None
    removed_at: Moment | None
    removed_why: str  # goes on after "removed"


@dataclass(frozen=True)
class Note:
    """An annotation."""

    job: JobId
    epoch: Epoch
    level: str
    message: str
    file: str
    line: int


@dataclass(frozen=True)
class Summary:
    job: JobId
    epoch: Epoch
    markdown: str


@dataclass(frozen=True)
class AttemptTests:
    """What the test reports of an attempt say."""

    job: JobId
    epoch: Epoch
    told: ReportedTests


@dataclass(frozen=True)
class Border:
    """Where a step of an attempt began, ended or was skipped, by its runner's clock."""

    job: JobId
    epoch: Epoch
    at: Moment
    step: int
    kind: str
    title: str


async def borders(view: View, jobs: Sequence[JobId], most: int) -> list[Border]:
    """At most `most` borders of every attempt of `jobs`, attempt by attempt."""
    found = await view.all(
        """
        SELECT job_id, epoch, at, step, kind, title
        FROM marks
        WHERE job_id IN (SELECT value FROM json_each(:jobs))
        ORDER BY job_id, epoch, ordinal
        LIMIT :most""",
        jobs=json.dumps(list(jobs)),
        most=most,
    )
    return [
        Border(JobId(row["job_id"]), Epoch(row["epoch"]), Moment(row["at"]), row["step"], row["kind"], row["title"])
        for row in found
    ]


async def marks(view: View, job: JobId, epoch: Epoch) -> tuple[Mark, ...]:
    """Where an attempt's steps begin and end in its log, in order."""
    found = await view.all(
        """
        SELECT log_offset, at, step, kind, title
        FROM marks
        WHERE job_id = :job AND epoch = :epoch
        ORDER BY log_offset, ordinal""",
        job=job,
        epoch=epoch,
    )
    return tuple(Mark(row["log_offset"], row["at"], row["step"], row["kind"], row["title"]) for row in found)


async def artifacts_of(view: View, run: RunId, most: int) -> list[StoredArtifact]:
    """The files that a run's attempts left, by job and name."""
    found = await view.all(
        """
        SELECT a.job_id, a.epoch, a.name, a.path, a.size, a.sha256, a.expires_at, a.removed_at, a.removed_why
        FROM artifacts a
        WHERE a.run_id = :run
        ORDER BY a.job_id, a.name, a.path
        LIMIT :most""",
        run=run,
        most=most,
    )
    return [_artifact(row) for row in found]


async def artifact(view: View, repo: RepoId, job: JobId, epoch: Epoch, sha256: str) -> StoredArtifact | None:
    """A file of an attempt by its digest."""
    row = await view.one(
        """
        SELECT job_id, epoch, name, path, size, sha256, expires_at, removed_at, removed_why
        FROM artifacts
        WHERE job_id = :job AND epoch = :epoch AND repo_id = :repo AND sha256 = :sha256
        LIMIT 1""",
        repo=repo,
        job=job,
        epoch=epoch,
        sha256=sha256,
    )
    return None if row is None else _artifact(row)


async def notes_of(view: View, run: RunId, most: int) -> list[Note]:
    """The annotations of a run's attempts, errors first."""
    found = await view.all(
        """
        SELECT job_id, epoch, level, message, file, line
        FROM annotations
        WHERE run_id = :run
        ORDER BY level = 'error' DESC, level = 'warning' DESC, job_id, epoch, ordinal
        LIMIT :most""",
        run=run,
        most=most,
    )
    return [
        Note(JobId(row["job_id"]), Epoch(row["epoch"]), row["level"], row["message"], row["file"], row["line"])
        for row in found
    ]


async def summaries_of(view: View, run: RunId, jobs: Sequence[JobId]) -> list[Summary]:
    """The summaries of a run, in the order of `jobs`."""
    found = await view.all(
        """
        SELECT s.job_id, s.epoch, s.markdown
        FROM jobs j
        JOIN summaries s ON s.job_id = j.id
        WHERE j.run_id = :run""",
        run=run,
    )
    order = {job: at for at, job in enumerate(jobs)}
    rows = [Summary(JobId(row["job_id"]), Epoch(row["epoch"]), row["markdown"]) for row in found]
    return sorted(rows, key=lambda one: (order.get(one.job, len(order)), one.epoch))


async def tests_of(view: View, run: RunId) -> list[AttemptTests]:
    """What the test reports of a run's attempts say, by job in the order of the file."""
    found = await view.all(
        """
        SELECT t.job_id, t.epoch, t.document
        FROM jobs j
        JOIN reports t ON t.job_id = j.id
        WHERE j.run_id = :run
        ORDER BY j.ordinal, t.epoch""",
        run=run,
    )
    return [
        AttemptTests(
            JobId(row["job_id"]), Epoch(row["epoch"]), codec.from_json(ReportedTests, codec.parse(row["document"]))
        )
        for row in found
    ]


def _artifact(row: Row) -> StoredArtifact:
    return StoredArtifact(
        JobId(row["job_id"]),
        Epoch(row["epoch"]),
        row["name"],
        row["path"],
        row["size"],
        row["sha256"],
        row["expires_at"],
        row["removed_at"],
        row["removed_why"],
    )
