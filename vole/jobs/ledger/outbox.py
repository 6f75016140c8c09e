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
SELECT :id, :repo, :run, job_id, epoch
FROM attempts
WHERE job_id = :job AND epoch = :epoch AND started_at IS NOT NULL"""
_RUN = "INSERT INTO record_outbox (id, repo_id, run_id) VALUES (:id, :repo, :run)"


def owe_attempt(tx: Tx, job: Job) -> None:
    """The newest attempt of `job` is over: it is owed a record if it ever ran."""
    if job.state is not State.LEASED:
        named = {"id": tx.ident(), "repo": job.repo, "run": job.run, "job": job.id, "epoch": job.epoch}
        tx.connection.execute(_ATTEMPT, named)


def owe_run(tx: Tx, repo: RepoId, run: RunId) -> None:
    """The run is finished."""
    tx.connection.execute(_RUN, {"id": tx.ident(), "repo": repo, "run": run})


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
