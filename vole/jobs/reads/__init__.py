"""What is known about runs and jobs. Reads only; explaining asks the grant rule, as leasing does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vole.base import limits
from vole.base.clock import Moment, Span, seconds
from vole.base.errors import NotFound
from vole.base.ids import CommitId, Epoch, JobId, JobKey, RepoId, RepoName, RunId, RunNumber, SessionId
from vole.jobs import rows
from vole.jobs.explain import Explained, Verdict
from vole.jobs.match import Ask, Counted, reason
from vole.jobs.model import Ended, RunState, Told
from vole.jobs.rows import shown
from vole.jobs.rows.shown import AttemptRow, JobRow, RunRow, WaitingRow
from vole.store.database import Row, View
from vole.wire.plan import JobPlan


@dataclass(frozen=True)
class Pinned:
    """What the source channel of a job serves."""

    commit: CommitId
    depth: int


# ---- Explaining


async def explain_run(view: View, run: RunId, asks: Sequence[Ask], cap: int | None) -> list[Explained]:
    """Every job of the run, in the order of the file. Raises NotFound."""
    found = await view.all(rows.DEMAND.format("j.run_id = :run ORDER BY j.ordinal"), run=run)
    if not found:
        await _row_of_run(view, run)
        return []
    facts = await _facts(view, found[0], cap)
    return [_explained(row, asks, facts, await _rested(view, row)) for row in found]


async def explain_job(view: View, job: JobId, asks: Sequence[Ask], cap: int | None) -> Explained:
    """One job. Raises NotFound."""
    row = await view.one(rows.DEMAND.format("j.id = :job"), job=job)
    if row is None:
        raise NotFound(f"there is no job {job}")
    return _explained(row, asks, await _facts(view, row, cap), await _rested(view, row))


def _explained(row: Row, asks: Sequence[Ask], facts: _Facts, rested: _Rested) -> Explained:
    demand = rows.demand(row)
    verdicts = tuple(Verdict(ask.holder.name, ask.labels, reason(demand, ask, facts.of(ask, rested))) for ask in asks)
    address = f"{row['repo_name']}/{row['number']}/{row['key']}"
    return Explained(address, row["key"], demand, row["runner"], row["conclusion"], verdicts)


_Rested = frozenset[tuple[str, str]]  # key and name of the runners that gave a job back just now


@dataclass(frozen=True)
class _Facts:
    """What the rows say of one repository and every runner: the questions that a lease asks about one pair."""

    granted: frozenset[str]  # keys
    running_here: dict[int, int]  # by session
    running_repo: int
    cap: int | None

    def of(self, ask: Ask, rested: _Rested) -> Counted:
        rests = (ask.holder.key_fingerprint, ask.holder.name) in rested
        return Counted(
            granted=ask.holder.key_fingerprint in self.granted,
            running_here=self.running_here.get(ask.holder.session, 0),
            running_repo=self.running_repo,
            cap=self.cap,
            rest_s=limits.HANDBACK_REST_S if rests else None,
        )


async def _facts(view: View, row: Row, cap: int | None) -> _Facts:
    granted = await view.all(rows.GRANTED_KEYS, repo=row["repo_id"])
    here = await view.all(rows.LIVE_BY_SESSION)
    running = await view.one(rows.RUNNING_IN_REPO, repo=row["repo_id"])
    return _Facts(
        granted=frozenset(key["fingerprint"] for key in granted),
        running_here={live["session_id"]: live["count"] for live in here},
        running_repo=0 if running is None else running["count"],
        cap=cap,
    )


async def _rested(view: View, row: Row) -> _Rested:
    if row["epoch"] == 0:
        return frozenset()
    since = view.now - seconds(limits.HANDBACK_REST_S)
    found = await view.all(rows.RESTED, job=row["id"], since=since)
    return frozenset((rest["key_fingerprint"], rest["runner"]) for rest in found)


# ---- What flows ask


async def last_moment(view: View) -> Moment:
    """When the newest event was; 0 where there is none."""
    row = await view.one("SELECT at FROM events ORDER BY id DESC LIMIT 1")
    return Moment(0 if row is None else row["at"])


async def unfinished(view: View) -> list[tuple[JobId, str]]:
    """Every job that is not finished, with its address; one of a repository that is gone has none."""
    found = await view.all(
        """
        SELECT j.id, p.name || '/' || r.number || '/' || j.key AS address
        FROM jobs j
        JOIN runs r ON r.id = j.run_id
        LEFT JOIN repos p ON p.id = j.repo_id
        WHERE j.state <> 'finished'
        ORDER BY j.id"""
    )
    return [(JobId(row["id"]), row["address"] or "") for row in found]


async def last_numbers(view: View) -> dict[RepoName, RunNumber]:
    """The last run number that each repository gave."""
    found = await view.all("SELECT p.name, n.next - 1 AS last FROM run_numbers n JOIN repos p ON p.id = n.repo_id")
    return {RepoName(row["name"]): RunNumber(row["last"]) for row in found}


async def old_runs(view: View, repo: RepoId | None, before: Moment, most: int) -> list[RunId]:
    """Runs that finished before that and that no newer one repeats, oldest first; those that owe a record are not."""
    found = await view.all(
        """
        SELECT r.id
        FROM runs r
        WHERE r.finished_at < :before AND coalesce(:repo, r.repo_id) = r.repo_id
          AND NOT EXISTS (SELECT 1 FROM runs n WHERE n.rerun_of = r.id)
          AND NOT EXISTS (SELECT 1 FROM record_outbox b WHERE b.run_id = r.id)
        ORDER BY r.id
        LIMIT :most""",
        repo=repo,
        before=before,
        most=most,
    )
    return [RunId(row["id"]) for row in found]


async def was_pruned(view: View, repo: RepoId, number: RunNumber) -> bool:
    """Whether there was a run of that number that retention forgot, as far as numbers tell."""
    row = await view.one(
        """
        SELECT 1
        FROM run_numbers n
        WHERE n.repo_id = :repo AND :number < n.next AND n.pruned > 0
          AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.repo_id = :repo AND r.number = :number)""",
        repo=repo,
        number=number,
    )
    return row is not None


@dataclass(frozen=True)
class RunsKept:
    """How many runs of a repository have rows, and how many had."""

    kept: int = 0
    pruned: int = 0


async def runs_kept(view: View) -> defaultdict[RepoId, RunsKept]:
    """The runs of each repository, counted."""
    found = await view.all(
        """
        SELECT n.repo_id, n.pruned, (SELECT count(*) FROM runs r WHERE r.repo_id = n.repo_id) AS kept
        FROM run_numbers n"""
    )
    return defaultdict(RunsKept, {RepoId(row["repo_id"]): RunsKept(row["kept"], row["pruned"]) for row in found})


async def find_run(view: View, repo: RepoId, number: RunNumber) -> RunId:
    """Raises NotFound."""
    row = await view.one("SELECT id FROM runs WHERE repo_id = :repo AND number = :number", repo=repo, number=number)
    if row is None:
        raise NotFound(f"there is no run {number}")
    return RunId(row["id"])


async def find_job(view: View, run: RunId, key: JobKey) -> JobId:
    """Raises NotFound."""
    row = await view.one("SELECT id FROM jobs WHERE run_id = :run AND key = :key", run=run, key=key)
    if row is None:
        raise NotFound(f"the run has no job {key}")
    return JobId(row["id"])


async def pinned(view: View, job: JobId) -> Pinned:
    """Commit and depth that the job was enqueued with. Raises NotFound."""
    row = await view.one("SELECT document FROM job_documents WHERE job_id = :job", job=job)
    if row is None:
        raise NotFound(f"there is no job {job}")
    plan = JobPlan.read(row["document"])
    return Pinned(plan.commit, plan.checkout_depth)


async def overdue(view: View, queue_timeout_s: float) -> list[JobId]:
    """Queued jobs that wait longer than `queue_timeout_s` or will in a second; none when that is 0.

    A second early, so that whoever explains them and then ends those that are due has each one's reason.
    """
    if not queue_timeout_s:
        return []
    found = await view.all(rows.OVERDUE, since=view.now - seconds(queue_timeout_s - 1.0), most=limits.SWEEP_ROWS_MAX)
    return [JobId(row["id"]) for row in found]


async def commits_since(view: View, repo: RepoId, span: Span) -> list[CommitId]:
    """The commits of runs that are not finished, or are finished for at most `span`."""
    found = await view.all(
        """
        SELECT DISTINCT commit_id
        FROM runs
        WHERE repo_id = :repo AND (state <> 'finished' OR finished_at >= :since)""",
        repo=repo,
        since=view.now - span,
    )
    return [CommitId(row["commit_id"]) for row in found]


async def ended_with_repo(view: View, repo: RepoId) -> list[Ended]:
    """The leases that ended because their repository was removed: whom to tell."""
    found = await view.all(rows.ENDED_WITH_REPO, repo=repo)
    return [
        Ended(SessionId(row["session_id"]), JobId(row["job_id"]), Epoch(row["epoch"]), "repository_removed")
        for row in found
    ]


async def run_states(view: View, runs: Sequence[RunId]) -> dict[RunId, RunState]:
    """How far each run is, in one line: what a push that waits prints. One that went with its repository is over."""
    return {run: await _run_state(view, run) for run in runs}


async def _run_state(view: View, run: RunId) -> RunState:
    try:
        row = await _row_of_run(view, run)
    except NotFound:
        return RunState("forgotten: the repository was removed", finished=True)
    jobs = await view.all(rows.RUN_PROGRESS, run=run)
    if row["state"] == "finished":
        bad = [job["key"] for job in jobs if job["conclusion"] not in ("success", "skipped")]
        return RunState(row["conclusion"] + (f": {', '.join(bad)}" if bad else ""), finished=True)
    busy = [f"{job['key']} on {job['runner']}" for job in jobs if job["runner"] is not None]
    return RunState("running: " + ", ".join(busy) if busy else row["state"], finished=False)


async def _row_of_run(view: View, run: RunId) -> Row:
    row = await view.one("SELECT state, conclusion FROM runs WHERE id = :run", run=run)
    if row is None:
        raise NotFound(f"there is no run {run}")
    return row


# ---- What replay is told


async def events_of_jobs(view: View, since: Moment, until: Moment, most: int) -> list[Told]:
    """What happened until `until` to every job that had not finished before `since`, in order; at most `most`.

    Jobs that came back from their records are left out: what they asked for is not in their events.
    """
    found = await view.all(
        """
        SELECT e.id, e.at, e.batch, e.repo_id, e.run_id, e.job_id, e.epoch, e.kind, e.detail
        FROM events e
        JOIN jobs j ON j.id = e.job_id
        WHERE e.at <= :until AND (j.finished_at IS NULL OR j.finished_at >= :since)
          AND NOT EXISTS (SELECT 1 FROM rebuilt_jobs b WHERE b.job_id = j.id)
        ORDER BY e.id
        LIMIT :most""",
        since=since,
        until=until,
        most=most,
    )
    return [rows.told(row) for row in found]


async def needs_of(view: View, jobs: Iterable[JobId]) -> dict[JobId, tuple[JobId, ...]]:
    """The jobs that each of `jobs` needs; one that needs none is missing."""
    found = await view.all(
        """
        SELECT n.job_id, o.id
        FROM job_needs n
        JOIN jobs j ON j.id = n.job_id
        JOIN jobs o ON o.run_id = j.run_id AND o.job = n.needs
        WHERE n.job_id IN (SELECT value FROM json_each(:jobs))""",
        jobs=json.dumps(list(jobs)),
    )
    needs: dict[JobId, tuple[JobId, ...]] = {}
    for row in found:
        needs[JobId(row["job_id"])] = (*needs.get(JobId(row["job_id"]), ()), JobId(row["id"]))
    return needs


async def address_of(view: View, job: JobId) -> str:
    """`app/12/test`; of a job whose repository is gone, its number."""
    row = await view.one(
        """
        SELECT p.name || '/' || r.number || '/' || j.key AS address
        FROM jobs j
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        WHERE j.id = :job""",
        job=job,
    )
    return f"job {job}" if row is None else str(row["address"])


# ---- What commands list


@dataclass(frozen=True)
class RunLine:
    """A run in a list."""

    id: RunId
    repo: RepoName
    number: RunNumber
    workflow: str
    ref: str
    commit: CommitId
    state: str
    conclusion: str | None
    actor: str
    created_at: Moment
    finished_at: Moment | None
    event: str  # what started it: push, manual, schedule
    attempt: int
    older: RunNumber | None  # of which it is the rerun


@dataclass(frozen=True)
class JobLine:
    """A job in a list. `runner`: who has it now."""

    id: JobId
    address: str
    key: JobKey
    state: str
    conclusion: str | None
    reason: str
    epoch: Epoch
    labels: tuple[str, ...]
    runner: str | None
    enqueued_at: Moment
    started_at: Moment | None


async def recent_runs(view: View, repos: Iterable[RepoId], most: int) -> list[RunLine]:
    """The last runs of these repositories, newest first."""
    return [_run_line(row) for row in await view.all(rows.RECENT_RUNS, repos=json.dumps(list(repos)), most=most)]


async def unfinished_jobs(view: View, repos: Iterable[RepoId], most: int) -> list[JobLine]:
    """What waits and what runs in these repositories, in the order of enqueueing."""
    where = """j.state <> 'finished' AND j.repo_id IN (SELECT value FROM json_each(:repos))
      ORDER BY j.enqueued_at, j.id LIMIT :most"""
    found = await view.all(rows.JOB_LINES.format(where), repos=json.dumps(list(repos)), most=most)
    return [_job_line(row) for row in found]


async def jobs_of_run(view: View, run: RunId) -> list[JobLine]:
    """Every job of a run, in the order of the file."""
    return [
        _job_line(row) for row in await view.all(rows.JOB_LINES.format("j.run_id = :run ORDER BY j.ordinal"), run=run)
    ]


async def job_line(view: View, job: JobId) -> JobLine:
    """One job as it is now. Raises NotFound."""
    row = await view.one(rows.JOB_LINES.format("j.id = :job"), job=job)
    if row is None:
        raise NotFound(f"there is no job {job}")
    return _job_line(row)


def _run_line(row: Row) -> RunLine:
    return RunLine(
        id=RunId(row["id"]),
        repo=RepoName(row["repo_name"]),
        number=RunNumber(row["number"]),
        workflow=row["workflow"],
        ref=row["ref"],
        commit=CommitId(row["commit_id"]),
        state=row["state"],
        conclusion=row["conclusion"],
        actor=row["actor"],
        created_at=Moment(row["created_at"]),
        finished_at=None if row["finished_at"] is None else Moment(row["finished_at"]),
        event=row["event"] or "push",
        attempt=row["attempt"],
        older=None if row["older"] is None else RunNumber(row["older"]),
    )


def _job_line(row: Row) -> JobLine:
    return JobLine(
        id=JobId(row["id"]),
        address=f"{row['repo_name']}/{row['number']}/{row['key']}",
        key=JobKey(row["key"]),
        state=row["state"],
        conclusion=row["conclusion"],
        reason=rows.reason(row),
        epoch=Epoch(row["epoch"]),
        labels=tuple(sorted(rows.labels(row["labels"] or "[]"))),
        runner=row["runner"],
        enqueued_at=Moment(row["enqueued_at"]),
        started_at=None if row["started_at"] is None else Moment(row["started_at"]),
    )


# ---- Pages


async def last_runs(view: View) -> dict[RepoId, RunRow]:
    """The newest run of each repository."""
    newest = "SELECT x.id FROM runs x WHERE x.repo_id = p.id ORDER BY x.number DESC LIMIT 1"
    found = await view.all(f"{shown.RUN} WHERE r.id IN (SELECT ({newest}) FROM repos p)")
    return {RepoId(row["repo_id"]): shown.run_row(row) for row in found}


async def runs_of(view: View, repo: RepoId, before: int | None, most: int) -> list[RunRow]:
    """At most `most` of a repository's runs, newest first, with numbers under `before`."""
    where = "WHERE r.repo_id = :repo AND (:before IS NULL OR r.number < :before) ORDER BY r.number DESC LIMIT :most"
    found = await view.all(f"{shown.RUN} {where}", repo=repo, before=before, most=most)
    return [shown.run_row(row) for row in found]


async def runs_of_commit(view: View, repo: RepoId, commit: CommitId) -> list[RunRow]:
    """The runs at a commit, newest first."""
    # The plus keeps SQLite on the index of commits: by number it would look at every run there is.
    where = "WHERE r.repo_id = :repo AND r.commit_id = :commit ORDER BY +r.number DESC LIMIT :most"
    return [
        shown.run_row(row)
        for row in await view.all(f"{shown.RUN} {where}", repo=repo, commit=commit, most=limits.LIST_MAX)
    ]


async def runs_at(view: View, repo: RepoId, ref: str, most: int) -> list[RunRow]:
    """At most `most` of the runs at a full ref name, newest first."""
    where = "WHERE r.repo_id = :repo AND r.ref = :ref ORDER BY r.number DESC LIMIT :most"
    return [shown.run_row(row) for row in await view.all(f"{shown.RUN} {where}", repo=repo, ref=ref, most=most)]


async def run_numbered(view: View, repo: RepoId, number: RunNumber) -> RunRow | None:
    """The run `app/12`."""
    row = await view.one(f"{shown.RUN} WHERE r.repo_id = :repo AND r.number = :number", repo=repo, number=number)
    return None if row is None else shown.run_row(row)


async def job_rows(view: View, run: RunId) -> list[JobRow]:
    """The jobs of a run with what was pinned, in the order of the file."""
    found = await view.all(
        f"""
        SELECT j.id, j.job, j.key, j.name, j.state, j.conclusion, j.reason, {rows.GROUP_HOLDER}, j.marked,
          j.continue_on_error, j.epoch, j.timeout_us, j.enqueued_at, j.started_at, j.finished_at, j.set_aside,
          {rows.LABELS}, coalesce(json_extract(d.document, '$.timeout_from'), b.timeout_from) AS timeout_from,
          (SELECT o.number FROM jobs ran JOIN runs o ON o.id = ran.run_id WHERE ran.id = j.carried_of) AS carried_from,
          (SELECT json_group_array(n.needs) FROM job_needs n WHERE n.job_id = j.id) AS needs
        FROM jobs j
        LEFT JOIN job_documents d ON d.job_id = j.id
        LEFT JOIN rebuilt_jobs b ON b.job_id = j.id
        LEFT JOIN run_labels l ON l.job_id = j.id
        LEFT JOIN label_sets s ON s.id = l.label_set_id
        WHERE j.run_id = :run
        ORDER BY j.ordinal""",
        run=run,
    )
    return [shown.job_row(row) for row in found]


async def attempt_rows(view: View, run: RunId) -> list[AttemptRow]:
    """The attempts of a run's jobs, newest first."""
    found = await view.all(
        """
        SELECT a.job_id, a.epoch, a.runner, a.account, a.key_fingerprint, a.runner_version, a.os, a.arch, a.leased_at,
          a.started_at, a.ended_at, a.end_cause, a.end_detail, a.conclusion, a.log_declared, a.log_state,
          a.log_truncated, a.steps
        FROM jobs j
        JOIN attempts a ON a.job_id = j.id
        WHERE j.run_id = :run
        ORDER BY a.job_id, a.epoch DESC""",
        run=run,
    )
    return [shown.attempt_row(row) for row in found]


async def keyless_holders(view: View) -> list[SessionId]:
    """The runner processes that hold leases under a key that is gone."""
    found = await view.all(
        """
        SELECT DISTINCT a.session_id
        FROM attempts a
        WHERE a.ended_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM keys k WHERE k.fingerprint = a.key_fingerprint AND k.kind = 'runner')"""
    )
    return [SessionId(row["session_id"]) for row in found]


async def attempt_ended(view: View, job: JobId, epoch: Epoch) -> bool:
    """True when the lease is over, or gone with its repository."""
    live = "SELECT 1 FROM attempts WHERE job_id = :job AND epoch = :epoch AND ended_at IS NULL"
    return await view.one(live, job=job, epoch=epoch) is None


async def held_rows(view: View) -> list[WaitingRow]:
    """Every job that a process holds, oldest lease first."""
    found = await view.all(
        f"""
        SELECT j.id, j.repo_id, p.name AS repo_name, j.run_id, r.number, j.key, NULL AS labels, j.state, j.reason,
          a.runner, a.session_id, NULL AS group_holder, a.leased_at AS since, j.enqueued_at,
          {rows.STARTED}
        FROM jobs j
        JOIN attempts a ON a.job_id = j.id AND a.ended_at IS NULL
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        WHERE j.{rows.HELD}
        ORDER BY a.leased_at"""
    )
    return [shown.waiting_row(row) for row in found]


async def set_aside(view: View, repos: Iterable[RepoId]) -> list[tuple[str, str]]:
    """Jobs of `repos` whose rows are not worked on: address and reason."""
    found = await view.all(
        """
        SELECT p.name || '/' || r.number || '/' || j.key AS address, j.set_aside
        FROM jobs j
        JOIN runs r ON r.id = j.run_id
        JOIN repos p ON p.id = j.repo_id
        WHERE j.set_aside IS NOT NULL AND j.state <> 'finished'
          AND j.repo_id IN (SELECT value FROM json_each(:repos))
        ORDER BY j.id
        LIMIT :most""",
        repos=json.dumps(list(repos)),
        most=limits.LIST_MAX,
    )
    return [(row["address"], row["set_aside"]) for row in found]
