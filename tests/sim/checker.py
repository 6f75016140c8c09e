"""What must be true, asked of event log and tables: after each change of what it touched, at the end of everything.

The server's memory is looked at for one thing only: which requests are parked, for that is written down nowhere.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests import invariants
from tests.sim import ending
from tests.sim.grouped import Groups
from tests.sim.standing import Seen, Standing
from vole.base import limits
from vole.base.clock import seconds
from vole.jobs.model import HELD, MOVES, Conclusion, EndCause, Happening, State, run_state
from vole.wire import runner
from vole.wire.runner import LeaseRef

if TYPE_CHECKING:
    from tests.sim.keeper import Keeper
    from tests.sim.world import World

KINDS = frozenset(Happening)


@dataclass
class Told:
    """A push whose meaning was written down, and what git made of it."""

    push: int
    repo: str
    repo_id: int
    updates: tuple[Any, ...]
    plans: tuple[Any, ...]
    moved: ending.Moved
    answered: bool = False


class Checker(Standing):
    """`broken` holds what did not hold; a history ends with its first entry."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.db = world.connection
        self.broken: list[str] = []
        self.jobs: dict[int, Seen] = {}
        self.runs: defaultdict[int, list[Seen]] = defaultdict(list)
        self.queued: dict[int, Seen] = {}
        self.held: dict[int, Seen] = {}
        self.running: Counter[int] = Counter()  # leases by repository
        self.committed: dict[int, int] = {}  # the same, as of the last commit
        self.commits = 0
        self.ended: set[tuple[int, int]] = set()  # attempts that are over
        self.moves: Counter[tuple[Any, Any, Any]] = Counter()
        self.causes: Counter[str] = Counter()
        self.whys: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.said: set[tuple[str, int, int, int]] = set()
        self.said_results: dict[LeaseRef, set[tuple[int, str]]] = {}
        self.answers: dict[LeaseRef, runner.Finished] = {}
        self.offers: list[tuple[Any, int]] = []
        self.spooled: dict[LeaseRef, bytes] = {}
        self.sessions: set[int] = set()
        self.executions: list[tuple[LeaseRef, int, int]] = []
        self.damaged: set[int] = set()
        self.told: dict[int, Told] = {}
        self.begun: list[tuple[int, str]] = []  # runs that people were told of, and the branch they named
        self.moved_count = 0
        self.groups = Groups(self)
        self._drained: dict[int, int] = {}  # session → commits when its drain was noted
        self._dismissed: dict[tuple[int, int], int] = {}  # attempts held when their key was removed → awake since
        self._taken: Counter[int] = Counter()  # leases of the change that is looked at
        self._last_event = 0

    def breaks(self, promise: str, what: str) -> None:
        self.broken.append(f"{promise}: {what}")

    # ---- after each change

    def change_made(self, name: str) -> None:
        """`name` has been applied, or, without one, what was applied is durable."""
        if not name:
            self.commits += 1
            self.committed = dict(self.running)
            return
        self._grants.clear()
        self._names.clear()
        self._sessions(name)
        touched = self.db.execute("SELECT place, how, id, epoch FROM touched ORDER BY rowid").fetchall()
        if not touched:
            return
        self.db.execute("DELETE FROM touched")
        finished = {row[2] for row in touched if row[0] == "jobs" and self._is(row[2], State.FINISHED)}
        ended = {(row[2], row[3]) for row in touched if row[0] == "attempts" and (row[2], row[3]) in self.ended}
        self._taken.clear()
        for place, how, ident, _ in touched:
            if place == "events" and how == "insert":
                self._event(ident, name)
            elif place == "events":
                self.breaks("I-21", f"{name} changed the event log")
            elif (place, how) in (("job_documents", "update"), ("run_labels", "update")):
                self.breaks("I-09", f"{name} changed what was pinned of job {ident}")
        for ident in finished:
            self.breaks("I-02", f"{name} changed job {ident}, which was finished")
        for key in ended:
            self.breaks("I-06", f"{name} changed attempt {key}, which was over")
        self._rows(name, {row[2] for row in touched if row[0] == "jobs"})
        self._attempts(name, {(row[2], row[3]) for row in touched if row[0] == "attempts"})
        jobs = {row[2] for row in touched if row[0] == "jobs"}
        runs = {row[2] for row in touched if row[0] == "runs"}
        self._run_states(runs | {self.jobs[job].run for job in jobs if job in self.jobs})

    def _sessions(self, change: str) -> None:
        """Whom no job may go to from the next look on, and whose leases are to end at once."""
        roster = self.world.life.roster
        if change == "note_draining":
            for session in roster:
                if session.draining:
                    self._drained.setdefault(session.id, self.commits)
        elif change == "_remove_key":
            keys = {row[0] for row in self.db.execute("SELECT fingerprint FROM keys")}
            gone = {session.id for session in roster if session.key_fingerprint not in keys}
            for job in self.held.values():
                if job.session in gone:  # the process may come back under the key, given again, and hold others
                    self._dismissed.setdefault((job.id, job.epoch), self.world.awake_us())

    def _is(self, job: int, state: State) -> bool:
        return job in self.jobs and self.jobs[job].state is state

    def _event(self, ident: int, name: str) -> None:
        row = self.db.execute("SELECT * FROM events WHERE id = ?", (ident,)).fetchone()
        if ident <= self._last_event:
            self.breaks("I-21", f"event {ident} of {name} sorts before the last one, {self._last_event}")
        self._last_event = ident
        if row["kind"] == "set_aside" and row["job_id"] in self.jobs:
            self.jobs[row["job_id"]].set_aside = True
            self.queued.pop(row["job_id"], None)
            if row["job_id"] not in self.damaged:
                self.breaks("I-20", f"{name} set aside job {row['job_id']}, which is whole")
        if row["job_id"] is None or row["kind"] not in KINDS:
            return
        detail = json.loads(row["detail"])
        what, to = Happening(row["kind"]), State(detail["to"])
        job = self.jobs.get(row["job_id"]) or self._new(row, detail)
        if to not in MOVES.get((job.state, what), ()):
            self.breaks("I-01", f"job {job.id} went {job.state} -{what}-> {to}")
        if what is Happening.LEASED:
            self._leased(job, row)
        if job.state in HELD and to not in HELD:
            self._lease_ended(job, row, detail, name)
        self.moves[job.state, what, to] += 1
        self._stands(job, what, to, row, detail)

    def _new(self, row: sqlite3.Row, detail: dict[str, Any]) -> Seen:
        found = self.db.execute(
            "SELECT enqueued_at, timeout_us FROM jobs WHERE id = ?", (row["job_id"],)
        ).fetchone()  # fmt: skip
        job = Seen(row["job_id"], row["repo_id"], row["run_id"], detail["key"], frozenset(detail["labels"]))
        job.enqueued_at, job.timeout_us = found["enqueued_at"], found["timeout_us"]
        self.jobs[job.id] = job
        self.runs[job.run].append(job)
        self.groups.pinned(job)
        if row["kind"] == Happening.CARRIED:
            self._carried(job, row, detail)
        return job

    def _carried(self, job: Seen, row: sqlite3.Row, detail: dict[str, Any]) -> None:
        """I-02, I-30: a job that a rerun does not run stands for one that ran, is over, and has the same result."""
        of = self.jobs[detail["carried_of"]]
        run = self.db.execute("SELECT rerun_of, repo_id FROM runs WHERE id = ?", (job.run,)).fetchone()
        if of.state is not State.FINISHED or of.conclusion != detail["conclusion"] or of.key != job.key:
            self.breaks("I-30", f"job {job.id} is carried as {detail}, what it stands for is {of}")
        if detail["conclusion"] not in (Conclusion.SUCCESS, Conclusion.SKIPPED):
            self.breaks("I-30", f"job {job.id} ended as {detail['conclusion']} and was not run again")
        if row["epoch"] != 0 or run["rerun_of"] is None or run["repo_id"] != of.repo:
            self.breaks("I-30", f"job {job.id} is carried at epoch {row['epoch']} into {tuple(run)}")

    def _stands(self, job: Seen, what: Happening, to: State, row: sqlite3.Row, detail: dict[str, Any]) -> None:
        ran = self.world.ran_us
        if to is State.QUEUED:
            self.queued[job.id], job.since = job, self.commits
        elif job.state is State.QUEUED:
            self.queued.pop(job.id, None)
        if to in HELD and job.state not in HELD:
            self.held[job.id] = job
            self.running[job.repo] += 1
        elif to not in HELD and job.state in HELD:
            self.held.pop(job.id, None)
            self.running[job.repo] -= 1
        if what is Happening.LEASED:
            job.fresh_us = ran
        if what is Happening.STARTED:
            job.fresh_us = job.started_us = ran
            if not self._was_said(job, row["epoch"], "started", "finish"):
                self.breaks("I-05", f"{job.id}@{row['epoch']} was started, which its holder did not say")
        if what is Happening.EXPIRED:
            waited = row["at"] - job.enqueued_at
            if waited < min(15e6, max(self.world.policy.queue_timeout_s, 15) * 1e6):
                self.breaks("I-01", f"job {job.id} expired in the queue after {waited / 1e6} s")
        self.groups.moved(job, to)
        job.state, job.epoch, job.conclusion = to, row["epoch"], detail.get("conclusion")

    def _was_said(self, job: Seen, epoch: int, *words: str) -> bool:
        return any((word, job.id, epoch, job.session) in self.said for word in words)

    # ---- leases

    def _leased(self, job: Seen, row: sqlite3.Row) -> None:
        epoch = row["epoch"]
        if epoch != job.epoch + 1:
            self.breaks("I-04", f"job {job.id} went from epoch {job.epoch} to {epoch}")
        held = self.db.execute(
            "SELECT a.session_id, a.key_fingerprint, a.runner, r.labels, r.repos, r.slots, r.only_labelled "
            "FROM attempts a JOIN runners r ON r.id = a.session_id WHERE a.job_id = ? AND a.epoch = ?",
            (job.id, epoch),
        ).fetchone()
        job.session = held["session_id"]
        labels, filtered = set(json.loads(held["labels"])), json.loads(held["repos"])
        (deadline,) = self.db.execute("SELECT deadline_at FROM jobs WHERE id = ?", (job.id,)).fetchone()
        if deadline is None or deadline > row["at"] + seconds(
            limits.lease_times(self.world.policy.ttl_s).start_window_s
        ):
            self.breaks("I-18", f"{job.id}@{epoch} may be started until {deadline}, it was given at {row['at']}")
        if job.set_aside or job.id in self.damaged:
            self.breaks("I-20", f"job {job.id} was leased with a damaged row")
        if not job.labels <= labels or (held["only_labelled"] and not job.labels):
            self.breaks("I-08", f"job {job.id} {sorted(job.labels)} was leased to a runner of {sorted(labels)}")
        if not self._granted(held["key_fingerprint"], job.repo):
            self.breaks("I-08", f"job {job.id} was leased to {held['runner']} without a grant")
        name = self.repo_name(job.repo)
        if filtered and name not in filtered:
            self.breaks("I-08", f"job {job.id} of {name} was leased past the filter {filtered}")
        if self._rests(job, held["key_fingerprint"], held["runner"], row["at"]):
            self.breaks("I-08", f"job {job.id} went to {held['runner']}, which gave it back within the minute")
        self._has_room(job, held["slots"], name)
        self._in_order(job, row, held, labels, filtered)
        self._taken[job.repo] += 1

    def _has_room(self, job: Seen, slots: int, name: str) -> None:
        """Of runner and repository."""
        mine = sum(other.session == job.session for other in self.held.values()) + 1
        if mine > slots:
            self.breaks("I-11", f"session {job.session} has {mine} leases in {slots} slots")
        session = self.world.life.roster.get(job.session)  # type: ignore[arg-type]
        if session is not None and session.draining and self.commits > self._drained.get(session.id, self.commits) + 2:
            self.breaks("the grant", f"job {job.id} was leased to session {job.session}, which drains")
        caps = self._caps()
        if None not in caps and self.running[job.repo] + 1 > max(cap for cap in caps if cap is not None):
            self.breaks("I-10", f"repository {name} has {self.running[job.repo] + 1} leases, its cap is {caps}")

    def _in_order(self, job: Seen, row: sqlite3.Row, held: sqlite3.Row, labels: set[str], filtered: list[str]) -> None:
        """I-23: of all that this runner could have, the least busy repository's oldest job."""
        caps = [cap for cap in self._caps() if cap is not None]
        mine = self._place(job)
        for other in self.queued.values():
            if other is job or other.since >= self.commits or self._place(other) >= mine:
                continue
            busy = max(self.running[other.repo], self._place(other)[0])
            if (
                other.set_aside
                or other.id in self.damaged
                or not other.labels <= labels
                or (held["only_labelled"] and not other.labels)
                or (caps and busy >= min(caps))
                or not self._granted(held["key_fingerprint"], other.repo)
                or (filtered and self.repo_name(other.repo) not in filtered)
                or self._rests(other, held["key_fingerprint"], held["runner"], row["at"])
                or other.repo not in self._served(job.session)
            ):
                continue
            self.breaks("I-23", f"job {job.id} {mine} was leased before {other.id} {self._place(other)}")
            return

    def _place(self, job: Seen) -> tuple[int, int, int]:
        return self.committed.get(job.repo, 0) + self._taken[job.repo], job.enqueued_at, job.id

    def _served(self, session: int) -> frozenset[int]:
        """Where the server believes that this runner may look; a grant of just now is not known there yet."""
        known = [serves.get(session, frozenset()) for serves in self._served_lately]
        return frozenset.intersection(*known) if known else frozenset()

    def _caps(self) -> list[int | None]:
        """The cap, and those of the last seconds: a look that was on its way took the former one along."""
        now = self.world.ran_us / 1e6
        caps = list(self.world.caps)
        recent = [cap for at, cap in caps if now - at < 2.0]
        former = [cap for at, cap in caps if now - at >= 2.0][-1:]
        return former + recent if recent else former

    def _lease_ended(self, job: Seen, row: sqlite3.Row, detail: dict[str, Any], change: str) -> None:
        cause, lease = detail.get("cause"), LeaseRef(job.id, row["epoch"])  # type: ignore[arg-type]
        if cause not in set(EndCause):
            self.breaks("I-14", f"the lease {job.id}@{row['epoch']} ended without a cause")
            return
        self.causes[cause] += 1
        self.ended.add((job.id, row["epoch"]))
        attempt = self.db.execute("SELECT * FROM attempts WHERE job_id = ? AND epoch = ?", tuple(lease_key(lease)))
        found = attempt.fetchone()
        if found["end_cause"] != cause:
            self.breaks("I-14", f"attempt {lease} ended by {found['end_cause']}, its event says {cause}")
        if cause in (EndCause.HANDED_BACK, EndCause.NOT_STARTED):
            job.rests[found["key_fingerprint"], found["runner"]] = row["at"]
        if change == "sweep":
            self._ended_by_time(job, lease, cause)
        else:
            self._ended_by_word(job, lease, cause, found["conclusion"])
        if cause == EndCause.EXPIRED and change != "sweep":
            self.breaks("I-16", f"{lease} expired in {change}")
        job.lost += row["kind"] == Happening.LOST
        if job.lost >= limits.ATTEMPTS_MAX and detail["to"] != State.FINISHED:
            self.breaks("I-19", f"job {job.id} lost {job.lost} attempts")
        if cause == EndCause.DISCONNECTED and job.state is State.RUNNING:
            self.breaks("I-14", f"{lease} was running, and ended with its connection")
        job.started_us = 0

    def _ended_by_time(self, job: Seen, lease: LeaseRef, cause: str) -> None:
        span_s = self.world.policy.ttl_s if job.state is not State.LEASED and job.started_us else 0.0
        span_s = span_s or self.world.policy.ttl_s / 4  # it was never started
        waited_s = self.world.seconds_since(job.fresh_us)
        if waited_s < span_s - 0.001:
            self.breaks("I-15", f"{lease} ended by {cause} after {waited_s} s of a running server, not {span_s}")

    def _ended_by_word(self, job: Seen, lease: LeaseRef, cause: str, conclusion: str) -> None:
        if cause == EndCause.HANDED_BACK and not self._was_said(job, lease.epoch, "handback"):
            self.breaks("I-05", f"{lease} was handed back, which its holder did not say")
        if cause == EndCause.FINISHED and (job.session, conclusion) not in self.said_results.get(lease, ()):
            said = self.said_results.get(lease)
            self.breaks("I-05", f"{lease} has the result {conclusion}, its holder said {said}")

    def _rows(self, change: str, touched: set[int]) -> None:
        """I-21: the row says what the events say. I-17: nobody moves a deadline later but a renewal."""
        for ident in touched:
            row = self.db.execute("SELECT * FROM jobs WHERE id = ?", (ident,)).fetchone()
            job = self.jobs.get(ident)
            if row is None or job is None:
                self.breaks("I-22", f"{change}: job {ident} has a row without events, or none")
                continue
            if (row["state"], row["epoch"], row["conclusion"]) != (job.state, job.epoch, job.conclusion):
                self.breaks("I-21", f"{change}: job {ident} is {row['state']}@{row['epoch']}, its events say {job}")
            deadline = row["deadline_at"]
            if (
                job.state is State.CANCELLING
                and deadline is not None
                and job.deadline is not None
                and deadline > job.deadline
                and change not in ("_restart", "sweep")
            ):
                self.breaks("I-17", f"{change} moved the deadline of job {ident} later while it was being cancelled")
            job.deadline = deadline

    def _attempts(self, change: str, touched: set[tuple[int, int]]) -> None:
        if change != "renew_many":
            return
        for ident, epoch in touched:
            job = self.jobs[ident]
            if not self._was_said(job, epoch, "renew", "started", "finish"):
                self.breaks("I-05", f"{ident}@{epoch} was renewed, which its holder did not say")
            if job.state is State.RUNNING:
                job.fresh_us = self.world.ran_us

    def _run_states(self, runs: set[int]) -> None:
        for ident in runs:
            row = self.db.execute("SELECT state, conclusion, reason FROM runs WHERE id = ?", (ident,)).fetchone()
            jobs = self.runs.get(ident, [])
            if row is None or row["reason"]:
                continue
            pairs = [(job.state, job.conclusion and Conclusion(job.conclusion)) for job in jobs]
            if (row["state"], row["conclusion"]) != run_state(pairs):  # type: ignore[arg-type]
                self.breaks("I-21", f"run {ident} is {row['state']} {row['conclusion']}, its jobs say {pairs}")

    # ---- what the simulation tells

    def server_begins(self) -> None:
        """A new life: every live lease is to have one fresh span, and every job its whole time limit at most."""
        for job in self.held.values():
            job.fresh_us = self.world.ran_us
            job.started_us = self.world.ran_us if job.started_us else 0
        self._served_lately.clear()
        self._sleepers.clear()
        self._keyless.clear()
        self._fenced.clear()
        self._dismissed.clear()
        self._drained.clear()
        self._began_us = self.world.ran_us

    def offered(self, job: runner.Job, keeper: Keeper) -> None:
        self.offers.append((job.lease.job, job.lease.epoch))

    def executed(self, lease: LeaseRef, begun_us: int, ended_us: int) -> None:
        self.executions.append((lease, begun_us, ended_us))

    def answered(self, keeper: Keeper, finished: runner.Finished) -> None:
        """I-06: an accepted result is durable, and is answered each time as it was the first time."""
        lease = LeaseRef(finished.job, finished.epoch)
        first = self.answers.setdefault(lease, finished)
        if first != finished:
            self.breaks("I-06", f"{lease} was answered {first}, then {finished}")
        row = self.db.execute(
            "SELECT session_id, result_digest, log_state FROM attempts WHERE job_id = ? AND epoch = ?", lease_key(lease)
        ).fetchone()
        if row["result_digest"] is None or row["session_id"] != keeper.session:
            self.breaks("I-06", f"{lease} was answered as finished to {keeper.session}, and the row says {tuple(row)}")

    def fenced(self, keeper: Keeper, lease: LeaseRef) -> None:
        """I-05: only whoever holds nothing is told so. A lease that is over never lives again.

        What a runner said of a lease before it was given to it is refused too, and it may have it when it hears so.
        """
        if lease_key(lease) in keeper.lied_of:
            return
        live = "SELECT 1 FROM attempts WHERE job_id = ? AND epoch = ? AND session_id = ? AND ended_at IS NULL"
        if self.db.execute(live, (*lease_key(lease), keeper.session)).fetchone() is not None:
            self._fenced.setdefault(lease_key(lease), self.world.awake_us())

    def push_meant(self, push: int, repo: str, question: Any, planned: Any) -> Told:
        row = self.db.execute("SELECT repo_id FROM pushes WHERE id = ?", (push,)).fetchone()
        gone = row is None  # with its repository, meanwhile
        repo_id = 0 if gone else row["repo_id"]
        told = Told(push, repo, repo_id, question.updates, tuple(planned.plans), ending.Moved(self))
        if not gone:
            self.told[push] = told
        return told

    def was_cancelled(self, repo: str, number: int, key: str | None) -> None:
        """A cancel was answered: none of its jobs waits or runs on as if nothing were."""
        row = self.db.execute(
            "SELECT r.id FROM runs r JOIN repos p ON p.id = r.repo_id WHERE p.name = ? AND r.number = ?", (repo, number)
        ).fetchone()
        for job in [] if row is None else self.runs[row["id"]]:
            if key in (None, job.key) and job.state not in (State.CANCELLING, State.FINISHED):
                self.breaks("I-14", f"job {job.id} was cancelled, and it is {job.state}")

    # ---- what the actions choose from

    def some_run(self, rng: Random) -> tuple[str, int, list[str]] | None:
        if not self.runs:
            return None
        return self._run_named(rng.choice(list(self.runs)[-12:]))

    def _run_named(self, ident: int) -> tuple[str, int, list[str]] | None:
        row = self.db.execute(
            "SELECT r.number, p.name FROM runs r JOIN repos p ON p.id = r.repo_id WHERE r.id = ?", (ident,)
        ).fetchone()
        return None if row is None else (row["name"], row["number"], [job.key for job in self.runs[ident]])

    def some_ended_run(self, rng: Random) -> tuple[str, int, list[str]] | None:
        ended = [run for run, jobs in self.runs.items() if all(job.state is State.FINISHED for job in jobs)][-12:]
        return self._run_named(rng.choice(ended)) if ended else None

    def some_waiting(self, rng: Random) -> int | None:
        waiting = [job.id for job in self.jobs.values() if job.state in (State.QUEUED, State.BLOCKED)]
        return rng.choice(waiting) if waiting else None

    def has_repo(self, name: str) -> bool:
        return self.db.execute("SELECT 1 FROM repos WHERE name = ?", (name,)).fetchone() is not None

    # ---- at the end

    def everything(self) -> None:
        """The whole of it once more, from the tables alone."""
        try:
            invariants.check(self.db, spared=frozenset(self.damaged))
            invariants.all_owed(self.db)
        except AssertionError as error:
            self.broken.append(str(error))
        ending.check(self)


def lease_key(lease: LeaseRef) -> tuple[int, int]:
    return lease.job, lease.epoch
