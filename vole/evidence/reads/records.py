"""What is owed a record, and what the tables know of it. Jobs, runs and pushes belong to other rooms: reads only."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace

from vole.base import limits
from vole.base.clock import Moment
from vole.base.errors import NotFound
from vole.base.expressions import to_text
from vole.base.ids import Epoch, JobId, JobKey, RepoId, RepoName, RunId, RunNumber
from vole.evidence import reads
from vole.evidence.model import LogKey
from vole.evidence.records import TOLD
from vole.store.database import Row, View
from vole.wire import codec
from vole.wire.plan import EventFacts
from vole.wire.records import (
    AttemptRecord,
    EventRecord,
    Happened,
    JobRecord,
    KeptFile,
    LeaseRecord,
    LogFacts,
    Note,
    Outcome,
    ReportedTests,
    RunnerFacts,
    RunRecord,
    StartRecord,
)
from vole.wire.runner import StepOutcome

# How an attempt without a result ended, by the cause of its end. What is missing here was lost.
_WITHOUT_RESULT = {"cancelled": "cancelled", "timed_out": "timed_out", "repository_removed": "cancelled"}

_ATTEMPT = """
SELECT a.*, j.key, j.digest, j.conclusion AS job_conclusion, j.reason, j.marked, j.finished_at, r.number, r.commit_id,
  r.workflow_path, r.workflow_blob, p.name AS repo_name, s.labels,
  t.document AS tests
FROM attempts a
JOIN jobs j ON j.id = a.job_id
JOIN runs r ON r.id = j.run_id
JOIN repos p ON p.id = j.repo_id
LEFT JOIN run_labels l ON l.job_id = j.id
LEFT JOIN label_sets s ON s.id = l.label_set_id
LEFT JOIN reports t ON t.job_id = a.job_id AND t.epoch = a.epoch
WHERE a.job_id = :job AND a.epoch = :epoch"""
_RUN = """
SELECT r.*, p.name AS repo_name, o.number AS older, t.due_at, u.received_at, t.started_at,
  coalesce(u.account, t.account) AS starter
FROM runs r
JOIN repos p ON p.id = r.repo_id
LEFT JOIN runs o ON o.id = r.rerun_of
LEFT JOIN pushes u ON u.id = r.push_id
LEFT JOIN starts t ON t.id = r.push_id
WHERE r.id = :run"""
_JOBS = """
SELECT j.*, s.labels, o.number AS carried_from, json_extract(d.document, '$.timeout_from') AS timeout_from,
  (SELECT json_group_array(needs) FROM (SELECT needs FROM job_needs WHERE job_id = j.id ORDER BY needs)) AS needs
FROM jobs j
LEFT JOIN job_documents d ON d.job_id = j.id
LEFT JOIN run_labels l ON l.job_id = j.id
LEFT JOIN label_sets s ON s.id = l.label_set_id
LEFT JOIN jobs ran ON ran.id = j.carried_of
LEFT JOIN runs o ON o.id = ran.run_id
WHERE j.run_id = :run
ORDER BY j.ordinal"""


@dataclass(frozen=True)
class Owed:
    """A row of the outbox. `job` and `epoch` are None for the run itself."""

    row: int
    run: RunId
    job: JobId | None
    epoch: Epoch | None


@dataclass(frozen=True)
class Debtor:
    """A repository that is owed records."""

    repo: RepoId
    name: RepoName


async def debtors(view: View) -> list[Debtor]:
    """The repositories with rows in the outbox that nobody set aside."""
    found = await view.all(
        """
        SELECT p.id, p.name
        FROM repos p
        WHERE EXISTS (SELECT 1 FROM record_outbox b WHERE b.repo_id = p.id AND b.set_aside IS NULL)
        ORDER BY p.id"""
    )
    return [Debtor(RepoId(row["id"]), RepoName(row["name"])) for row in found]


async def owed(view: View, repo: RepoId, most: int) -> list[Owed]:
    """The oldest rows of a repository: a run stands behind its attempts."""
    found = await view.all(
        """
        SELECT id, run_id, job_id, epoch
        FROM record_outbox
        WHERE repo_id = :repo AND set_aside IS NULL
        ORDER BY id
        LIMIT :most""",
        repo=repo,
        most=most,
    )
    return [Owed(row["id"], RunId(row["run_id"]), row["job_id"], row["epoch"]) for row in found]


async def count_owed(view: View) -> dict[RepoId, int]:
    """How many records are owed, by repository; none that was set aside."""
    sql = "SELECT repo_id, count(*) AS n FROM record_outbox WHERE set_aside IS NULL GROUP BY repo_id"
    return {RepoId(row["repo_id"]): row["n"] for row in await view.all(sql)}


async def records_set_aside(view: View) -> list[tuple[RepoId, str, str]]:
    """Rows of the outbox that no record can be made of: repository, run's address, reason."""
    found = await view.all(
        """
        SELECT b.repo_id, p.name || '/' || r.number AS address, b.set_aside
        FROM record_outbox b
        JOIN runs r ON r.id = b.run_id
        JOIN repos p ON p.id = b.repo_id
        WHERE b.set_aside IS NOT NULL
        ORDER BY b.id
        LIMIT :most""",
        most=limits.LIST_MAX,
    )
    return [(RepoId(row["repo_id"]), row["address"], row["set_aside"]) for row in found]


async def attempt(view: View, job: JobId, epoch: Epoch) -> tuple[AttemptRecord, LogKey]:
    """The record of an attempt that is over, and where its log lies. What is stored of a log that is not whole is the
    caller's to say: here it has no bytes. Raises NotFound, Invalid for a row that cannot be read.
    """
    row = await view.one(_ATTEMPT, job=job, epoch=epoch)
    if row is None:
        raise NotFound(f"there is no attempt {epoch} of job {job}")
    notes = await view.all(
        "SELECT level, message, file, line FROM annotations WHERE job_id = :job AND epoch = :epoch ORDER BY ordinal",
        job=job,
        epoch=epoch,
    )
    files = await view.all(
        "SELECT * FROM artifacts WHERE job_id = :job AND epoch = :epoch ORDER BY name, path",
        job=job,
        epoch=epoch,
    )
    text = await view.one("SELECT markdown FROM summaries WHERE job_id = :job AND epoch = :epoch", job=job, epoch=epoch)
    record = AttemptRecord(
        repository=row["repo_name"],
        run=row["number"],
        job=row["key"],
        attempt=row["epoch"],
        commit=row["commit_id"],
        workflow_path=row["workflow_path"],
        workflow_blob=row["workflow_blob"],
        job_digest=row["digest"],
        labels=_labels(row),
        runner=_runner(row),
        conclusion=row["conclusion"] or _WITHOUT_RESULT.get(row["end_cause"], "lost"),
        # One change ends both, so it is one moment; a job that ended otherwise went back to the queue before.
        outcome=None if row["finished_at"] != row["ended_at"] else _outcome(row, row["job_conclusion"]),
        cause=row["end_cause"],
        detail=row["end_detail"],
        steps=tuple(codec.from_json(StepOutcome, step) for step in codec.parse(row["steps"])),
        leased_at=row["leased_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        log=_log(row),
        artifacts=tuple(_kept(file) for file in files),
        marks=await reads.marks(view, job, epoch),
        annotations=tuple(Note(note["level"], note["message"], note["file"], note["line"]) for note in notes),
        summary=None if text is None else text["markdown"],
        tests=None if row["tests"] is None else codec.from_json(ReportedTests, codec.parse(row["tests"])),
        journal=None,
    )
    return record, LogKey(row["repo_name"], row["number"], row["key"], row["epoch"])


def stored(record: AttemptRecord, size: int, sha256: str) -> AttemptRecord:
    """The record, now that it is known what is stored of its log."""
    return replace(record, log=replace(record.log, bytes=size, sha256=sha256))


async def run(view: View, ident: RunId) -> RunRecord:
    """The record of a finished run. Raises NotFound, Invalid for a row that cannot be read."""
    row = await view.one(_RUN, run=ident)
    if row is None:
        raise NotFound(f"there is no run {ident}")
    events = await view.all(
        """
        SELECT e.*, j.key
        FROM events e
        LEFT JOIN jobs j ON j.id = e.job_id
        WHERE e.run_id = :run
        ORDER BY e.id
        LIMIT :most""",
        run=ident,
        most=limits.RECORD_EVENTS_MAX,
    )
    count = await view.one("SELECT count(*) AS n FROM events WHERE run_id = :run", run=ident)
    return RunRecord(
        id=str(ident),
        repository=row["repo_name"],
        run=row["number"],
        start=_start(row),
        event=_event(row["event"]),
        ref=row["ref"],
        commit=row["commit_id"],
        workflow=row["workflow"],
        workflow_path=row["workflow_path"],
        workflow_blob=row["workflow_blob"],
        actor=row["actor"],
        attempt=row["attempt"],
        rerun_of=None if row["older"] is None else RunNumber(row["older"]),
        conclusion=row["conclusion"],
        reason=row["reason"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        jobs=await _jobs(view, ident),
        events=tuple(_happened(event) for event in events),
        left_out=0 if count is None else count["n"] - len(events),
    )


async def _jobs(view: View, ident: RunId) -> tuple[JobRecord, ...]:
    leases: defaultdict[JobId, list[Row]] = defaultdict(list)
    for row in await view.all(
        """
        SELECT a.*
        FROM attempts a
        JOIN jobs j ON j.id = a.job_id
        WHERE j.run_id = :run
        ORDER BY a.job_id, a.epoch
        LIMIT :most""",
        run=ident,
        most=limits.RECORD_EVENTS_MAX,
    ):
        leases[JobId(row["job_id"])].append(row)
    return tuple(_job(row, leases[JobId(row["id"])]) for row in await view.all(_JOBS, run=ident))


def _job(row: Row, leases: list[Row]) -> JobRecord:
    return JobRecord(
        id=str(row["id"]),
        key=row["key"],
        job=row["job"],
        name=row["name"],
        digest=row["digest"],
        labels=_labels(row),
        needs=tuple(codec.parse(row["needs"])),
        timeout_us=row["timeout_us"],
        timeout_from=row["timeout_from"] or "default",
        on_lost=row["on_lost"],
        continue_on_error=bool(row["continue_on_error"]),
        outcome=_outcome(row, row["conclusion"]),
        epoch=row["epoch"],
        epochs=tuple(Epoch(lease["epoch"]) for lease in leases if lease["started_at"] is not None),
        leases=tuple(_lease(lease) for lease in leases if lease["started_at"] is None),
        losses=row["losses"],
        enqueued_at=row["enqueued_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        carried_from=row["carried_from"],
    )


def _lease(row: Row) -> LeaseRecord:
    return LeaseRecord(
        Epoch(row["epoch"]), _runner(row), row["leased_at"], row["ended_at"], row["end_cause"], row["end_detail"]
    )


def _runner(row: Row) -> RunnerFacts:
    return RunnerFacts(
        row["account"], row["key_fingerprint"], row["runner"], row["runner_version"], row["os"], row["arch"]
    )


def _kept(row: Row) -> KeptFile:
    return KeptFile(row["name"], row["path"], row["size"], row["sha256"], row["expires_at"])


def _outcome(row: Row, conclusion: str) -> Outcome:
    return Outcome(conclusion, row["reason"], bool(row["marked"]))


def _labels(row: Row) -> tuple[str, ...]:
    return tuple(sorted(codec.parse(row["labels"] or "[]")))


def _log(row: Row) -> LogFacts:
    whole = row["log_state"] == "complete"
    return LogFacts(
        bytes=row["log_bytes"] if whole else 0,
        sha256=row["log_sha256"] if whole else "",
        state="complete" if whole else "incomplete",
        truncated=bool(row["log_truncated"]),
        declared_bytes=None if whole else row["log_declared"],
        declared_sha256=None if whole else row["log_sha256"],
    )


def _start(row: Row) -> StartRecord | None:
    at = row["received_at"] if row["received_at"] is not None else row["started_at"]
    return None if at is None else StartRecord(str(row["push_id"]), row["starter"], Moment(at), row["due_at"])


def _event(text: str) -> EventRecord:
    facts = codec.from_json(EventFacts, codec.parse(text))
    return EventRecord(
        name=facts.name,
        ref=facts.ref,
        ref_name=facts.ref_name,
        ref_type=facts.ref_type,
        before=facts.before,
        after=facts.after,
        actor=facts.actor,
        forced=facts.forced,
        message=facts.message,
        inputs={name: to_text(value) for name, value in facts.inputs.items()},
    )


def _happened(row: Row) -> Happened:
    detail = json.loads(row["detail"])
    return Happened(
        id=str(row["id"]),
        at=Moment(row["at"]),
        kind=row["kind"],
        job=None if row["key"] is None else JobKey(row["key"]),
        epoch=None if row["epoch"] is None else Epoch(row["epoch"]),
        detail={name: detail[name] for name in TOLD if detail.get(name) is not None},
    )
