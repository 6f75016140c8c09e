"""Ending jobs by a person's word, or with their repository. Never moves a deadline later."""

from __future__ import annotations

from vole.base.errors import NotFound
from vole.base.ids import JobKey, RepoId, RunId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import moves, outbox
from vole.jobs.ledger.settle import settle
from vole.jobs.model import HELD, Conclusion, EndCause, Ended, Happening, Job, State, Touched
from vole.store.database import Tx


def cancel_run(tx: Tx, index: QueueIndex, run: RunId, reason: str) -> tuple[int, Touched]:
    """Cancel every job of the run that has not finished; how many."""
    return _cancel(tx, index, run, [rows.job(row) for row in tx.all(rows.JOBS_OF_RUN, run=run)], reason)


def cancel_job(tx: Tx, index: QueueIndex, run: RunId, key: JobKey, reason: str) -> tuple[int, Touched]:
    """Cancel one job of the run, if it has not finished; how many. Raises NotFound."""
    found = [rows.job(row) for row in tx.all(rows.JOBS_OF_RUN, run=run) if row["key"] == key]
    if not found:
        raise NotFound(f"the run has no job {key}")
    return _cancel(tx, index, run, found, reason)


def drop_repo(tx: Tx, index: QueueIndex, repo: RepoId) -> Touched:
    """The repository is removed: every job of it that has not finished ends now, and its labels are forgotten."""
    touched = Touched()
    runs: dict[RunId, None] = {}  # settled in the order of their jobs
    for row in tx.all(rows.JOBS_OF_REPO, repo=repo):
        job = rows.job(row)
        runs[job.run] = None
        touched |= Touched(ended=_forget(tx, index, job))
    for run in runs:
        touched |= settle(tx, index, run)
    outbox.forget_repo(tx, repo)
    tx.run("DELETE FROM run_labels WHERE repo_id = :repo", repo=repo)
    tx.run("DELETE FROM label_sets WHERE id NOT IN (SELECT label_set_id FROM run_labels)")
    return touched


def _cancel(tx: Tx, index: QueueIndex, run: RunId, jobs: list[Job], reason: str) -> tuple[int, Touched]:
    unfinished = [job for job in jobs if job.state not in (State.FINISHED, State.CANCELLING)]
    if not unfinished:
        return 0, Touched()
    ended: tuple[Ended, ...] = ()
    for job in unfinished:
        ended += moves.stop(tx, index, job, reason, "cancelled")
    return len(unfinished), Touched(ended=ended) | settle(tx, index, run)


def _forget(tx: Tx, index: QueueIndex, job: Job) -> tuple[Ended, ...]:
    reason, cause = "its repository was removed", EndCause.REPOSITORY_REMOVED
    ended: tuple[Ended, ...] = ()
    if job.state in HELD:
        ended = (Ended(moves.holder(tx, job), job.id, job.epoch, cause),)
        moves.end_attempt(tx, job, cause, reason)
    moves.conclude(tx, index, job, Happening.FORGOTTEN, Conclusion.CANCELLED, reason=reason, cause=cause)
    return ended
