"""Runs that are over, brought back from their records as they were.

Nothing of the queue comes back: no label, no lease, no pinned document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain

from vole.base.ids import Epoch, JobKey, RepoId, RunNumber
from vole.jobs import rows
from vole.store.database import Row, Tx
from vole.wire import codec
from vole.wire.plan import EventFacts
from vole.wire.records import AttemptRecord, EventRecord, JobRecord, LeaseRecord, RunRecord

Attempts = Mapping[tuple[JobKey, Epoch], AttemptRecord]

_NUMBERS = 100  # of a repository whose index was rebuilt, the next run begins a hundred
_RUN = """
INSERT INTO runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path, workflow_blob,
  event, actor, attempt, rerun_of, state, conclusion, reason, created_at, finished_at)
VALUES (:id, :repo, :number, :push, :ordinal, :ref, :commit, :workflow, :workflow_path, :workflow_blob,
  :event, :actor, :attempt, :rerun_of, 'finished', :conclusion, :reason, :created_at, :finished_at)"""
_JOB = """
INSERT INTO jobs (id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost, continue_on_error, state,
  conclusion, reason, marked, epoch, losses, enqueued_at, queued_at, started_at, finished_at, carried_of)
VALUES (:id, :run, :repo, :ordinal, :job, :key, :name, :digest, :timeout_us, :on_lost, :continue_on_error, 'finished',
  :conclusion, :reason, :marked, :epoch, :losses, :enqueued_at, :queued_at, :started_at, :finished_at, :carried_of)"""
_ATTEMPT = """
INSERT INTO attempts (job_id, epoch, session_id, token, account, key_fingerprint, runner, runner_version, os, arch,
  leased_at, started_at, ended_at, end_cause, end_detail, conclusion, log_bytes, log_declared, log_sha256, log_state,
  log_truncated, steps)
VALUES (:job, :epoch, 0, '', :account, :key, :name, :version, :os, :arch,
  :leased_at, :started_at, :ended_at, :cause, :detail, :conclusion, :log_bytes, :declared, :sha256, :state,
  :truncated, :steps)"""
_EVENT = """
INSERT INTO events (id, at, repo_id, run_id, job_id, epoch, kind, detail)
VALUES (:id, :at, :repo, :run, :job, :epoch, :kind, :detail)"""
_RAN = """
SELECT j.id
FROM runs r
JOIN jobs j ON j.run_id = r.id AND j.key = :key
WHERE r.repo_id = :repo AND r.number = :number"""


def restore_run(tx: Tx, repo: RepoId, run: RunRecord, attempts: Attempts) -> None:
    """A finished run with its jobs, those of its `attempts` that its record names, and its event log.

    The runs that it names, as a rerun does, come before it.
    """
    older = None if run.rerun_of is None else _run(tx, repo, run.rerun_of)
    push = int(run.id if run.start is None else run.start.id)
    values = {
        **vars(run),
        "id": int(run.id),
        "repo": repo,
        "number": run.run,
        "push": push,
        "ordinal": _ordinal(tx, push, run.attempt) if older is None else older["push_ordinal"],
        "event": codec.canonical(_event(run.event)).decode(),
        "rerun_of": None if older is None else older["id"],
    }
    tx.run(_RUN, **values)
    for ordinal, job in enumerate(run.jobs):
        _restore_job(tx, repo, run, ordinal, job)
        known = (found for epoch in job.epochs if (found := attempts.get((job.key, epoch))) is not None)
        tx.run_many(_ATTEMPT, chain((_ran(job, one) for one in known), (_never_ran(job, one) for one in job.leases)))
    ids = {job.key: int(job.id) for job in run.jobs}
    tx.run_many(
        _EVENT,
        (
            {**vars(told), "id": int(told.id), "repo": repo, "run": int(run.id)}
            | {"job": None if told.job is None else ids.get(told.job), "detail": json.dumps(told.detail)}
            for told in run.events
        ),
    )


def restore_numbers(tx: Tx, repo: RepoId, numbers: Iterable[RunNumber]) -> RunNumber:
    """The repository's next run number: a full hundred beyond all `numbers` that were ever seen."""
    following = RunNumber((max(numbers, default=0) // _NUMBERS + 1) * _NUMBERS)
    tx.run(
        """
        INSERT INTO run_numbers (repo_id, next, skipped)
        SELECT :repo, :next, :next - 1 - count(*)
        FROM runs
        WHERE repo_id = :repo""",
        repo=repo,
        next=following,
    )
    return following


def _run(tx: Tx, repo: RepoId, number: RunNumber) -> Row | None:
    return tx.one(
        "SELECT id, push_ordinal FROM runs WHERE repo_id = :repo AND number = :number", repo=repo, number=number
    )


def _ordinal(tx: Tx, push: int, attempt: int) -> int:
    """Only that no two runs of a push share it is known of it."""
    row = tx.one(
        "SELECT coalesce(max(push_ordinal) + 1, 0) AS free FROM runs WHERE push_id = :push AND attempt = :attempt",
        push=push,
        attempt=attempt,
    )
    return 0 if row is None else int(row["free"])


def _restore_job(tx: Tx, repo: RepoId, run: RunRecord, ordinal: int, job: JobRecord) -> None:
    ran = None if job.carried_from is None else tx.one(_RAN, repo=repo, number=job.carried_from, key=job.key)
    tx.run(
        _JOB,
        **{**vars(job), **vars(job.outcome), "id": int(job.id), "run": int(run.id), "repo": repo, "ordinal": ordinal},
        carried_of=None if ran is None else ran["id"],
    )
    tx.run(
        "INSERT INTO rebuilt_jobs (job_id, labels, timeout_from) VALUES (:job, :labels, :timeout_from)",
        job=int(job.id),
        labels=rows.label_text(job.labels),
        timeout_from=job.timeout_from,
    )
    tx.run_many(
        "INSERT INTO job_needs (job_id, needs) VALUES (:job, :need)",
        ({"job": int(job.id), "need": need} for need in job.needs),
    )


def _ran(job: JobRecord, known: AttemptRecord) -> dict[str, object]:
    """An attempt of which a result came has the conclusion that its runner declared; any other has none."""
    log, whole = known.log, known.log.state == "complete"
    result = whole or log.declared_bytes is not None or known.cause == "finished"
    return {
        **vars(known.runner),
        **vars(known),
        "job": int(job.id),
        "epoch": known.attempt,
        "conclusion": known.conclusion if result else None,
        "log_bytes": log.bytes,
        "declared": log.bytes if whole else log.declared_bytes,
        "sha256": log.sha256 if whole else log.declared_sha256,
        "state": log.state,
        "truncated": log.truncated,
        "steps": codec.canonical(known.steps).decode(),
    }


def _never_ran(job: JobRecord, known: LeaseRecord) -> dict[str, object]:
    nothing = dict.fromkeys(("started_at", "conclusion", "declared", "sha256"))
    empty = {"log_bytes": 0, "state": "incomplete", "truncated": False, "steps": "[]"}
    return {**vars(known.runner), **vars(known), **nothing, **empty, "job": int(job.id)}


def _event(known: EventRecord) -> EventFacts:
    return EventFacts(**{**vars(known), "inputs": dict(known.inputs)})
