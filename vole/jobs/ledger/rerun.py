"""A run once more: the same pinned documents as a new run, which knows the old one. The old one never changes."""

from __future__ import annotations

from dataclasses import dataclass

from vole.base.errors import Conflict, Invalid, NotFound
from vole.base.ids import CommitId, JobId, PushId, RefName, RepoId, RunId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger.enqueue import concurrency_of, enqueue_run
from vole.jobs.model import FAILURES, Carried, Conclusion, QueuedRun, Rerun, RunSource
from vole.store.database import Row, Tx
from vole.wire import codec
from vole.wire.plan import Concurrency, EventFacts, JobPlan, RunPlan, job_digest

_UNDONE = FAILURES | {Conclusion.CANCELLED}  # what `--failed` runs again: also what was cancelled beside a failure


@dataclass(frozen=True)
class _Ended:
    """A job of the old run."""

    id: JobId  # that ran: itself, or the one that it was carried from
    plan: JobPlan
    labels: tuple[str, ...]
    conclusion: Conclusion
    marked: bool
    outputs: str


def rerun_run(tx: Tx, index: QueueIndex, run: RunId, actor: str, *, failed: bool) -> QueuedRun:
    """The run once more; with `failed` only what failed or was cancelled, and whatever needs that.

    Raises NotFound; Conflict for a run that goes on or was run again already; Invalid when there is nothing to run or
    a pinned document cannot be read.
    """
    row = tx.one(rows.RERUNNABLE, run=run)
    if row is None:
        raise NotFound(f"there is no run {run}")
    address = f"{row['repo_name']}/{row['number']}"
    _refuse(row, address)
    ended = [_ended(found) for found in tx.all(rows.ENDED_JOBS, run=run)]
    if not ended:
        raise Invalid(
            f"{address} came back from its record, without the documents that it ran",
            next_step="push the commit again, or start it by hand",
        )
    left_out = _left_out(ended) if failed else []
    if len(left_out) == len(ended):
        raise Invalid(f"no job of {address} failed", next_step=f"run all of it again: rerun {address}")
    carried = {job.plan.key: _carried(job, address) for job in left_out}
    again = Rerun(run, row["attempt"] + 1, actor, carried)
    source = RunSource(RepoId(row["repo_id"]), PushId(row["push_id"]), row["push_ordinal"], again)
    labels: dict[str, tuple[str, ...]] = {job.plan.key: job.labels for job in ended}
    return enqueue_run(tx, index, source, _plan(row, ended, concurrency_of(tx, run)), labels)


def _refuse(row: Row, address: str) -> None:
    if row["reason"]:
        raise Invalid(f"{address} was skipped and has no jobs", next_step="push the commit again, or start it by hand")
    if row["state"] != "finished":
        raise Conflict(f"{address} is not finished", next_step=f"wait for its end, or say: cancel {address}")
    if row["newer"] is not None:
        newer = f"{row['repo_name']}/{row['newer']}"
        raise Conflict(f"{address} was run again already, as {newer}", next_step=f"run that again: rerun {newer}")


def _ended(row: Row) -> _Ended:
    document = row["document"]
    if job_digest(document.encode()) != row["digest"]:
        raise Invalid(f"the document of job {row['key']} is not the one that was pinned; it cannot be run again")
    return _Ended(
        JobId(row["id"] if row["carried_of"] is None else row["carried_of"]),
        JobPlan.read(document),
        tuple(sorted(rows.labels(row["labels"] or "[]"))),
        Conclusion(row["conclusion"]),
        bool(row["marked"]),
        row["outputs"],
    )


def _left_out(ended: list[_Ended]) -> list[_Ended]:
    """The jobs that neither failed nor need, however far, one that did."""
    undone = {job.plan.job for job in ended if job.conclusion in _UNDONE}
    needing: set[str] = set()
    grows = bool(undone)
    while grows:
        more = {job.plan.job for job in ended if (undone | needing).intersection(job.plan.needs)} - needing
        needing |= more
        grows = bool(more)
    return [job for job in ended if job.conclusion not in _UNDONE and job.plan.job not in needing]


def _carried(job: _Ended, address: str) -> Carried:
    reason = f"not run again: this is the result of {address}/{job.plan.key}"
    return Carried(job.id, job.conclusion, job.marked, job.outputs, reason)


def _plan(row: Row, ended: list[_Ended], concurrency: Concurrency | None) -> RunPlan:
    return RunPlan(
        ref=RefName(row["ref"]),
        commit=CommitId(row["commit_id"]),
        workflow=row["workflow"],
        workflow_path=row["workflow_path"],
        workflow_blob=CommitId(row["workflow_blob"]),
        event=codec.from_json(EventFacts, codec.parse(row["event"])),
        jobs=tuple(job.plan for job in ended),
        concurrency=concurrency,
    )
