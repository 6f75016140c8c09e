"""What follows in a run when one of its jobs moved: who may go on, who is skipped, what the run's state is now.

Runs inside the change that moved the job, never after it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from vole.base.errors import Invalid
from vole.base.ids import JobId, RepoId, RunId, RunNumber
from vole.jobs import conditions, rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import groups, moves, outbox
from vole.jobs.model import FAILURES, HELD, Conclusion, Ended, Happening, Job, State, Touched, run_state, worst
from vole.store.database import Tx
from vole.wire.plan import JobPlan, NeedResult

_ACTIVE = HELD | {State.QUEUED}  # counts against max-parallel


def settle(tx: Tx, index: QueueIndex, run: RunId) -> Touched:
    """Stop the rest of a matrix that failed, ready or skip what waited, then derive the run's state.

    The same for every run that this moves: whose turn it is in a concurrency group, who is cancelled for a newer one.
    `leasable` of the answer is true when a job was readied.
    """
    return settle_all(tx, index, (run,))[run]


def settle_all(tx: Tx, index: QueueIndex, runs: Collection[RunId]) -> dict[RunId, Touched]:
    """`settle` of several runs, by run; their states are stored together."""
    touched, moved, states = dict[RunId, Touched](), set[RunId](), list[RunNow]()
    for run in runs:
        touched[run], others, now = _settle(tx, index, run)
        moved |= others
        states.append(now)
    set_states(tx, states)
    if moved:
        touched[now.run] |= settle_others(tx, index, moved)
    return touched


def settle_others(tx: Tx, index: QueueIndex, runs: Collection[RunId]) -> Touched:
    """`settle` of runs that a change of another one moved: a row of them that cannot be read stops nobody else."""
    touched, todo = Touched(), sorted(runs)
    while todo:
        run = todo.pop(0)
        try:
            with tx.part():
                one, moved, now = _settle(tx, index, run)
                set_states(tx, [now])
        except Invalid:
            one, moved = Touched(), groups.leave(tx, run)
        touched |= one
        todo += sorted(moved - set(todo))
    return touched


@dataclass(frozen=True)
class RunNow:
    """What `model.run_state` makes of a run's jobs, beside what is stored."""

    run: RunId
    repo: RepoId
    stored: str
    state: str
    conclusion: Conclusion | None = None


def _settle(tx: Tx, index: QueueIndex, run: RunId) -> tuple[Touched, set[RunId], RunNow]:
    """One run; the other runs that it moved; what its state is to be."""
    jobs = _jobs(tx, run)
    repo, stored, grouped = tx.connection.execute(_RUN, (run,)).fetchone()
    unfinished = [job for job in jobs if job.state is not State.FINISHED]
    touched, moved = Touched(frozenset((run,))), set[RunId]()
    if unfinished:
        touched |= Touched(ended=_fail_fast(tx, index, jobs, unfinished))
    blocked = any(job.state is State.BLOCKED for job in unfinished)
    if blocked and not groups.waits(tx, run):
        advanced, moved = _advance(tx, index, run)
        touched |= advanced
    if blocked or (unfinished and len(jobs) > 1):
        jobs = _jobs(tx, run)
    state, conclusion = run_state((job.state, job.conclusion) for job in jobs)
    if grouped or blocked:  # what waited may have entered a group just now
        moved |= groups.leave(tx, run)
    return touched, moved, RunNow(run, repo, stored, state, conclusion)


_RUN = """
SELECT r.repo_id, r.state, EXISTS (SELECT 1 FROM group_places g WHERE g.run_id = r.id)
FROM runs r
WHERE r.id = ?"""


def _fail_fast(tx: Tx, index: QueueIndex, jobs: list[Job], unfinished: list[Job]) -> tuple[Ended, ...]:
    """Cancel what is left of each matrix with a failed job, unless its file says `fail-fast: false`."""
    failed = {job.job: job for job in jobs if job.conclusion in FAILURES}
    ended: tuple[Ended, ...] = ()
    for job in unfinished:
        culprit = failed.get(job.job)
        if culprit is None or job.state is State.CANCELLING or not _fails_fast(tx, culprit):
            continue
        ended += moves.stop(tx, index, job, f"fail-fast: {culprit.key} ended as {culprit.conclusion}", "fail_fast")
    return ended


def _fails_fast(tx: Tx, job: Job) -> bool:
    try:
        return plan_of(tx, job.id).fail_fast
    except Invalid:
        return True  # the default of the dialect; the row itself is set aside where it would be worked on


def plan_of(tx: Tx, job: JobId) -> JobPlan:
    """The pinned document. Raises Invalid for one that cannot be read."""
    row = tx.one("SELECT document FROM job_documents WHERE job_id = :job", job=job)
    if row is None:
        raise Invalid(f"job {job} has no document")
    return JobPlan.read(row["document"])


def results_of_needs(tx: Tx, job: JobId, run: RunId) -> dict[str, NeedResult]:
    """How each needed job ended: a matrix is the worst of its jobs, a later output of the same name wins."""
    found = tx.all(
        """
        SELECT n.needs, j.conclusion, j.outputs
        FROM job_needs n
        JOIN jobs j ON j.run_id = :run AND j.job = n.needs
        WHERE n.job_id = :job
        ORDER BY n.needs, j.ordinal""",
        run=run,
        job=job,
    )
    conclusions: defaultdict[str, list[Conclusion]] = defaultdict(list)
    outputs: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in found:
        conclusions[row["needs"]].append(Conclusion(row["conclusion"]))
        outputs[row["needs"]] |= json.loads(row["outputs"])
    return {
        name: NeedResult(result=worst(ended).value, outputs=outputs[name])  # type: ignore[arg-type]  # one of the four
        for name, ended in conclusions.items()
    }


@dataclass
class _Waiting:
    """One look at a run with blocked jobs, kept up to date while they move."""

    jobs: dict[JobId, Job]
    needs: dict[JobId, list[str]]
    facts: conditions.RunFacts
    full: set[str] = field(default_factory=set)  # job ids at their max-parallel
    touched: Touched = field(default_factory=Touched)
    moved: set[RunId] = field(default_factory=set)  # other runs, cancelled for a job of this one

    def __post_init__(self) -> None:
        self._keys: defaultdict[str, list[JobId]] = defaultdict(list)
        for job in self.jobs.values():
            self._keys[job.job].append(job.id)

    def named(self, name: str) -> list[Job]:
        """The jobs of one id of the file."""
        return [self.jobs[key] for key in self._keys[name]]

    def may_move(self, job: Job) -> bool:
        """True when all it needs has ended and its matrix has room."""
        if job.state is not State.BLOCKED or job.job in self.full:
            return False
        return all(other.state is State.FINISHED for name in self.needs[job.id] for other in self.named(name))

    def ended(self, names: Iterable[str]) -> list[Conclusion]:
        """How the jobs of these ids ended, as far as they have."""
        return [other.conclusion for name in names for other in self.named(name) if other.conclusion is not None]

    def ancestors(self, job: Job) -> set[str]:
        """Everything that `job` needs, and what that needs."""
        names, more = set[str](), set(self.needs[job.id])
        while more:
            names |= more
            more = {need for name in more for other in self.named(name) for need in self.needs[other.id]} - names
        return names


def _advance(tx: Tx, index: QueueIndex, run: RunId) -> tuple[Touched, set[RunId]]:
    """Move every blocked job that can move; what that told, and the other runs that were cancelled for one."""
    waiting = _look(tx, run)
    moved = True
    while moved:
        moved = False
        for job in [job for job in waiting.jobs.values() if waiting.may_move(job)]:
            if not waiting.may_move(job):  # its matrix filled up meanwhile
                continue
            waiting.jobs[job.id] = after = _decide(tx, index, job, waiting)
            moved = moved or after.state is State.FINISHED
            waiting.touched |= Touched(leasable=after.state is State.QUEUED)
    return waiting.touched, waiting.moved


def _decide(tx: Tx, index: QueueIndex, job: Job, waiting: _Waiting) -> Job:
    try:
        plan = plan_of(tx, job.id)
    except Invalid as error:
        moves.set_aside(tx, index, job.id, error.sentence)
        return job
    active = sum(1 for other in waiting.named(job.job) if other.state in _ACTIVE)
    if plan.max_parallel is not None and active >= plan.max_parallel:
        waiting.full.add(job.job)
        _wait_for_room(tx, job, plan.max_parallel)
        return job
    direct, before = waiting.ended(waiting.needs[job.id]), waiting.ended(waiting.ancestors(job))
    try:
        needs = results_of_needs(tx, job.id, job.run)
        goes_on = conditions.runs(plan, needs, conditions.status(direct, before), waiting.facts)
    except Invalid as error:
        reason = f"its `if` cannot be evaluated: {error.sentence}"
        return moves.conclude(tx, index, job, Happening.MISJUDGED, Conclusion.ERRORED, reason=reason)
    if not goes_on:
        reason = f"if: {plan.if_}" if plan.if_ is not None else "what it needs did not succeed"
        return moves.conclude(tx, index, job, Happening.SKIPPED, Conclusion.SKIPPED, reason=reason)
    return _take_turn(tx, index, job, plan, waiting)


def _take_turn(tx: Tx, index: QueueIndex, job: Job, plan: JobPlan, waiting: _Waiting) -> Job:
    """The job, queued if it is its turn in its concurrency group."""
    if plan.concurrency is None:
        return moves.queue(tx, index, job, Happening.READIED)
    if groups.place_of(tx, job.id, job.run) is None:
        touched, moved = groups.enter(tx, index, groups.Member(job.repo, job.run, job.id), plan.concurrency)
        waiting.touched |= touched
        waiting.moved |= moved
    place = groups.place_of(tx, job.id, job.run)
    assert place is not None, "it was taken in this change or before"
    if place["held_at"] is not None:
        return moves.queue(tx, index, job, Happening.READIED)
    if (other := groups.circle(tx, job.id, job.run)) is not None:
        reason = f"{other} has concurrency group {plan.concurrency.group!r} and waits for a group that this run has"
        return moves.conclude(tx, index, job, Happening.ENTANGLED, Conclusion.ERRORED, reason=reason)
    return job


def _wait_for_room(tx: Tx, job: Job, most: int) -> None:
    """Say so of each that is left of the job's matrix: they need the same."""
    tx.run(
        """
        UPDATE jobs
        SET reason = :reason
        WHERE run_id = :run AND job = :job AND state = 'blocked' AND reason <> :reason""",
        reason=f"waits for max-parallel {most}",
        run=job.run,
        job=job.job,
    )


def _look(tx: Tx, run: RunId) -> _Waiting:
    facts = tx.one("SELECT number, attempt FROM runs WHERE id = :run", run=run)
    assert facts is not None, f"run {run} is gone"
    needs: dict[JobId, list[str]] = defaultdict(list)
    for row in tx.all(
        "SELECT n.job_id, n.needs FROM job_needs n JOIN jobs j ON j.id = n.job_id WHERE j.run_id = :run", run=run
    ):
        needs[JobId(row["job_id"])].append(row["needs"])
    return _Waiting(
        {job.id: job for job in _jobs(tx, run)},
        needs,
        conditions.RunFacts(RunNumber(facts["number"]), facts["attempt"]),
    )


def _jobs(tx: Tx, run: RunId) -> list[Job]:
    return [rows.job(row) for row in tx.all(rows.JOBS_OF_RUN, run=run)]


def set_states(tx: Tx, runs: Sequence[RunNow]) -> None:
    """Store the states that changed; a run that a lease is given of is `running`, and a finished one stays so."""
    changed = [one for one in runs if one.stored not in ("finished", one.state)]
    if not changed:
        return
    tx.connection.executemany(
        "UPDATE runs SET state = ?, conclusion = ?, finished_at = ? WHERE id = ?",
        [(one.state, one.conclusion, tx.now if one.state == "finished" else None, one.run) for one in changed],
    )
    told = [moves.Happened(one.repo, one.run, f"run_{one.state}", _told(one)) for one in changed]
    moves.event_all(tx, told)
    outbox.owe_runs(tx, [(one.repo, one.run) for one in changed if one.state == "finished"])


def _told(one: RunNow) -> dict[str, object]:
    return {"to": one.state, "conclusion": one.conclusion}
