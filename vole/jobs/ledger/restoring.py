"""What a restore does to a queue that nobody serves: nothing of it goes on, and no number is used twice."""

from __future__ import annotations

from collections.abc import Iterable

from vole.base import limits
from vole.base.errors import Invalid
from vole.base.ids import JobId, RepoId, RunNumber
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import moves
from vole.jobs.ledger.settle import settle
from vole.jobs.model import HELD, Conclusion, EndCause, Happening, Job
from vole.store.database import Tx

_THOUSAND = 1000
_REASON = "the server was restored from a backup that was made before this job ended"


def end_unfinished(tx: Tx, index: QueueIndex, left: Iterable[JobId]) -> int:
    """The jobs `left` end as `lost`, their leases with them; how many. One that cannot be read is set aside."""
    runs, ended = set(), 0
    for job in left:
        try:
            with tx.part():
                row = tx.one(rows.JOB, job=job)
                assert row is not None, "it was found in this change"
                runs.add(_end(tx, index, rows.job(row)).run)
            ended += 1
        except Invalid as error:
            moves.set_aside(tx, index, job, error.sentence)
    for run in sorted(runs):
        settle(tx, index, run)
    return ended


def pass_over(tx: Tx, repo: RepoId, used: RunNumber) -> RunNumber:
    """The number of the next run: the next full thousand beyond every number that is known to be used.

    A thousand that is nearer than RESTORE_NUMBERS_MIN is passed over too: what ran between the backup and its restore
    may have come so far.
    """
    tx.run("INSERT INTO run_numbers (repo_id, next) VALUES (:repo, 1) ON CONFLICT DO NOTHING", repo=repo)
    row = tx.one("SELECT next FROM run_numbers WHERE repo_id = :repo", repo=repo)
    assert row is not None, "it was put there"
    beyond = max(row["next"] - 1, used) + limits.RESTORE_NUMBERS_MIN
    following = -(-beyond // _THOUSAND) * _THOUSAND
    tx.run(
        "UPDATE run_numbers SET skipped = skipped + :following - next, next = :following WHERE repo_id = :repo",
        following=following,
        repo=repo,
    )
    return RunNumber(following)


def _end(tx: Tx, index: QueueIndex, job: Job) -> Job:
    cause = None
    if job.state in HELD:
        cause = EndCause.OPERATOR
        moves.end_attempt(tx, job, cause, _REASON)
    more = {} if cause is None else {"cause": cause}
    return moves.conclude(tx, index, job, Happening.RESTORED, Conclusion.LOST, reason=_REASON, **more)
