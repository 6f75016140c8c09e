"""The grant: whoever asks gets the least busy repository's oldest job that the rule allows, in one change for all.

The index says where to look, the row decides. Nothing else moves a job to `leased`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vole.base import limits
from vole.base.clock import Moment, seconds
from vole.base.errors import Invalid
from vole.base.ids import Epoch, JobId, RepoId, RunId
from vole.jobs import lease, rows
from vole.jobs.index import Avoid, Candidate, Draft, QueueIndex
from vole.jobs.ledger import moves
from vole.jobs.ledger.settle import results_of_needs, set_state
from vole.jobs.match import Ask, Counted, Demand, Why, reason
from vole.jobs.model import Happening, Held, Policy, State, Touched, times_of
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
        look = _Look(tx, index, draft, policy)
        answers = tuple(_serve(look, ask) for ask in asks)
    return Round(answers, Touched(runs=frozenset(look.runs)))


@dataclass
class _Look:
    """One change that serves many."""

    tx: Tx
    index: QueueIndex
    draft: Draft
    policy: Policy
    runs: set[RunId] = field(default_factory=set)
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
    live = look.tx.one(rows.LIVE_OF_WANT, session=ask.holder.session, token=ask.token)
    if live is None:
        return None
    row = look.tx.one(rows.LEASABLE, job=live["job_id"])
    assert row is not None, "its attempt refers to it"
    return _offer(look, row, ask, Epoch(live["epoch"]))


def _find(look: _Look, ask: Ask) -> runner.Job | None:
    shape = (ask.labels, ask.only, ask.serves)
    if shape in look.empty:
        return None
    avoid = Avoid()
    while (candidate := look.draft.pick(ask, avoid, look.policy.cap)) is not None:
        row = look.tx.one(rows.LEASABLE, job=candidate.job)
        if row is None or not _readable(look, candidate, row):
            look.draft.pass_over(candidate)
            continue
        why = _refusal(look, row, candidate, ask)
        if why is None:
            look.draft.take(candidate)
            return _grant(look, row, ask)
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


def _readable(look: _Look, candidate: Candidate, row: Row) -> bool:
    """False for a damaged row, which is set aside and stops no other."""
    try:
        rows.job(row)
        if job_digest(row["document"].encode()) != row["digest"]:
            raise Invalid("its document is not the one that was pinned")
    except Invalid as error:
        moves.set_aside(look.tx, look.index, candidate.job, error.sentence)
        return False
    return True


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
    (here,) = tx.connection.execute(rows.LIVE_HERE, (ask.holder.session,)).fetchone()
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
    return Counted(granted, here, running, cap, rest)


def _resting(job: JobId, ask: Ask, now: Moment) -> dict[str, object]:
    """The values of rows.RESTING: did this runner give this job back just now?"""
    since = now - seconds(limits.HANDBACK_REST_S)
    return {"job": job, "fingerprint": ask.holder.key_fingerprint, "runner": ask.holder.name, "since": since}


def _grant(look: _Look, row: Row, ask: Ask) -> runner.Job:
    tx, holder = look.tx, ask.holder
    job = rows.job(row)
    new = lease.granted(job.id, holder.session, job.epoch, tx.now, times_of(look.policy))
    fields: dict[str, object] = {"epoch": new.epoch, "deadline_at": new.deadline, "started_at": None}
    detail = {"session": holder.session, "runner": holder.name, "key": holder.key_fingerprint}
    detail |= {"cap": look.policy.cap, "serves": ask.serves_as}  # what else decided: the queue can be replayed
    leased = moves.move(tx, look.index, job, Happening.LEASED, State.LEASED, fields=fields, **detail)
    tx.connection.execute(
        """
        INSERT INTO attempts (job_id, epoch, session_id, token, account, key_fingerprint, runner, runner_version,
          os, arch, leased_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (job.id, new.epoch, *_named(ask), tx.now),
    )
    held = Held(holder.session, job.repo, row["repo_name"], job.run, row["number"], job.key)
    moves.take(tx, look.index, leased, held)
    if row["run_state"] != "running":
        set_state(tx, job.run, "running", None)
    look.runs.add(job.run)
    return _offer(look, row, ask, new.epoch)


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
