"""Runs, jobs, attempts and what waits, as pages and the API show them: rows as values. Decides nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass

from vole.base.clock import Moment
from vole.base.errors import Invalid
from vole.base.ids import CommitId, Epoch, JobId, JobKey, RepoId, RepoName, RunId, RunNumber, SessionId
from vole.jobs import rows
from vole.jobs.model import Conclusion, State
from vole.store.database import Row
from vole.wire import codec
from vole.wire.plan import EventFacts
from vole.wire.runner import StepOutcome

RUN = """
SELECT r.id, r.repo_id, r.number, r.ref, r.commit_id, r.workflow, r.workflow_path, r.workflow_blob, r.event, r.actor,
  r.attempt, r.state, r.conclusion, r.reason, r.created_at, r.finished_at,
  (SELECT o.number FROM runs o WHERE o.id = r.rerun_of) AS older,
  (SELECT n.number FROM runs n WHERE n.rerun_of = r.id) AS newer,
  EXISTS (SELECT 1 FROM jobs j WHERE j.run_id = r.id AND j.marked = 1) AS marked
FROM runs r"""


@dataclass(frozen=True)
class RunRow:
    """A run. `marked`: a job of it failed, and its file says that this is no failure."""

    id: RunId
    repo: RepoId
    number: RunNumber
    ref: str
    commit: CommitId
    workflow: str
    workflow_path: str
    workflow_blob: str
    event: EventFacts
    actor: str
    attempt: int
    older: RunNumber | None  # of which it is the rerun
    newer: RunNumber | None  # its rerun
    state: str
    conclusion: Conclusion | None
    reason: str
    created_at: Moment
    finished_at: Moment | None
    marked: bool


@dataclass(frozen=True)
class JobRow:
    """A job with what was pinned about it. `labels`: what it asks of a runner."""

    id: JobId
    job: str
    key: JobKey
    name: str
    needs: tuple[str, ...]
    labels: tuple[str, ...]
    state: State
    conclusion: Conclusion | None
    reason: str
    marked: bool
    continue_on_error: bool
    epoch: Epoch
    timeout_us: int
    timeout_from: str  # where the limit came from: `default` or `job`
    enqueued_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    set_aside: str | None
    carried_from: RunNumber | None  # the run that has its log: this one did not run it again


@dataclass(frozen=True)
class AttemptRow:
    """One lease of a job: who had it, how it ended, how whole its log is."""

    job: JobId
    epoch: Epoch
    runner: str
    account: str
    key_fingerprint: str
    runner_version: str
    os: str
    arch: str
    leased_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    end_cause: str | None
    end_detail: str
    conclusion: str | None
    log_declared: int | None
    log_state: str
    log_truncated: bool
    steps: tuple[StepOutcome, ...]


@dataclass(frozen=True)
class WaitingRow:
    """A job that is not finished, with its address, and what started its run. `session`: the process that has it."""

    id: JobId
    repo: RepoId
    repo_name: RepoName
    run_id: RunId
    run: RunNumber
    key: JobKey
    labels: tuple[str, ...]
    state: State
    reason: str
    enqueued_at: Moment
    since: Moment
    runner: str | None
    session: SessionId | None
    event: str  # push, manual, schedule
    actor: str
    older: RunNumber | None  # of which its run is the rerun


@dataclass(frozen=True)
class Depth:
    """How many jobs of one label set wait, and the oldest of them."""

    labels: tuple[str, ...]
    count: int
    job: JobId
    repo_name: RepoName
    run: RunNumber
    key: JobKey
    since: Moment


def run_row(row: Row) -> RunRow:
    """A row whose event this version cannot read still has its page."""
    try:
        event = codec.from_json(EventFacts, codec.parse(row["event"]), strict=False)
    except Invalid:
        event = EventFacts("push", row["ref"], row["ref"], "branch", None, row["commit_id"], row["actor"])
    return RunRow(
        id=RunId(row["id"]),
        repo=RepoId(row["repo_id"]),
        number=RunNumber(row["number"]),
        ref=row["ref"],
        commit=CommitId(row["commit_id"]),
        workflow=row["workflow"],
        workflow_path=row["workflow_path"],
        workflow_blob=row["workflow_blob"],
        event=event,
        actor=row["actor"],
        attempt=row["attempt"],
        older=None if row["older"] is None else RunNumber(row["older"]),
        newer=None if row["newer"] is None else RunNumber(row["newer"]),
        state=row["state"],
        conclusion=None if row["conclusion"] is None else Conclusion(row["conclusion"]),
        reason=row["reason"],
        created_at=Moment(row["created_at"]),
        finished_at=_moment(row["finished_at"]),
        marked=bool(row["marked"]),
    )


def job_row(row: Row) -> JobRow:
    return JobRow(
        id=JobId(row["id"]),
        job=row["job"],
        key=JobKey(row["key"]),
        name=row["name"],
        needs=tuple(json.loads(row["needs"])),
        labels=tuple(json.loads(row["labels"] or "[]")),
        state=State(row["state"]),
        conclusion=None if row["conclusion"] is None else Conclusion(row["conclusion"]),
        reason=rows.reason(row),
        marked=bool(row["marked"]),
        continue_on_error=bool(row["continue_on_error"]),
        epoch=Epoch(row["epoch"]),
        timeout_us=row["timeout_us"],
        timeout_from=row["timeout_from"] or "default",
        enqueued_at=Moment(row["enqueued_at"]),
        started_at=_moment(row["started_at"]),
        finished_at=_moment(row["finished_at"]),
        set_aside=row["set_aside"],
        carried_from=None if row["carried_from"] is None else RunNumber(row["carried_from"]),
    )


def attempt_row(row: Row) -> AttemptRow:
    return AttemptRow(
        job=JobId(row["job_id"]),
        epoch=Epoch(row["epoch"]),
        runner=row["runner"],
        account=row["account"],
        key_fingerprint=row["key_fingerprint"],
        runner_version=row["runner_version"],
        os=row["os"],
        arch=row["arch"],
        leased_at=Moment(row["leased_at"]),
        started_at=_moment(row["started_at"]),
        ended_at=_moment(row["ended_at"]),
        end_cause=row["end_cause"],
        end_detail=row["end_detail"],
        conclusion=row["conclusion"],
        log_declared=row["log_declared"],
        log_state=row["log_state"],
        log_truncated=bool(row["log_truncated"]),
        steps=_steps(row["steps"]),
    )


def _steps(text: str) -> tuple[StepOutcome, ...]:
    try:
        return tuple(codec.from_json(StepOutcome, value, strict=False) for value in codec.parse(text))
    except Invalid:
        return ()


def waiting_row(row: Row) -> WaitingRow:
    return WaitingRow(
        id=JobId(row["id"]),
        repo=RepoId(row["repo_id"]),
        repo_name=RepoName(row["repo_name"]),
        run_id=RunId(row["run_id"]),
        run=RunNumber(row["number"]),
        key=JobKey(row["key"]),
        labels=tuple(json.loads(row["labels"] or "[]")),
        state=State(row["state"]),
        reason=rows.reason(row),
        enqueued_at=Moment(row["enqueued_at"]),
        since=Moment(row["since"]),
        runner=row["runner"],
        session=None if row["session_id"] is None else SessionId(row["session_id"]),
        event=row["event"] or "push",
        actor=row["actor"],
        older=None if row["older"] is None else RunNumber(row["older"]),
    )


def depth(row: Row) -> Depth:
    return Depth(
        labels=tuple(json.loads(row["labels"])),
        count=row["count"],
        job=JobId(row["id"]),
        repo_name=RepoName(row["repo_name"]),
        run=RunNumber(row["number"]),
        key=JobKey(row["key"]),
        since=Moment(row["since"]),
    )


def _moment(value: int | None) -> Moment | None:
    return None if value is None else Moment(value)
