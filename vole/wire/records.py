"""The forms of records in git: an attempt's and a run's. docs/records.md shows them.

What is None is left out; a number is whole and below 2^53, so ids are text. A new field is a new `v`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from vole.base.clock import Moment
from vole.base.ids import AccountName, CommitId, Epoch, JobKey, RepoName, RunNumber
from vole.wire.runner import Mark, StepOutcome


@dataclass(frozen=True)
class RunnerFacts:
    """Who had the lease. All but account and key is the runner's own claim."""

    account: AccountName
    key: str  # fingerprint
    name: str
    version: str
    os: str
    arch: str


@dataclass(frozen=True)
class LogFacts:
    """The log as it is stored; `declared_*` is what its runner says it sent, where that is something else."""

    bytes: int
    sha256: str
    state: Literal["complete", "incomplete"]
    truncated: bool
    declared_bytes: int | None
    declared_sha256: str | None


@dataclass(frozen=True)
class Outcome:
    """How the job ended. `marked`: success only by continue-on-error."""

    conclusion: str
    reason: str
    marked: bool


@dataclass(frozen=True)
class KeptFile:
    """A file of an artifact, and until when it is kept; None: for ever."""

    name: str
    path: str
    size: int
    sha256: str
    expires_at: Moment | None


@dataclass(frozen=True)
class Note:
    """An annotation."""

    level: str
    message: str
    file: str
    line: int


@dataclass(frozen=True)
class FailedTest:
    """A test case that failed, or could not be run."""

    file: str  # the report
    suite: str
    name: str
    kind: Literal["failure", "error"]
    message: str
    text: str


@dataclass(frozen=True)
class ReportedTests:
    """What an attempt's test reports say together. `failures` are the first REPORT_FAILURES_MAX.

    `problems`: a sentence for each report that was not read, or not to its end.
    """

    passed: int
    failed: int
    errors: int
    skipped: int
    time_us: int
    failures: tuple[FailedTest, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class AttemptRecord:
    """One lease that reached `running`, once it is over.

    `conclusion` is its own: what its runner declared or, without a result, what ended it. `outcome` is the job's, where
    the job ended with this attempt. Times are microseconds since 1970 UTC.
    """

    repository: RepoName
    run: RunNumber
    job: JobKey
    attempt: Epoch
    commit: CommitId
    workflow_path: str
    workflow_blob: CommitId
    job_digest: str
    labels: tuple[str, ...]
    runner: RunnerFacts
    conclusion: str
    outcome: Outcome | None
    cause: str
    detail: str
    steps: tuple[StepOutcome, ...]
    leased_at: Moment
    started_at: Moment
    ended_at: Moment
    log: LogFacts
    artifacts: tuple[KeptFile, ...]
    marks: tuple[Mark, ...]
    annotations: tuple[Note, ...]
    summary: str | None
    tests: ReportedTests | None
    journal: str | None  # head of the step journal


@dataclass(frozen=True)
class EventRecord:
    """What started the run. The values of `-o ci.variable` are not told."""

    name: str
    ref: str
    ref_name: str
    ref_type: str
    before: str | None
    after: str
    actor: str
    forced: bool = False
    message: str = ""
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StartRecord:
    """The push, the person or the minute (`due_at`) that the run comes from."""

    id: str
    account: AccountName | None
    at: Moment
    due_at: Moment | None


@dataclass(frozen=True)
class LeaseRecord:
    """A lease that ended before its job was started: it has no document of its own."""

    epoch: Epoch
    runner: RunnerFacts
    leased_at: Moment
    ended_at: Moment
    cause: str
    detail: str


@dataclass(frozen=True)
class JobRecord:
    """A job as it ended. `epochs`: the attempts that have a document; `leases`: those that never ran."""

    id: str
    key: JobKey
    job: str  # the id in the file
    name: str
    digest: str
    labels: tuple[str, ...]
    needs: tuple[str, ...]
    timeout_us: int
    timeout_from: str
    on_lost: str
    continue_on_error: bool
    outcome: Outcome
    epoch: Epoch  # of the newest lease; 0: none
    epochs: tuple[Epoch, ...]
    leases: tuple[LeaseRecord, ...]
    losses: int
    enqueued_at: Moment
    queued_at: Moment | None
    started_at: Moment | None
    finished_at: Moment
    carried_from: RunNumber | None  # the run whose job counts here, in a rerun that left this one out


@dataclass(frozen=True)
class Happened:
    """A row of the run's event log, as far as whoever may read the run may see it."""

    id: str
    at: Moment
    kind: str
    job: JobKey | None
    epoch: Epoch | None
    detail: dict[str, object]


@dataclass(frozen=True)
class RunRecord:
    """One run, once it is finished. `left_out`: events beyond RECORD_EVENTS_MAX."""

    id: str
    repository: RepoName
    run: RunNumber
    start: StartRecord | None
    event: EventRecord
    ref: str
    commit: CommitId
    workflow: str
    workflow_path: str
    workflow_blob: CommitId
    actor: str
    attempt: int  # 1 + how often it was run again before
    rerun_of: RunNumber | None
    conclusion: str
    reason: str  # of a run that was skipped: `filter` or `skip_ci`
    created_at: Moment
    finished_at: Moment
    jobs: tuple[JobRecord, ...]
    events: tuple[Happened, ...]
    left_out: int
