"""The life of a lease after its grant: the start, the renewal, the way back to the queue. Never decides a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from vole.base import limits
from vole.base.clock import after, seconds
from vole.base.errors import Fenced, Invalid
from vole.base.ids import Epoch, JobId, SessionId
from vole.base.limits import LeaseTimes
from vole.jobs import lease, rows
from vole.jobs.index import QueueIndex
from vole.jobs.lease import JobLease
from vole.jobs.ledger import moves
from vole.jobs.ledger.settle import plan_of, settle
from vole.jobs.model import RESTING, Conclusion, EndCause, Ended, Happening, Job, Policy, State, Touched, times_of
from vole.store.database import Tx
from vole.wire import runner


@dataclass(frozen=True)
class Renewals:
    """What became of the leases in one renewal."""

    alive: tuple[runner.LeaseRef, ...]
    fenced: tuple[runner.LeaseRef, ...]
    cancelling: tuple[Ended, ...]  # alive too, and to be told so again


def start(tx: Tx, index: QueueIndex, job: JobId, session: SessionId, epoch: Epoch, policy: Policy) -> Touched:
    """The holder has the job; it counts as the first renewal. Said twice is said once. Raises Fenced."""
    row, held = hold(tx, job, session, epoch)
    begun = lease.started(held, tx.now, times_of(policy))
    if begun == held:
        return Touched()
    _start_all(tx, index, [(row, begun)])
    return Touched(runs=frozenset((row.run,)))


def renew_many(tx: Tx, session: SessionId, renewals: Sequence[runner.Renewal], times: LeaseTimes) -> Renewals:
    """Move the deadlines of this holder's leases, each by itself. Writes no event: no state changes."""
    alive, fenced, cancelling = [], [], []
    for renewal in renewals:
        ref = runner.LeaseRef(renewal.job, renewal.epoch)
        try:
            job, held = hold(tx, renewal.job, session, renewal.epoch)
        except Fenced:
            fenced.append(ref)
            continue
        alive.append(ref)
        if job.state is State.CANCELLING:
            cancelling.append(_told(job, session))
        _renew(tx, held, lease.renewed(held, tx.now, times), renewal)
        _step(tx, job, renewal.step, times)
    return Renewals(tuple(alive), tuple(fenced), tuple(cancelling))


def cancelling(tx: Tx, session: SessionId) -> tuple[Ended, ...]:
    """The leases of a process that came back which are being cancelled: it may not have heard."""
    held = [rows.job(row) for row in tx.all(rows.HELD_BY_SESSION, session=session)]
    return tuple(_told(job, session) for job in held if job.state is State.CANCELLING)


def _told(job: Job, session: SessionId) -> Ended:
    return Ended(session, job.id, job.epoch, job.ending_as or Conclusion.CANCELLED)


def hand_back(tx: Tx, index: QueueIndex, job: JobId, session: SessionId, epoch: Epoch, why: str) -> Touched:
    """The holder gives the lease back.

    Before its start nothing was lost. After it, somebody's job may have half run: the attempt counts as a lost one.
    Of a job that is being cancelled it is the acknowledgement. Raises Fenced.
    """
    row, _ = hold(tx, job, session, epoch)
    return give_up(tx, index, row, EndCause.HANDED_BACK, why)


def disconnect(tx: Tx, index: QueueIndex, session: SessionId, cause: str) -> Touched:
    """The connection is proven gone: what it was given and did not start goes back at once. The rest has its TTL."""
    touched = Touched()
    for row in tx.all(rows.HELD_BY_SESSION, session=session):
        job = rows.job(row)
        if job.state is State.LEASED:
            touched |= give_up(tx, index, job, EndCause.DISCONNECTED, f"not started: {cause}")
    return touched


def end_session(tx: Tx, index: QueueIndex, session: SessionId, cause: EndCause, why: str) -> Touched:
    """Every lease of a runner process ends now: its key was removed."""
    touched = Touched()
    for row in tx.all(rows.HELD_BY_SESSION, session=session):
        touched |= give_up(tx, index, rows.job(row), cause, why)
    return touched


def give_up(tx: Tx, index: QueueIndex, job: Job, cause: EndCause, why: str) -> Touched:
    """The live lease of `job` ends without a result.

    Not started: back to the queue, nothing lost. Running: lost, to the queue or the end. Cancelling: it is over.
    """
    moves.end_attempt(tx, job, cause, why)
    if cause in RESTING:
        tx.after_commit(partial(index.rest, after(tx.now, seconds(limits.HANDBACK_REST_S))))
    if job.state is State.LEASED:
        moves.queue(tx, index, job, Happening.RETURNED, cause=cause, why=why)
    elif job.state is State.CANCELLING:
        moves.end_cancelling(tx, index, job, cause)
    else:
        _lose(tx, index, job, cause, why)
    return Touched(runs=frozenset((job.run,)), leasable=True) | settle(tx, index, job.run)


def hold(tx: Tx, job: JobId, session: SessionId, epoch: Epoch) -> tuple[Job, JobLease]:
    """The job and its live lease, when it is this holder's at this epoch. Raises Fenced otherwise."""
    row = tx.one(rows.HELD_JOB, job=job)
    live = lease.check(None if row is None else rows.lease(row), job, session, epoch)
    assert row is not None, "a lease was found in it"
    return rows.job(row), live


def _lose(tx: Tx, index: QueueIndex, job: Job, cause: EndCause, why: str) -> None:
    losses = job.losses + 1
    if lease.after_loss(losses, job.on_lost) is State.QUEUED:
        moves.queue(tx, index, job, Happening.LOST, fields={"losses": losses}, cause=cause, losses=losses, why=why)
        return
    told = "its runner was lost, and the job says on-lost: fail"
    if job.on_lost != "fail":
        told = f"lost its runner {losses} times, at most {limits.ATTEMPTS_MAX} (ATTEMPTS_MAX)"
    fields: dict[str, object] = {
        "losses": losses, "conclusion": Conclusion.LOST, "finished_at": tx.now, "reason": f"{told}: {why}"
    }  # fmt: skip
    detail = {"cause": cause, "losses": losses, "conclusion": Conclusion.LOST, "reason": fields["reason"]}
    moves.move(tx, index, job, Happening.LOST, State.FINISHED, fields=fields, **detail)


def _start_all(tx: Tx, index: QueueIndex, begun: Sequence[tuple[Job, JobLease]]) -> list[Job]:
    started = [
        moves.Move(
            job, Happening.STARTED, State.RUNNING,
            {"started_at": tx.now, "deadline_at": live.deadline, "timeout_at": tx.now + job.timeout_us},
        )
        for job, live in begun
    ]  # fmt: skip
    running = moves.move_all(tx, index, started)
    tx.connection.executemany(
        "UPDATE attempts SET started_at = ?, renewed_at = ? WHERE job_id = ? AND epoch = ?",
        [(tx.now, tx.now, job.id, job.epoch) for job in running],
    )
    return running


def _renew(tx: Tx, held: JobLease, new: JobLease, renewal: runner.Renewal) -> None:
    if new.deadline != held.deadline:
        changed = tx.run(
            "UPDATE jobs SET deadline_at = :deadline WHERE id = :job AND state = 'running' AND epoch = :epoch",
            deadline=new.deadline,
            job=held.job,
            epoch=held.epoch,
        )
        assert changed == 1, "the lease was read in this change"
    tx.run(
        """
        UPDATE attempts
        SET renewed_at = :now, log_bytes = MAX(log_bytes, :bytes)
        WHERE job_id = :job AND epoch = :epoch AND ended_at IS NULL""",
        now=tx.now,
        bytes=renewal.log_bytes,
        job=held.job,
        epoch=held.epoch,
    )


def _step(tx: Tx, job: Job, step: int, times: LeaseTimes) -> None:
    """Keep the limit of the step that the job is at, from when it was first heard of.

    The runner keeps it too, and sooner: the server leaves it a TTL and the time of a kill beyond it.
    """
    at = "UPDATE attempts SET step = :step WHERE job_id = :job AND epoch = :epoch AND step <> :step"
    if job.state is not State.RUNNING or not tx.run(at, step=step, job=job.id, epoch=job.epoch):
        return
    try:
        plan = plan_of(tx, job.id)
    except Invalid:
        return  # set aside where the row is worked on; a renewal says nothing of it
    limit_s = next((one.timeout_s for one in plan.steps if one.number == step), None)
    tx.run(
        "UPDATE jobs SET step_timeout_at = :at WHERE id = :job AND state = 'running' AND epoch = :epoch",
        at=None if limit_s is None else tx.now + seconds(limit_s + times.ttl_s + limits.STEP_KILL_S),
        job=job.id,
        epoch=job.epoch,
    )


def start_unsaid(tx: Tx, index: QueueIndex, held: Sequence[tuple[Job, JobLease]], times: LeaseTimes) -> list[Job]:
    """The jobs, running: their results came, so their holders have started them, whatever became of their words."""
    silent = [(job, lease.started(live, tx.now, times)) for job, live in held if job.state is State.LEASED]
    begun = {job.id: job for job in _start_all(tx, index, silent)} if silent else {}
    return [begun.get(job.id, job) for job, _ in held]
