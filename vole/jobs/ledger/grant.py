"""The grant: whoever asks gets the least busy repository's oldest job that the rule allows, in one change for all.

The index says where to look, the row decides. Nothing else moves a job to `leased`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from vole.base import limits
from vole.base.clock import Moment, seconds
from vole.base.errors import Invalid
from vole.base.ids import Epoch, JobId, RepoId, SessionId
from vole.base.limits import LeaseTimes
from vole.jobs import lease, rows
from vole.jobs.index import Avoid, Candidate, Draft, QueueIndex
from vole.jobs.lease import JobLease
from vole.jobs.ledger import moves
from vole.jobs.ledger.settle import RunNow, results_of_needs, set_states
from vole.jobs.match import Ask, Counted, Demand, Why, reason
from vole.jobs.model import Happening, Held, Job, Policy, State, Touched, times_of
from vole.store.database import Row, Tx
from vole.wire import runner
from vole.wire.plan import JobContext, NeedResult, job_digest

Nothing = Literal["nothing_queued", "nothing_for_you"]
_Shape = tuple[frozenset[str], bool, frozenset[RepoId]]


@dataclass(frozen=True)
class Round:
    """What one look gave: an answer for each ask, in order, and what the change moved."""

    answers: tuple[runner.Job | Nothing, ...]
    touched: Touched


def lease_many(tx: Tx, index: QueueIndex, asks: Sequence[Ask], policy: Policy) -> Round:
    """Serve every ask in one change: least busy repository first, then oldest.

    A token whose lease lives gets that lease again. A request that is gone gets nothing.
    """
    with index.drafting() as draft:
        look = _Look(tx, index, draft, policy, times_of(policy))
        answers = tuple(_serve(look, ask) for ask in asks)
        _write(look)
    return Round(answers, Touched(runs=frozenset(grant.job.run for grant in look.grants)))


@dataclass(frozen=True)
class _Grant:
    """A lease that this change gives."""

    job: Job
    lease: JobLease
    ask: Ask
    held: Held
    run_state: str


@dataclass
class _Look:
    """One change that serves many."""

    tx: Tx
    index: QueueIndex
    draft: Draft
    policy: Policy
    times: LeaseTimes
    grants: list[_Grant] = field(default_factory=list)  # written together, when all have been served
    there: Counter[RepoId] = field(default_factory=Counter)  # of them by repository
    live: dict[SessionId, list[tuple[str, JobId, Epoch]]] = field(default_factory=dict)  # by who holds: token, job
    empty: set[_Shape] = field(default_factory=set)  # asks alike that found nothing: what is left only shrinks
    granted: dict[tuple[str, RepoId], bool] = field(default_factory=dict)  # as the rows say in this change


def _serve(look: _Look, ask: Ask) -> runner.Job | Nothing:
    if not ask.live():
        return "nothing_for_you"
    if ask.first_look and (again := _again(look, ask)) is not None:
        return again
    return _find(look, ask) or ("nothing_for_you" if look.index.queued else "nothing_queued")


def _again(look: _Look, ask: Ask) -> runner.Job | None:
    """The lease that this token has already."""
    for token, job, epoch in _live_here(look, ask):
        if token == ask.token:
            row = look.tx.connection.execute(rows.LEASABLE, (job,)).fetchone()
            assert row is not None, "its attempt refers to it"
            return _offer(look, row, ask, epoch)
    return None


def _live_here(look: _Look, ask: Ask) -> list[tuple[str, JobId, Epoch]]:
    """The leases of the process that asks, with their tokens: what the rows say and what this change gave."""
    session = ask.holder.session
    live = look.live.get(session)
    if live is None:
        look.live[session] = live = look.tx.connection.execute(rows.LIVE_HERE, (session,)).fetchall()
    return live


def _find(look: _Look, ask: Ask) -> runner.Job | None:
    shape = (ask.labels, ask.only, ask.serves)
    if shape in look.empty:
        return None
    avoid = Avoid()
    while (candidate := look.draft.pick(ask, avoid, look.policy.cap)) is not None:
        row = look.tx.connection.execute(rows.LEASABLE, (candidate.job,)).fetchone()
        job = None if row is None else _readable(look, candidate, row)
        if row is None or job is None:
            look.draft.pass_over(candidate)
            continue
        why = _refusal(look, row, candidate, ask)
        if why is None:
            look.draft.take(candidate)
            return _grant(look, job, row, ask)
        if why in (Why.NOT_QUEUED, Why.WAITS_FOR, Why.CONCURRENCY_GROUP, Why.SET_ASIDE):
            look.draft.pass_over(candidate)
        elif why in (Why.NOT_GRANTED, Why.FILTERED_OUT, Why.REPO_AT_CAP):
            avoid.repos.add(candidate.repo)
        elif why is Why.RESTING:
            avoid.jobs.add(candidate.job)
        else:  # of the runner: no other job would do
            return None
    if not (avoid.repos or avoid.jobs):
        look.empty.add(shape)
    return None


def _readable(look: _Look, candidate: Candidate, row: Row) -> Job | None:
    """None for a damaged row, which is set aside and stops no other."""
    try:
        job = rows.job(row)
        if job_digest(row["document"].encode()) != row["digest"]:
            raise Invalid("its document is not the one that was pinned")
    except Invalid as error:
        moves.set_aside(look.tx, look.index, candidate.job, error.sentence)
        return None
    return job


def _refusal(look: _Look, row: Row, candidate: Candidate, ask: Ask) -> Why | None:
    demand = Demand(
        labels=look.index.labels_of(candidate.labels),
        repo=candidate.repo,
        repo_name=row["repo_name"],
        state=State(row["state"]),
        set_aside=row["set_aside"],
    )
    why = reason(demand, ask, _count(look, row, ask))
    return None if why is None else why.code


def _count(look: _Look, row: Row, ask: Ask) -> Counted:
    tx, cap = look.tx, look.policy.cap
    key = ask.holder.key_fingerprint, row["repo_id"]
    granted = look.granted.get(key)
    if granted is None:
        look.granted[key] = granted = tx.one(rows.GRANTED, fingerprint=key[0], repo=key[1]) is not None
    running = 0
    if cap is not None:
        counted = tx.one(rows.RUNNING_IN_REPO, repo=row["repo_id"])
        running = 0 if counted is None else counted["count"]
    rest = None
    if row["epoch"] > 0 and tx.one(rows.RESTING, **_resting(row["id"], ask, tx.now)) is not None:
        rest = limits.HANDBACK_REST_S
    return Counted(granted, len(_live_here(look, ask)), running + look.there[row["repo_id"]], cap, rest)


def _resting(job: JobId, ask: Ask, now: Moment) -> dict[str, object]:
    """The values of rows.RESTING: did this runner give this job back just now?"""
    since = now - seconds(limits.HANDBACK_REST_S)
    return {"job": job, "fingerprint": ask.holder.key_fingerprint, "runner": ask.holder.name, "since": since}


def _grant(look: _Look, job: Job, row: Row, ask: Ask) -> runner.Job:
    holder = ask.holder
    new = lease.granted(job.id, holder.session, job.epoch, look.tx.now, look.times)
    held = Held(holder.session, job.repo, row["repo_name"], job.run, row["number"], job.key)
    look.grants.append(_Grant(job, new, ask, held, row["run_state"]))
    _live_here(look, ask).append((ask.token, job.id, new.epoch))
    look.there[job.repo] += 1
    return _offer(look, row, ask, new.epoch)


def _write(look: _Look) -> None:
    """Everything that was granted, a statement for all of a kind."""
    tx, grants = look.tx, look.grants
    if not grants:
        return
    moves.move_all(tx, look.index, [_leased(one, look.policy) for one in grants])
    tx.connection.executemany(
        """
        INSERT INTO attempts (job_id, epoch, session_id, token, account, key_fingerprint, runner, runner_version,
          os, arch, leased_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [(one.job.id, one.lease.epoch, *_named(one.ask), tx.now) for one in grants],
    )
    running = {one.job.run: RunNow(one.job.run, one.job.repo, one.run_state, "running") for one in grants}
    set_states(tx, tuple(running.values()))
    tx.after_commit(partial(_take, look.index, grants))


def _leased(one: _Grant, policy: Policy) -> moves.Move:
    holder = one.ask.holder
    fields: dict[str, object] = {"epoch": one.lease.epoch, "deadline_at": one.lease.deadline, "started_at": None}
    detail = {"session": holder.session, "runner": holder.name, "key": holder.key_fingerprint}
    detail |= {"cap": policy.cap, "serves": one.ask.serves_as}  # what else decided: the queue can be replayed
    return moves.Move(one.job, Happening.LEASED, State.LEASED, fields, detail)


def _take(index: QueueIndex, grants: Sequence[_Grant]) -> None:
    for one in grants:
        index.take(one.job.id, one.lease.epoch, one.held)


def _named(ask: Ask) -> tuple[object, ...]:
    """The runner as its attempt names it: the result, the log and the record say which key and process made them."""
    holder = ask.holder
    who = (holder.session, ask.token, holder.account, holder.key_fingerprint)
    return (*who, holder.name, holder.version, holder.os, holder.arch)


def _offer(look: _Look, row: Row, ask: Ask, epoch: Epoch) -> runner.Job:
    needs: dict[str, NeedResult] = {}
    if row["has_needs"]:
        needs = results_of_needs(look.tx, row["id"], row["run_id"])
    return runner.Job(
        slot=ask.slot,
        token=ask.token,
        lease=runner.Lease(row["id"], epoch, look.policy.ttl_s),
        address=f"{row['repo_name']}/{row['number']}/{row['key']}",
        key=row["key"],
        plan=row["document"],
        digest=row["digest"],
        context=JobContext(str(row["run_id"]), row["number"], row["attempt"], look.policy.url, needs),
    )
