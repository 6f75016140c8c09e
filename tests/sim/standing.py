"""The half of the checker that looks at what stands still: sleepers, leases past their time, reasons that are shown."""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vole.base import limits
from vole.base.clock import seconds
from vole.jobs import reads
from vole.jobs.match import Why
from vole.jobs.model import State

if TYPE_CHECKING:
    from tests.sim.world import World

SLEEP_S = 1.0  # I-12
REST_US = int(seconds(limits.HANDBACK_REST_S))


@dataclass
class Seen:
    """One job as its events tell it, and what the simulation knows of its lease."""

    id: int
    repo: int
    run: int
    key: str
    labels: frozenset[str]
    state: State | None = None
    epoch: int = 0
    conclusion: str | None = None
    enqueued_at: int = 0
    since: int = 0  # commits when it became queued
    session: int = 0
    deadline: int | None = None
    fresh_us: int = 0  # running time of the server when its lease was last made longer
    started_us: int = 0
    timeout_us: int = 0
    rests: dict[tuple[str, str], int] = field(default_factory=dict)  # (key, runner) → when it gave the job back
    set_aside: bool = False
    lost: int = 0  # attempts


class Standing:
    """What it reads is kept up to date by the checker, from events and tables."""

    world: World
    db: sqlite3.Connection
    jobs: dict[int, Seen]
    runs: Mapping[int, list[Seen]]
    queued: dict[int, Seen]
    held: dict[int, Seen]
    running: Counter[int]
    damaged: set[int]
    _dismissed: dict[tuple[int, int], int]
    whys: Counter[str]

    def __init__(self) -> None:
        self._sleepers: dict[int, int] = {}
        self._keyless: dict[int, int] = {}
        self._fenced: dict[tuple[int, int], int] = {}  # lease that was called fenced and is not over → awake since
        self._began_us = 0  # this life of the server, in running time
        self._look_at = 0
        self._served_lately: deque[dict[int, frozenset[int]]] = deque(maxlen=3)
        self._grants: dict[tuple[str, int], bool] = {}  # as of the last change
        self._names: dict[int, str] = {}

    def breaks(self, promise: str, what: str) -> None:
        raise NotImplementedError

    def repo_name(self, ident: int) -> str:
        if ident not in self._names:
            row = self.db.execute("SELECT name FROM repos WHERE id = ?", (ident,)).fetchone()
            self._names[ident] = "" if row is None else str(row["name"])
        return self._names[ident]

    def _granted(self, fingerprint: str, repo: int) -> bool:
        key = fingerprint, repo
        if key not in self._grants:
            self._grants[key] = self._reads_grant(*key)
        return self._grants[key]

    def _reads_grant(self, fingerprint: str, repo: int) -> bool:
        found = self.db.execute(
            "SELECT 1 FROM keys k JOIN grants g ON g.account_id = k.account_id WHERE k.fingerprint = ? "
            "AND k.kind = 'runner' AND g.repo_id = ? AND g.level = 'run'",
            (fingerprint, repo),
        ).fetchone()
        return found is not None

    @staticmethod
    def _rests(job: Seen, fingerprint: str, name: str, now: int) -> bool:
        back = job.rests.get((fingerprint, name))
        return back is not None and back > now - REST_US

    # ---- when nothing is left to do at this moment

    def rest(self) -> None:
        """Look for what stands still and should not."""
        world = self.world
        if world.time.now_us < self._look_at or world.life.store.dead or world.frozen or not world.life.up:
            return
        self._look_at = world.time.now_us + 250_000
        self._served_lately.append({one.id: frozenset(map(int, one.serves)) for one in world.life.roster})
        self._sleeping()
        self._half_fenced()
        self._outstaying()
        if world.rng.random() < 0.1:
            self._overdue()
            self._faults()
            self._explained()

    def _sleeping(self) -> None:
        """I-12: a job that a parked live request could take is taken, or goes, within a second."""
        world = self.world
        parked = world.life.roster.parked() if self.queued else []
        leasable = set()
        if parked:
            cap, now = world.life.leasing.policy.cap, world.life.clock.now()
            for session in {one.session.id: one.session for one in parked}.values():
                wants = [one.want for one in session.parked.values() if one.live()]
                if session.draining or all(want.disk_low for want in wants):
                    continue
                mine = sum(other.session == session.id for other in self.held.values())
                if mine >= session.hello.slots:
                    continue
                for job in self.queued.values():
                    if job.id not in leasable and not self._obstacles(job, session, cap, now):
                        leasable.add(job.id)
        slow_us = round(4e6 * world.life.store.slow_s)
        for ident in leasable:
            since = self._sleepers.setdefault(ident, world.awake_us())
            if world.awake_us() - since > SLEEP_S * 1e6 + 300_000 + slow_us:
                span = (world.awake_us() - since) / 1e6
                self.breaks("I-12", f"job {ident} could be leased for {span} s and is not")
        for ident in self._sleepers.keys() - leasable:
            del self._sleepers[ident]

    def _half_fenced(self) -> None:
        """I-05: a session that is over is told so before its leases end in the tables, and then they do, soon."""
        slow_s = 4 * self.world.life.store.slow_s
        for key, since in list(self._fenced.items()):
            live = "SELECT 1 FROM attempts WHERE job_id = ? AND epoch = ? AND ended_at IS NULL"
            if self.db.execute(live, key).fetchone() is None:
                del self._fenced[key]
            elif self.world.awake_us() - since > (1.0 + slow_s) * 1e6:
                self.breaks("I-05", f"{key} was fenced, and it is still held by the one that was told so")

    def _outstaying(self) -> None:
        """SR-27: a connection whose key was removed ends, and its leases with it, at once."""
        for job in self.held.values():
            since = self._dismissed.get((job.id, job.epoch))
            if since is not None and self.world.awake_us() - since > (2.0 + 8 * self.world.life.store.slow_s) * 1e6:
                self.breaks("SR-27", f"job {job.id} is still held by {job.session}, whose key was removed")

    def _obstacles(self, job: Seen, session: Any, cap: int | None, now: int) -> set[Why]:
        """Everything that keeps this job from this runner, by the tables."""
        hello, lacks = session.hello, job.labels - set(session.hello.labels)
        true = {
            Why.SET_ASIDE: job.set_aside or job.id in self.damaged,
            Why.LACKS_LABEL: bool(lacks),
            Why.ONLY_LABELLED: hello.only and not job.labels,
            Why.NOT_GRANTED: not lacks and not self._granted(session.key_fingerprint, job.repo),
            Why.FILTERED_OUT: bool(hello.repos) and self.repo_name(job.repo) not in hello.repos,
            Why.DRAINING: session.draining,
            Why.RESTING: self._rests(job, session.key_fingerprint, hello.name, now),
            Why.REPO_AT_CAP: cap is not None and self.running[job.repo] >= cap,
            Why.BUSY: sum(other.session == session.id for other in self.held.values()) >= hello.slots,
        }
        return {why for why, stands in true.items() if stands}

    def _overdue(self) -> None:
        """What time ought to have ended: leases, overtime, the wait in the queue, the leases of a removed key."""
        world = self.world
        if world.time.now_us - world.frozen_until < 3_000_000:
            return  # it has just woken up, and is about to
        ttl_s = world.policy.ttl_s
        for job in self.held.values():
            idle_s = world.seconds_since(job.fresh_us)
            # What was renewed between the end of a stall and the next sweep is moved by the whole gap, too.
            if idle_s > ttl_s + 8 + world.stalled_s and not job.set_aside:
                self.breaks("I-15", f"the lease of job {job.id} ({job.state}) lives {idle_s} s without a renewal")
            if job.state is State.RUNNING and world.seconds_since(job.started_us) > job.timeout_us / 1e6 + 3:
                self.breaks("I-01", f"job {job.id} runs longer than its {job.timeout_us / 1e6} s")
        self._removed_keys(ttl_s)
        self._waits_too_long()
        self._late_schedules()

    def _removed_keys(self, ttl_s: float) -> None:
        world = self.world
        keys = {row[0] for row in self.db.execute("SELECT fingerprint FROM keys")}
        for row in self.db.execute("SELECT job_id, key_fingerprint FROM attempts WHERE ended_at IS NULL"):
            if row[1] in keys:
                self._keyless.pop(row[0], None)
            elif world.seconds_since(self._keyless.setdefault(row[0], world.ran_us)) > ttl_s + 9:
                self.breaks("SR-27", f"job {row[0]} is still held under a key that was removed")

    def _waits_too_long(self) -> None:
        world = self.world
        timeout_s, now = world.life.upkeep._policy.queue_timeout_s, world.life.clock.now()
        if world.seconds_since(self._began_us) < 3:
            return  # a start may find that days have passed; its first sweep is about to
        if timeout_s and (late := round((timeout_s + 30) * 1e6)):
            for job in self.queued.values():
                if not job.set_aside and now - job.enqueued_at > late and not self._queued_lately(job, now - late):
                    self.breaks("I-01", f"job {job.id} waits longer than queue_timeout {timeout_s} s")

    def _late_schedules(self) -> None:
        """Each minute of a schedule is taken at the next look, or passed with a reason."""
        world, now = self.world, self.world.life.clock.now()
        late = round((limits.LOOK_S + 3 + 20 * world.life.store.slow_s) * 1e6)
        if world.seconds_since(self._began_us) * 1e6 > late:
            for row in self.db.execute("SELECT * FROM schedules WHERE next_at <= ?", (now - late,)):
                self.breaks("a schedule", f"{tuple(row)} was due {(now - row['next_at']) / 1e6} s ago")

    def _queued_lately(self, job: Seen, since: int) -> bool:
        row = self.db.execute("SELECT queued_at FROM jobs WHERE id = ?", (job.id,)).fetchone()
        lately = self.world.caps[-1][0]  # settings changed: the sweep has had no time yet
        return bool(row[0] > since or self.world.ran_us / 1e6 - lately < 30)

    def _faults(self) -> None:
        for sweep in self.world.life.sweeps:
            if sweep.failures:
                self.breaks("a sweep", f"{sweep.name} failed: {sweep.last_error}")
        if self.world.faults.seen:
            self.breaks("the log", self.world.faults.seen.pop())

    def _explained(self) -> None:
        """I-24: a reason that is shown is true, and none is shown exactly when nothing stands in the way."""
        world = self.world
        desk = world.life.leasing._desk
        if not len(world.life.roster):
            return
        self._blocked_explained()
        if not self.queued:
            return
        job = world.rng.choice(list(self.queued.values()))
        asks, cap, now = desk.asks(), desk.policy.cap, world.life.clock.now()
        explained = world.life.store.glimpse(reads.explain_job, job.id, asks, cap)
        for session, ask, verdict in zip(world.life.roster, asks, explained.verdicts, strict=True):
            true = self._obstacles(job, session, cap, now)
            true |= {Why.DISK_LOW} if ask.disk_low else set()
            true |= {Why.NOT_ASKING} if not ask.asking else set()
            shown = None if verdict.reason is None else verdict.reason.code
            self.whys[shown or "would_take"] += 1
            if (shown is None and true) or (shown is not None and shown not in true):
                if job.id in self.damaged:
                    continue
                self.breaks("I-24", f"job {job.id} and {verdict.runner}: shown {shown}, true are {sorted(true)}")

    def _blocked_explained(self) -> None:
        """I-24 of a blocked job: what it is said to wait for is not over, and every runner is given the same reason."""
        world, desk = self.world, self.world.life.leasing._desk
        blocked = [job for job in self.jobs.values() if job.state is State.BLOCKED and not job.set_aside]
        if not blocked:
            return
        job = world.rng.choice(blocked)
        if any(one.set_aside or one.id in self.damaged for one in self.runs[job.run]):
            return
        explained = world.life.store.glimpse(reads.explain_job, job.id, desk.asks(), desk.policy.cap)
        said, group = explained.demand.waits_for, explained.demand.group
        true = self._has_group(job, group) if self._in_line(job) else group is None and self._needs(job, said)
        code = Why.WAITS_FOR if group is None else Why.CONCURRENCY_GROUP
        shown = {None if verdict.reason is None else verdict.reason.code for verdict in explained.verdicts}
        self.whys[code] += 1
        if not true or shown != {code}:
            self.breaks(
                "I-24", f"job {job.id} is blocked, said: {said!r}, group {group}, to runners {sorted(map(str, shown))}"
            )

    def _in_line(self, job: Seen) -> sqlite3.Row | None:
        """Who has the group that the job or its run waits for."""
        found: sqlite3.Row | None = self.db.execute(
            "SELECT h.run_id, h.job_id, r.number, p.name, k.key FROM group_places g JOIN group_places h "
            "ON h.repo_id = g.repo_id AND h.name = g.name AND h.within = g.within AND h.held_at IS NOT NULL "
            "JOIN runs r ON r.id = h.run_id JOIN repos p ON p.id = r.repo_id LEFT JOIN jobs k ON k.id = h.job_id "
            "WHERE g.run_id = ? AND (g.job_id IS NULL OR g.job_id = ?) AND g.held_at IS NULL",
            (job.run, job.id),
        ).fetchone()
        return found

    def _has_group(self, job: Seen, said: str | None) -> bool:
        holder = self._in_line(job)
        assert holder is not None, "asked of one in a line"
        members = [one for one in self.runs[holder["run_id"]] if holder["job_id"] in (None, one.id)]
        if any(one.set_aside or one.id in self.damaged for one in members):
            return True  # the line goes on at the next sweep
        key = "" if holder["key"] is None else f"/{holder['key']}"
        going = any(one.state is not State.FINISHED for one in members)
        return going and said == f"held by {holder['name']}/{holder['number']}{key}"

    def _needs(self, job: Seen, said: str) -> bool:
        mates = self.runs[job.run]
        if said.startswith("max-parallel "):
            active = [one for one in mates if one.state not in (State.BLOCKED, State.FINISHED)]
            matrix = job.key.partition(".")[0]
            return sum(one.key.partition(".")[0] == matrix for one in active) >= int(said.split()[1])
        names = said.split(", ")
        return any(one.key.partition(".")[0] in names and one.state is not State.FINISHED for one in mates)
