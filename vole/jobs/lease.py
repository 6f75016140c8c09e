"""Who holds a job, until when, at which epoch. Pure: no SQL, no clock; the caller passes now."""

from __future__ import annotations

from typing import NamedTuple

from vole.base import limits
from vole.base.clock import Moment, after, seconds
from vole.base.errors import Fenced
from vole.base.ids import Epoch, JobId, SessionId
from vole.base.limits import LeaseTimes
from vole.jobs.model import State


class JobLease(NamedTuple):
    """One attempt of a job while it is live."""

    job: JobId
    holder: SessionId
    epoch: Epoch
    state: State  # leased, running, cancelling
    deadline: Moment


def granted(job: JobId, holder: SessionId, last: Epoch, now: Moment, times: LeaseTimes) -> JobLease:
    """A new lease at the next epoch. It must be started within the start window: delivery is not assumed."""
    return JobLease(job, holder, Epoch(last + 1), State.LEASED, after(now, seconds(times.start_window_s)))


def check(lease: JobLease | None, job: JobId, holder: SessionId, epoch: Epoch) -> JobLease:
    """The lease, if it is live, at this epoch and this holder's. Raises Fenced otherwise."""
    if lease is None:
        raise Fenced(f"nobody holds job {job} at epoch {epoch}: its lease is over. Stop and ask for work.")
    if lease.epoch != epoch or lease.holder != holder:
        raise Fenced(f"job {job} is held at epoch {lease.epoch}, not by you at {epoch}. Stop and ask for work.")
    return lease


def started(lease: JobLease, now: Moment, times: LeaseTimes) -> JobLease:
    """The lease once its holder has said that it has the job: it counts as the first renewal.

    A start of what is running or cancelling already changes nothing: the word was lost and is said again.
    """
    if lease.state is not State.LEASED:
        return lease
    return lease._replace(state=State.RUNNING, deadline=after(now, seconds(times.ttl_s)))


def renewed(lease: JobLease, now: Moment, times: LeaseTimes) -> JobLease:
    """The lease with a later deadline; only a running one moves.

    One that was not started keeps its start window, one that is being cancelled its old deadline. A lease past its
    deadline that nobody took yet may be renewed: the sweep that takes it looks at the deadline again.
    """
    if lease.state is not State.RUNNING:
        return lease
    return lease._replace(deadline=max(lease.deadline, after(now, seconds(times.ttl_s))))


def refreshed(lease: JobLease, now: Moment, times: LeaseTimes) -> JobLease:
    """The lease after a restart of the server: one fresh span, since nobody could renew meanwhile.

    The old deadline may be of a clock that has jumped; it counts no more.
    """
    span = times.start_window_s if lease.state is State.LEASED else times.ttl_s
    return lease._replace(deadline=after(now, seconds(span)))


def after_loss(losses: int, on_lost: str) -> State:
    """Where a job goes whose runner was lost, `losses` counting this one."""
    if on_lost == "fail" or losses >= limits.ATTEMPTS_MAX:
        return State.FINISHED
    return State.QUEUED
