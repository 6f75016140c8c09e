"""What is owed a record in git: noted in the change that ends it, forgotten once the record stands. Writes none."""

from __future__ import annotations

import json
from collections.abc import Iterable

from vole.base import limits
from vole.base.ids import RepoId, RunId
from vole.jobs.model import Job, State
from vole.store.database import Tx

_ATTEMPT = """
INSERT INTO record_outbox (id, repo_id, run_id, job_id, epoch)
SELECT ?, ?, ?, job_id, epoch
FROM attempts
WHERE job_id = ? AND epoch = ? AND started_at IS NOT NULL"""
_RUN = "INSERT INTO record_outbox (id, repo_id, run_id) VALUES (?, ?, ?)"


def owe_attempts(tx: Tx, jobs: Iterable[Job]) -> None:
    """The newest attempts of `jobs` are over: each is owed a record if it ever ran."""
    ran = [job for job in jobs if job.state is not State.LEASED]
    tx.connection.executemany(_ATTEMPT, [(tx.ident(), job.repo, job.run, job.id, job.epoch) for job in ran])


def owe_runs(tx: Tx, runs: Iterable[tuple[RepoId, RunId]]) -> None:
    """The runs are finished."""
    tx.connection.executemany(_RUN, [(tx.ident(), repo, run) for repo, run in runs])


def mark_recorded(tx: Tx, rows: Iterable[int]) -> None:
    """Their records stand in git."""
    tx.run("DELETE FROM record_outbox WHERE id IN (SELECT value FROM json_each(:rows))", rows=json.dumps(list(rows)))


def set_record_aside(tx: Tx, row: int, reason: str) -> None:
    """No record can be made of this row. It is named on /status, and stops no other."""
    reason = reason[: limits.PROBLEM_CHARS_MAX]
    tx.run("UPDATE record_outbox SET set_aside = :reason WHERE id = :row", reason=reason, row=row)


def repos_owing(tx: Tx) -> frozenset[RepoId]:
    """The repositories whose evidence is still to be written down."""
    return frozenset(RepoId(row["repo_id"]) for row in tx.all("SELECT DISTINCT repo_id FROM record_outbox"))


def forget_repo(tx: Tx, repo: RepoId) -> None:
    """The repository is removed, and with it whatever its records would stand in."""
    tx.run("DELETE FROM record_outbox WHERE repo_id = :repo", repo=repo)
