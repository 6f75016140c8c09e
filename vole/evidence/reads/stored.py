"""What the tables say lies on the disk, and what of it may go. Attempts belong to another room: reads only."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vole.base.clock import Moment
from vole.base.ids import Epoch, JobId, JobKey, RepoId, RepoName, RunId, RunNumber
from vole.evidence.model import LogKey
from vole.store.database import Row, View

# Logs of attempts that are over, written down (nothing is owed of them) and not removed yet.
_LOGS = """
SELECT a.job_id, a.epoch, a.ended_at, a.log_state, a.log_sha256, a.log_declared, j.repo_id, p.name, r.number, j.key
FROM attempts a
JOIN jobs j ON j.id = a.job_id
JOIN runs r ON r.id = j.run_id
JOIN repos p ON p.id = j.repo_id
LEFT JOIN removed_logs g ON g.job_id = a.job_id AND g.epoch = a.epoch
LEFT JOIN record_outbox b ON b.job_id = a.job_id AND b.epoch = a.epoch
WHERE a.started_at IS NOT NULL AND a.ended_at IS NOT NULL AND g.job_id IS NULL AND b.id IS NULL"""


@dataclass(frozen=True)
class StoredLog:
    """An attempt's log that grows no more. `sha256` is None where it is not whole, `bytes` what its runner declared."""

    job: JobId
    epoch: Epoch
    key: LogKey
    sha256: str | None
    bytes: int


@dataclass(frozen=True)
class RemovedLog:
    at: Moment
    bytes: int
    why: str  # goes on after "removed"


async def whole_logs(view: View) -> list[StoredLog]:
    """Every log that was declared whole, has bytes, and was not removed; also those that are owed a record."""
    found = await view.all(
        """
        SELECT a.job_id, a.epoch, a.log_state, a.log_sha256, a.log_declared, p.name, r.number, j.key
        FROM attempts a
        JOIN jobs j ON j.id = a.job_id
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        LEFT JOIN removed_logs g ON g.job_id = a.job_id AND g.epoch = a.epoch
        WHERE a.log_state = 'complete' AND a.log_declared > 0 AND g.job_id IS NULL"""
    )
    return [_log(row) for row in found]


async def stored_artifacts(view: View) -> list[tuple[RepoId, str]]:
    """The files of artifacts, by repository and SHA-256."""
    found = await view.all(
        "SELECT DISTINCT repo_id, sha256 FROM artifacts WHERE removed_at IS NULL AND repo_id IN (SELECT id FROM repos)"
    )
    return [(RepoId(row["repo_id"]), row["sha256"]) for row in found]


@dataclass(frozen=True)
class Freed:
    """Files that were removed, and their bytes."""

    files: int = 0
    bytes: int = 0


async def freed(view: View) -> defaultdict[RepoId, Freed]:
    """What was removed of each repository, of runs that still have rows."""
    found = await view.all(
        """
        SELECT repo_id, count(*) AS files, sum(bytes) AS bytes
        FROM (
          SELECT j.repo_id, g.bytes FROM removed_logs g JOIN jobs j ON j.id = g.job_id
          UNION ALL
          SELECT repo_id, size FROM artifacts WHERE removed_at IS NOT NULL
        )
        GROUP BY repo_id"""
    )
    return defaultdict(Freed, {RepoId(row["repo_id"]): Freed(row["files"], row["bytes"]) for row in found})


async def old_logs(view: View, before: Moment, most: int) -> list[StoredLog]:
    """The logs of attempts that ended before that, oldest first."""
    sql = f"{_LOGS} AND a.ended_at < :before ORDER BY a.ended_at LIMIT :most"
    return [_log(row) for row in await view.all(sql, before=before, most=most)]


async def oldest_logs(view: View, repo: RepoId, most: int) -> list[StoredLog]:
    """The logs of a repository, oldest first."""
    sql = f"{_LOGS} AND j.repo_id = :repo ORDER BY a.ended_at LIMIT :most"
    return [_log(row) for row in await view.all(sql, repo=repo, most=most)]


async def logs_of(view: View, run: RunId, job: JobKey | None) -> list[StoredLog]:
    """The logs of a run, or of one job of it."""
    sql = f"{_LOGS} AND j.run_id = :run AND coalesce(:job, j.key) = j.key ORDER BY a.job_id, a.epoch"
    return [_log(row) for row in await view.all(sql, run=run, job=job)]


async def removed_logs(view: View, jobs: Sequence[JobId]) -> dict[tuple[JobId, Epoch], RemovedLog]:
    """Which logs of these jobs were removed, and why."""
    found = await view.all(
        """
        SELECT job_id, epoch, removed_at, bytes, why
        FROM removed_logs
        WHERE job_id IN (SELECT value FROM json_each(:jobs))""",
        jobs=json.dumps(list(jobs)),
    )
    return {
        (JobId(row["job_id"]), Epoch(row["epoch"])): RemovedLog(Moment(row["removed_at"]), row["bytes"], row["why"])
        for row in found
    }


def _log(row: Row) -> StoredLog:
    key = LogKey(RepoName(row["name"]), RunNumber(row["number"]), JobKey(row["key"]), Epoch(row["epoch"]))
    whole = row["log_state"] == "complete"
    return StoredLog(
        JobId(row["job_id"]), Epoch(row["epoch"]), key, row["log_sha256"] if whole else None, row["log_declared"] or 0
    )
