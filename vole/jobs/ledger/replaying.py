"""The event log told again to a store in memory: each event as it was, and a lease as it was where none is decided.

Used on a scratch store alone: what it writes was decided before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from vole.base.errors import Fenced
from vole.base.ids import JobKey, RepoId, RepoName, RunNumber, SessionId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import moves
from vole.jobs.ledger.enqueue import label
from vole.jobs.model import HELD, Conclusion, EndCause, Happening, Held, Job, State, Told
from vole.store.database import Tx
from vole.wire.plan import job_digest

_DOCUMENT = "{}"  # what a job does decides nothing
_DIGEST = job_digest(_DOCUMENT.encode())


def tell(tx: Tx, index: QueueIndex, told: Told, repo: RepoId) -> None:
    """What happened to a job happens to it here; `repo` is its repository's id in this store.

    Raises Fenced, with nothing changed, where the job is not in the state in which that could happen.
    """
    if told.kind == Happening.ENQUEUED:
        _enqueue(tx, index, told, repo)
    elif told.kind == "set_aside":
        moves.set_aside(tx, index, told.job, str(told.detail.get("reason", "")))
    elif (job := _job(tx, told)) is not None:
        _move(tx, index, job, told)


def told_lease(tx: Tx, index: QueueIndex, told: Told, session: SessionId) -> None:
    """The lease that was given, without asking whether it would be given now."""
    job = _job(tx, told)
    if job is None:
        return
    fields: dict[str, object] = {"epoch": told.epoch, "deadline_at": told.at, "started_at": None}
    leased = moves.move(tx, index, job, Happening.LEASED, State.LEASED, fields=fields)
    tx.run(
        """
        INSERT INTO attempts (job_id, epoch, session_id, token, account, key_fingerprint, runner, runner_version, os,
          arch, leased_at)
        VALUES (:job, :epoch, :session, '', '', :key, :runner, '', '', '', :now)""",
        job=job.id,
        epoch=told.epoch,
        session=session,
        key=told.detail["key"],
        runner=told.detail["runner"],
        now=tx.now,
    )
    moves.take(tx, index, leased, Held(session, job.repo, RepoName(""), job.run, RunNumber(0), JobKey("")))


def _job(tx: Tx, told: Told) -> Job | None:
    """None for a job whose beginning is not part of what is told."""
    row = tx.one(rows.JOB, job=told.job)
    return None if row is None else rows.job(row)


def _enqueue(tx: Tx, index: QueueIndex, told: Told, repo: RepoId) -> None:
    tx.run(
        """
        INSERT OR IGNORE INTO runs (id, repo_id, number, push_id, push_ordinal, ref, commit_id, workflow, workflow_path,
          workflow_blob, event, actor, state, created_at)
        VALUES (:run, :repo, :run, :run, 0, '', '', '', '', '', '{}', '', 'queued', :now)""",
        run=told.run,
        repo=repo,
        now=tx.now,
    )
    queued = told.detail["to"] == State.QUEUED
    key = str(told.detail["key"])
    tx.run(
        """
        INSERT INTO jobs (id, run_id, repo_id, ordinal, job, key, name, digest, timeout_us, on_lost, continue_on_error,
          state, enqueued_at, queued_at)
        VALUES (:job, :run, :repo, 0, :key, :key, '', :digest, 0, 'rerun', 0, :state, :now, :queued)""",
        job=told.job,
        run=told.run,
        repo=repo,
        key=key,
        digest=_DIGEST,
        state=told.detail["to"],
        now=tx.now,
        queued=tx.now if queued else None,
    )
    tx.run("INSERT INTO job_documents (job_id, document) VALUES (:job, :text)", job=told.job, text=_DOCUMENT)
    names = _words(told.detail["labels"])
    labels = label(tx, told.job, repo, names)
    if queued:
        tx.after_commit(partial(index.add, (tx.now, told.job), labels, frozenset(names), repo))


def _words(value: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in value)


def _move(tx: Tx, index: QueueIndex, job: Job, told: Told) -> None:
    what, to = Happening(told.kind), State(told.detail["to"])
    if job.state in HELD and to not in HELD:
        moves.end_attempt(tx, job, EndCause(told.detail["cause"]))
    if to is State.QUEUED:
        moves.queue(tx, index, job, what)
        return
    moves.move(tx, index, job, what, to, fields=_fields(tx, to, told))


def _fields(tx: Tx, to: State, told: Told) -> dict[str, object]:
    if to is State.FINISHED:
        return {"conclusion": Conclusion(told.detail["conclusion"]), "finished_at": tx.now}
    if to is State.CANCELLING:
        return {"ending_as": Conclusion.TIMED_OUT if told.kind == Happening.TIMED_OUT else Conclusion.CANCELLED}
    return {"started_at": tx.now, "timeout_at": tx.now}


def end(tx: Tx, index: QueueIndex, told: Told) -> None:
    """A job that is held ends well: in a replay that asks what would have been. Raises Fenced for one that is not."""
    job = _job(tx, told)
    if job is None or job.state not in HELD:
        raise Fenced(f"job {told.job} is held by nobody")
    if job.state is State.LEASED:
        job = moves.move(tx, index, job, Happening.STARTED, State.RUNNING, fields=_fields(tx, State.RUNNING, told))
    moves.end_attempt(tx, job, EndCause.FINISHED)
    moves.conclude(tx, index, job, Happening.CONCLUDED, Conclusion.SUCCESS)
