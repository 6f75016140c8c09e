"""What time does to jobs: start windows, expiry, timeouts, the queue's own timeout, and what a restart gives back.

Each row is worked on by itself; one that cannot be read is set aside and stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from vole.base import limits
from vole.base.clock import Moment, Span, after, seconds
from vole.base.entropy import least_ident
from vole.base.errors import Invalid
from vole.base.ids import Epoch, JobId
from vole.jobs import lease, rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import groups, moves
from vole.jobs.ledger.leases import give_up
from vole.jobs.ledger.settle import settle, settle_others
from vole.jobs.model import Conclusion, EndCause, Ended, Happening, Job, Policy, State, Touched, times_of
from vole.store.database import Row, Tx

_CAUSES = {State.LEASED: EndCause.NOT_STARTED, State.RUNNING: EndCause.EXPIRED}


@dataclass(frozen=True)
class Swept:
    """What one pass moved, and when it was: the next one measures its gap from there."""

    touched: Touched
    at: Moment


def sweep(tx: Tx, index: QueueIndex, policy: Policy, last: Moment | None, explained: Mapping[JobId, str]) -> Swept:
    """One pass over everything that is due.

    `last` is when the last pass was: after a gap of more than LEASE_GAP_S nobody could renew, so every live deadline
    first moves by the gap. `explained` says of the queued jobs that may be overdue why they wait.
    """
    if last is not None and tx.now - last > seconds(limits.LEASE_GAP_S):
        _shift(tx, tx.now - last)
    touched = Touched()
    for job in _ids(tx, rows.DUE, now=tx.now):
        touched |= _apart(tx, index, job, _expire)
    for job in _ids(tx, rows.OVERTIME, now=tx.now):
        touched |= _apart(tx, index, job, _time_out)
    if policy.queue_timeout_s:
        for job in _ids(tx, rows.OVERDUE, since=tx.now - seconds(policy.queue_timeout_s)):
            touched |= _apart(tx, index, job, partial(_give_up_waiting, explained.get(job, "")))
    for run in groups.runs_of_set_aside(tx):
        touched |= settle_others(tx, index, groups.leave(tx, run))
    return Swept(touched, tx.now)


def restart(tx: Tx, index: QueueIndex, policy: Policy) -> None:
    """The server begins: every live lease gets one fresh span, and the index is made from the rows.

    The time that a job and its step have left is what it was when their runner was last heard of: neither the time
    without a server nor another clock counts against them, and the runner keeps the limits meanwhile.
    """
    times = times_of(policy)
    for row in tx.all(
        f"SELECT j.id, a.session_id, j.epoch, j.state, j.deadline_at, j.timeout_at, j.step_timeout_at, j.timeout_us, "
        f"a.renewed_at FROM jobs j "
        f"JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL WHERE j.{rows.HELD}"
    ):
        held = rows.lease(row)
        assert held is not None, "the join found its attempt"
        tx.run(
            """
            UPDATE jobs
            SET deadline_at = :deadline, timeout_at = :timeout, step_timeout_at = :step
            WHERE id = :job AND epoch = :epoch AND state = :state""",
            deadline=lease.refreshed(held, tx.now, times).deadline,
            timeout=_left(tx, row, "timeout_at"),
            step=_left(tx, row, "step_timeout_at"),
            job=held.job,
            epoch=held.epoch,
            state=held.state,
        )
    rebuild_index(tx, index)


def _left(tx: Tx, row: Row, column: str) -> int | None:
    if row[column] is None:
        return None
    left: int = row[column] - row["renewed_at"]
    return tx.now + min(max(left, 0), int(row["timeout_us"]))


def rebuild_index(tx: Tx, index: QueueIndex) -> None:
    """Fill the index from the rows as they are, once this change is durable."""
    sets = {row["id"]: rows.labels(row["labels"]) for row in tx.all(rows.LABEL_SETS)}
    cursor = tx.connection.cursor()
    cursor.row_factory = None  # a million rows: plain tuples
    queued = cursor.execute(rows.QUEUED).fetchall()
    held = [(JobId(row["job_id"]), Epoch(row["epoch"]), rows.held(row)) for row in tx.all(rows.HELD_LEASES)]
    rest = seconds(limits.HANDBACK_REST_S)
    back = tx.all(rows.GIVEN_BACK, first=least_ident(after(tx.now, Span(-rest))))
    rests = [after(Moment(row["at"]), rest) for row in back]
    tx.after_commit(lambda: index.load(sets, queued, held, rests))


def _ids(tx: Tx, sql: str, **values: int) -> list[JobId]:
    return [JobId(row["id"]) for row in tx.all(sql, most=limits.SWEEP_ROWS_MAX, **values)]


def _apart(tx: Tx, index: QueueIndex, job: JobId, step: Callable[[Tx, QueueIndex, Job], Touched]) -> Touched:
    try:
        with tx.part():
            row = tx.one(rows.JOB, job=job)
            assert row is not None, "it was found in this change"
            return step(tx, index, rows.job(row))
    except Invalid as error:
        moves.set_aside(tx, index, job, error.sentence)
        return Touched()


def _shift(tx: Tx, gap: int) -> None:
    tx.run(f"UPDATE jobs SET deadline_at = deadline_at + :gap WHERE {rows.HELD}", gap=gap)


def _expire(tx: Tx, index: QueueIndex, job: Job) -> Touched:
    if job.deadline_at is None or job.deadline_at > tx.now:  # moved in this change
        return Touched()
    cause = _CAUSES.get(job.state)
    if cause is None:
        cause = EndCause.TIMED_OUT if job.ending_as is Conclusion.TIMED_OUT else EndCause.CANCELLED
    fenced = Ended(moves.holder(tx, job), job.id, job.epoch, "fenced")
    return Touched(ended=(fenced,)) | give_up(tx, index, job, cause, "its runner was not heard of in time")


def _time_out(tx: Tx, index: QueueIndex, job: Job) -> Touched:
    if job.state is not State.RUNNING:
        return Touched()
    row = tx.one(rows.STEP_OVERTIME, job=job.id, now=tx.now)
    whole = f"ran longer than its {job.timeout_us // 60_000_000} minutes"
    reason = whole if row is None else f"step {row['step']} ran longer than its limit, and its runner did not end it"
    fields = {"ending_as": Conclusion.TIMED_OUT, "reason": reason}
    moves.move(tx, index, job, Happening.TIMED_OUT, State.CANCELLING, fields=fields, reason=reason)
    told = Ended(moves.holder(tx, job), job.id, job.epoch, "timed_out")
    return Touched(frozenset((job.run,)), (told,))


def _give_up_waiting(told: str, tx: Tx, index: QueueIndex, job: Job) -> Touched:
    if job.state is not State.QUEUED:  # the rest of its matrix ended with the one before
        return Touched()
    reason = "waited longer than queue_timeout" + (f"; {told}" if told else "")
    reason = reason[: limits.PROBLEM_CHARS_MAX]
    moves.conclude(tx, index, job, Happening.EXPIRED, Conclusion.EXPIRED, reason=reason)
    return settle(tx, index, job.run)
