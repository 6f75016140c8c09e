"""The one way a job changes: along a row of `model.MOVES`, at its state and epoch, with its event, and the index after.

Nothing else updates `jobs.state`, and no attempt ends without its cause in the event log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from vole.base import limits
from vole.base.errors import Fenced
from vole.base.ids import Epoch, JobId, RepoId, RunId, SessionId
from vole.jobs import rows
from vole.jobs.index import QueueIndex
from vole.jobs.ledger import outbox
from vole.jobs.model import FORGIVEN, HELD, MOVES, Conclusion, EndCause, Ended, Happening, Held, Job, State
from vole.store.database import Tx

Fields = Mapping[str, object]
_NOTHING: Fields = {}
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for each event

_INSERT_EVENT = """
INSERT INTO events (id, at, repo_id, run_id, job_id, epoch, kind, detail, batch)
VALUES (:id, :at, :repo, :run, :job, :epoch, :kind, :detail, :batch)"""


def move(
    tx: Tx, index: QueueIndex, job: Job, what: Happening, to: State, *, fields: Fields = _NOTHING, **detail: object
) -> Job:
    """The job after `what` took it to `to`; `fields` are further columns, `detail` goes into the event.

    Raises Fenced, with nothing changed, when the row is no longer at the job's state and epoch.
    """
    assert to in MOVES.get((job.state, what), ()), f"{job.state} -{what}-> {to} is no row of the table"
    values = {**_held_until(job, to), **fields}
    changed = tx.connection.execute(
        _update(tuple(values)), {**values, "to": to, "id": job.id, "was": job.state, "was_epoch": job.epoch}
    ).rowcount
    if changed != 1:
        raise Fenced(f"job {job.id} is no longer {job.state} at epoch {job.epoch}. Nothing was changed.")
    moved = _moved(job, to, values)
    event(tx, job.repo, job.run, what, {"to": to, **detail}, job=job.id, epoch=moved.epoch)
    if job.state is State.QUEUED:
        tx.after_commit(lambda: index.remove(job.id))
    if job.state in HELD and to not in HELD:
        tx.after_commit(lambda: index.release(job.id, job.epoch))
    return moved


def conclude(tx: Tx, index: QueueIndex, job: Job, what: Happening, conclusion: Conclusion, **more: Any) -> Job:
    """The job, finished. `more` may hold `reason` and `marked`, both shown on pages, and `cause`, for the event."""
    fields: dict[str, object] = {"conclusion": conclusion, "finished_at": tx.now}
    fields |= {key: more[key] for key in ("reason", "marked", "outputs") if key in more}
    detail: dict[str, object] = {"conclusion": conclusion}
    detail |= {key: more[key] for key in ("reason", "marked", "cause") if key in more}
    return move(tx, index, job, what, State.FINISHED, fields=fields, **detail)


def queue(tx: Tx, index: QueueIndex, job: Job, what: Happening, *, fields: Fields = _NOTHING, **detail: object) -> Job:
    """The job, leasable. It keeps its place: the order is by when it was enqueued."""
    queued = move(tx, index, job, what, State.QUEUED, fields={"queued_at": tx.now, "reason": "", **fields}, **detail)
    row = tx.one(rows.LABELS_OF_JOB, job=job.id)
    assert row is not None, f"job {job.id} has no labels"
    labels, names = rows.label_set(row)
    tx.after_commit(lambda: index.add((job.enqueued_at, job.id), labels, names, job.repo))
    return queued


def forgiven(job: Job, conclusion: Conclusion) -> tuple[Conclusion, int]:
    """The job's conclusion and its mark: with `continue-on-error` what failed is a success with a mark."""
    if job.continue_on_error and conclusion in FORGIVEN:
        return Conclusion.SUCCESS, 1
    return conclusion, 0


def end_cancelling(tx: Tx, index: QueueIndex, job: Job, cause: EndCause) -> Job:
    """Cancelling is over: acknowledged, or at its deadline."""
    ending, marked = forgiven(job, job.ending_as or Conclusion.CANCELLED)
    return conclude(tx, index, job, Happening.CONCLUDED, ending, marked=marked, cause=cause)


def stop(tx: Tx, index: QueueIndex, job: Job, reason: str, order: str) -> tuple[Ended, ...]:
    """Cancel one job that has not finished: at once when nobody holds it, else its holder is to be told `order`.

    The deadline stays what it was. A job that is being cancelled already is left alone.
    """
    if job.state in (State.BLOCKED, State.QUEUED):
        conclude(tx, index, job, Happening.CANCELLED, Conclusion.CANCELLED, reason=reason)
        return ()
    if job.state not in (State.LEASED, State.RUNNING):
        return ()
    fields: Fields = {"ending_as": Conclusion.CANCELLED, "reason": reason}
    move(tx, index, job, Happening.CANCELLING, State.CANCELLING, fields=fields, reason=reason)
    return (Ended(holder(tx, job), job.id, job.epoch, order),)


def holder(tx: Tx, job: Job) -> SessionId:
    """Who has the live lease of `job`."""
    row = tx.one("SELECT session_id FROM attempts WHERE job_id = :job AND ended_at IS NULL", job=job.id)
    assert row is not None, f"job {job.id} is {job.state}, so somebody holds it"
    return SessionId(row["session_id"])


def end_attempt(
    tx: Tx,
    job: Job,
    cause: EndCause,
    detail: str = "",
    conclusion: Conclusion | None = None,
    fields: Fields = _NOTHING,
) -> None:
    """The live attempt of `job` is over, its log cut short unless `fields`, further columns, say otherwise.

    Raises Fenced when there is none at the job's epoch.
    """
    values = {"log_state": "incomplete", **fields}
    named = {"now": tx.now, "cause": cause, "detail": detail, "conclusion": conclusion}
    ended = tx.connection.execute(_end(tuple(values)), {**values, **named, "job": job.id, "epoch": job.epoch}).rowcount
    if ended != 1:
        raise Fenced(f"job {job.id} has no live attempt {job.epoch}. Nothing was changed.")
    outbox.owe_attempt(tx, job)


def event(  # noqa: PLR0913  # one column each
    tx: Tx,
    repo: RepoId,
    run: RunId,
    kind: str,
    detail: Fields,
    *,
    job: JobId | None = None,
    epoch: Epoch | None = None,
) -> None:
    """Append to the event log."""
    ident = tx.ident()
    if tx.batch.first is None:
        tx.batch.first = ident
    tx.connection.execute(
        _INSERT_EVENT,
        {
            "id": ident,
            "batch": tx.batch.first,
            "at": tx.now,
            "repo": repo,
            "run": run,
            "job": job,
            "epoch": epoch,
            "kind": kind,
            "detail": _encode(detail),
        },
    )


def set_aside(tx: Tx, index: QueueIndex, job: JobId, reason: str) -> None:
    """Work on this row no more: it cannot be read. It is counted and named, and stops no other row."""
    row = tx.one(
        "UPDATE jobs SET set_aside = :reason WHERE id = :job AND set_aside IS NULL RETURNING repo_id, run_id",
        reason=reason[: limits.PROBLEM_CHARS_MAX],
        job=job,
    )
    if row is None:
        return
    event(tx, row["repo_id"], row["run_id"], "set_aside", {"reason": reason[: limits.PROBLEM_CHARS_MAX]}, job=job)
    tx.after_commit(lambda: index.remove(job))


def take(tx: Tx, index: QueueIndex, job: Job, held: Held) -> None:
    """Tell the index of a lease once it is durable."""
    tx.after_commit(lambda: index.take(job.id, job.epoch, held))


def _held_until(job: Job, to: State) -> dict[str, object]:
    """What leaves the row with a lease: its deadlines."""
    if job.state in HELD and to not in HELD:
        return {"deadline_at": None, "timeout_at": None, "step_timeout_at": None, "ending_as": None}
    return {}


def _moved(job: Job, to: State, values: Fields) -> Job:
    known = {key: value for key, value in values.items() if key in _JOB_FIELDS}
    return replace(job, state=to, **known)  # type: ignore[arg-type]  # columns are named as the fields are


_JOB_FIELDS = frozenset(("epoch", "losses", "conclusion", "ending_as", "deadline_at"))


@cache
def _update(columns: tuple[str, ...]) -> str:
    changes = "".join(f", {column} = :{column}" for column in columns)
    return f"UPDATE jobs SET state = :to{changes} WHERE id = :id AND state = :was AND epoch = :was_epoch"


@cache
def _end(columns: tuple[str, ...]) -> str:
    changes = "".join(f", {column} = :{column}" for column in columns)
    return (
        "UPDATE attempts SET ended_at = :now, end_cause = :cause, end_detail = :detail, conclusion = :conclusion"
        f"{changes} WHERE job_id = :job AND epoch = :epoch AND ended_at IS NULL"
    )
